// What transport.h promises, for every fabric: connections that are made without waiting. Both ends
// are on the thread of the test.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include "tests/transport/conformance.h"
#include "transport/posix.h"

namespace lamina {
namespace {

using ::testing::HasSubstr;

constexpr auto kShort = milliseconds(50);

class FabricConnecting : public FabricConformance {
 protected:
  std::unique_ptr<Connecting> Start(const EndpointOptions& options,
                                    Deadline deadline = Deadline::After(kPatience)) {
    auto connecting =
        pair_.client_fabric->StartConnect(pair_.listener->address(), options, deadline);
    EXPECT_TRUE(connecting.ok()) << connecting.status();
    return *std::move(connecting);
  }

  std::unique_ptr<Endpoint> Accept() {
    auto endpoint = pair_.listener->Accept({64, "server"});
    if (endpoint.ok()) return *std::move(endpoint);
    EXPECT_EQ(endpoint.status().code(), StatusCode::kTryAgain) << endpoint.status();
    return nullptr;
  }

  // Sleeps until one of the two fabrics has something, or `connecting` wants to be polled.
  void SleepOnBoth(const Connecting& connecting) {
    const bool client = pair_.client_fabric->Arm(), server = pair_.server_fabric->Arm();
    if (!client || !server) return;
    std::array<pollfd, 2> fds = {pollfd{pair_.client_fabric->event_fd(), POLLIN, 0},
                                 pollfd{pair_.server_fabric->event_fd(), POLLIN, 0}};
    WaitForAnyFd(fds, Deadline(connecting.wake_at()));
  }

  // Polls and accepts until both ends are there.
  void Finish(Connecting& connecting) {
    ASSERT_TRUE(Until(
        [&] {
          if (pair_.client == nullptr) {
            auto endpoint = connecting.Poll();
            if (endpoint.ok()) pair_.client = *std::move(endpoint);
            EXPECT_TRUE(pair_.client || endpoint.status().code() == StatusCode::kTryAgain)
                << endpoint.status();
          }
          if (pair_.server == nullptr) pair_.server = Accept();
          return pair_.client != nullptr && pair_.server != nullptr;
        },
        [&] {
          // The other end may need polls of the one that is connected already.
          if (pair_.client != nullptr)
            at_client_.PollOnce(*pair_.client);
          else
            SleepOnBoth(connecting);
        }));
  }

  void ExpectToServe() {
    pair_.client.reset();
    pair_.server.reset();
    Finish(*Start({64, "client"}));
    ASSERT_TRUE(pair_.client && pair_.server);
    EXPECT_EQ(pair_.server->peer_hello(), "client");
    EXPECT_EQ(pair_.client->peer_hello(), "server");
    Inbound at_server;
    ASSERT_TRUE(pair_.client->Post({}, 7, 1).ok());
    EXPECT_TRUE(Until([&] { return at_server.notifications == std::vector<uint32_t>{7}; },
                      [&] {
                        at_server.PollOnce(*pair_.server);
                        at_client_.PollOnce(*pair_.client);
                      }));
  }
};

TEST_P(FabricConnecting, OnTheThreadThatAccepts) {
  const TimePoint start = Clock::now();
  ExpectToServe();
  EXPECT_LT(SecondsSince(start), 30) << "a wake-up was lost";
}

TEST_P(FabricConnecting, WaitsForAListenerThatIsNotThereYet) {
  const std::string address = pair_.listener->address();
  pair_.listener.reset();
  auto connecting =
      *pair_.client_fabric->StartConnect(address, {64, "client"}, Deadline::After(kPatience));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(connecting->Poll().status().code(), StatusCode::kTryAgain);
    SleepOnBoth(*connecting);
  }
  pair_.listener = *pair_.server_fabric->Listen(address);
  Finish(*connecting);
  EXPECT_TRUE(pair_.client && pair_.server);
}

TEST_P(FabricConnecting, ASilentListenerEndsItAtItsDeadline) {
  const TimePoint start = Clock::now();
  const auto connecting = Start({64, "client"}, Deadline(start + kShort));
  Status status;
  while ((status = connecting->Poll().status()).code() == StatusCode::kTryAgain) {
    EXPECT_LE(connecting->wake_at(), start + kShort);
    SleepOnBoth(*connecting);
  }
  EXPECT_EQ(status.code(), StatusCode::kTimeout) << status;
  EXPECT_THAT(status.message(), HasSubstr(pair_.listener->address()));
  EXPECT_GE(Clock::now(), start + kShort);
}

TEST_P(FabricConnecting, ACancelledOneEndsWithTheNextPoll) {
  std::atomic<bool> cancelled{false};
  const auto connecting = Start({64, "client"}, Deadline::After(kPatience).Unless(cancelled));
  EXPECT_EQ(connecting->Poll().status().code(), StatusCode::kTryAgain);
  cancelled = true;
  const Status status = connecting->Poll().status();
  EXPECT_EQ(status.code(), StatusCode::kTimeout) << status;
}

// Whatever was done of it: nothing, greeted, accepted by the other end.
TEST_P(FabricConnecting, OneThatIsGivenUpLeavesNothingBehind) {
  ExpectToServe();  // what a fabric keeps from its first connection is there now
  pair_.client.reset();
  pair_.server.reset();
  const size_t before = NumOpenDescriptors();
  for (int polls = 0; polls < 4; ++polls) {
    auto connecting = Start({64, "given up"});
    std::unique_ptr<Endpoint> accepted, connected;
    for (int i = 0; i < polls && connected == nullptr; ++i) {
      auto polled = connecting->Poll();
      if (polled.ok()) connected = *std::move(polled);
      if (i > 0 && accepted == nullptr) accepted = Accept();
    }
    connecting.reset();
    connected.reset();
    if (accepted != nullptr) {
      Inbound inbound;
      EXPECT_TRUE(
          Until([&] { return inbound.num_lost == 1; }, [&] { inbound.PollOnce(*accepted); }));
      accepted.reset();
    }
    // The listener may have to find out that the peer is gone, and may even accept it before that.
    EXPECT_TRUE(Until([&] { return NumOpenDescriptors() <= before; }, [&] { (void)Accept(); }))
        << polls;
  }
  ExpectToServe();
}

TEST_P(FabricConnecting, AHundredAtOnce) {
  constexpr size_t kPeers = 100;
  std::vector<std::unique_ptr<Connecting>> connecting;
  for (size_t i = 0; i < kPeers; ++i) connecting.push_back(Start({64, std::to_string(i)}));
  std::vector<std::unique_ptr<Endpoint>> clients(kPeers);
  std::vector<std::unique_ptr<Endpoint>> servers;
  size_t num_connected = 0;
  const auto poll_all = [&] {
    for (size_t i = 0; i < kPeers; ++i) {
      if (clients[i] != nullptr) continue;
      auto endpoint = connecting[i]->Poll();
      if (!endpoint.ok()) {
        ASSERT_EQ(endpoint.status().code(), StatusCode::kTryAgain) << endpoint.status();
        continue;
      }
      clients[i] = *std::move(endpoint);
      ++num_connected;
    }
    // All that knock: peers that wait longer than 100 ms would make room for others.
    while (auto endpoint = Accept()) servers.push_back(std::move(endpoint));
  };
  ASSERT_TRUE(Until(
      [&] { return HasFatalFailure() || (num_connected == kPeers && servers.size() == kPeers); },
      poll_all));
  ASSERT_FALSE(HasFatalFailure());
  std::vector<std::string> hellos, expected;
  for (size_t i = 0; i < kPeers; ++i) {
    hellos.push_back(servers[i]->peer_hello());
    expected.push_back(std::to_string(i));
    ASSERT_TRUE(clients[i]->Post({}, static_cast<uint32_t>(i), i).ok());
  }
  EXPECT_THAT(hellos, ::testing::UnorderedElementsAreArray(expected));
  std::vector<Inbound> inbound(kPeers);
  for (size_t i = 0; i < kPeers; ++i) {
    ASSERT_TRUE(Until([&] { return inbound[i].notifications.size() == 1; },
                      [&] {
                        inbound[i].PollOnce(*servers[i]);
                        // With ucx a post may need its sender's polls to go out.
                        for (auto& client : clients) {
                          Inbound ignored;
                          ignored.PollOnce(*client);
                        }
                      }));
    EXPECT_EQ(std::to_string(inbound[i].notifications[0]), servers[i]->peer_hello());
  }
}

// An attempt that one end gives up while the other goes on, or has not yet noticed.
class FabricConnectingGivenUp : public FabricConnecting {
 protected:
  // Takes `num_steps` steps of a connection, of either end in turn. What it made is in `connected_`
  // and `accepted_`.
  void TakeSteps(Connecting& connecting, int num_steps) {
    for (int step = 0; step < num_steps; ++step) {
      if (step % 2 == 1) {
        if (accepted_ == nullptr) accepted_ = Accept();
      } else if (connected_ == nullptr) {
        auto endpoint = connecting.Poll();
        if (endpoint.ok()) connected_ = *std::move(endpoint);
      }
    }
  }

  // Finishes `connecting`, which says `hello`, and sends through it in both directions.
  void ExpectToServe(Connecting& connecting, const std::string& hello) {
    pair_.client.reset();
    pair_.server.reset();
    for (auto& early : early_) {
      if (early != nullptr && early->peer_hello() == hello) pair_.server = std::move(early);
    }
    const bool both =
        Until([&] { return pair_.client != nullptr && pair_.server != nullptr; },
              [&] {
                if (pair_.client == nullptr) {
                  auto endpoint = connecting.Poll();
                  if (endpoint.ok()) pair_.client = *std::move(endpoint);
                  ASSERT_TRUE(pair_.client || endpoint.status().code() == StatusCode::kTryAgain)
                      << endpoint.status();
                } else {
                  Inbound ignored;
                  ignored.PollOnce(*pair_.client);
                }
                if (pair_.server != nullptr) return;
                pair_.server = Accept();
                // The listener may find out only later that another peer is gone.
                if (pair_.server != nullptr && pair_.server->peer_hello() != hello)
                  pair_.server.reset();
              });
    ASSERT_TRUE(both);
    const std::vector<std::byte> data = Pattern(64, 7);
    const WriteOp write{Source(data), 0};
    ASSERT_TRUE(pair_.client->Post({&write, 1}, 7, 1).ok());
    ASSERT_TRUE(pair_.server->Post({}, 8, 1).ok());
    Inbound at_server, at_client;
    EXPECT_TRUE(
        Until([&] { return !at_server.notifications.empty() && !at_client.notifications.empty(); },
              [&] {
                at_server.PollOnce(*pair_.server);
                at_client.PollOnce(*pair_.client);
              }));
    EXPECT_TRUE(std::ranges::equal(pair_.server->window(), data));
  }

  std::unique_ptr<Endpoint> connected_, accepted_;
  std::vector<std::unique_ptr<Endpoint>> early_;  // accepted before ExpectToServe wants them
};

constexpr int kMoreStepsThanItTakes = 8;

TEST_P(FabricConnectingGivenUp, ByTheConnectingEndLeavesTheNextOneWorking) {
  for (int num_steps = 0; num_steps < kMoreStepsThanItTakes; ++num_steps) {
    SCOPED_TRACE(num_steps);
    auto connecting = Start({64, "given up"});
    TakeSteps(*connecting, num_steps);
    connecting.reset();
    connected_.reset();
    ExpectToServe(*Start({64, "next"}), "next");
    accepted_.reset();
    if (HasFatalFailure()) return;
  }
  ExpectToServe(*Start({64, "last"}), "last");
}

TEST_P(FabricConnectingGivenUp, ByTheAcceptingEndLeavesTheNextOneWorking) {
  for (int num_steps = 0; num_steps < kMoreStepsThanItTakes; ++num_steps) {
    SCOPED_TRACE(num_steps);
    auto connecting = Start({64, "given up"});
    TakeSteps(*connecting, num_steps);
    accepted_.reset();
    pair_.listener.reset();
    pair_.listener = *pair_.server_fabric->Listen(FreshAddress(GetParam()));
    ExpectToServe(*Start({64, "next"}), "next");
    connecting.reset();
    connected_.reset();
    if (HasFatalFailure()) return;
  }
  ExpectToServe(*Start({64, "last"}), "last");
}

// The listener has answered all of them before the first of them reads its answer.
TEST_P(FabricConnectingGivenUp, LeavesOthersThatWereBegunBeforeAndAfterItWorking) {
  constexpr size_t kAttempts = 4;
  std::vector<std::unique_ptr<Connecting>> connecting;
  for (size_t i = 0; i < kAttempts; ++i) {
    connecting.push_back(Start({64, std::to_string(i)}));
    EXPECT_EQ(connecting[i]->Poll().status().code(), StatusCode::kTryAgain);
    if (auto endpoint = Accept()) early_.push_back(std::move(endpoint));
  }
  connecting[1].reset();
  for (const size_t i : {3u, 0u, 2u}) {
    SCOPED_TRACE(i);
    ExpectToServe(*connecting[i], std::to_string(i));
    if (HasFatalFailure()) return;
  }
  ExpectToServe(*Start({64, "next"}), "next");
}

INSTANTIATE_TEST_SUITE_P(Fabrics, FabricConnectingGivenUp, ::testing::ValuesIn(ConformingFabrics()),
                         NameOfFabric);

INSTANTIATE_TEST_SUITE_P(Fabrics, FabricConnecting, ::testing::ValuesIn(ConformingFabrics()),
                         NameOfFabric);

}  // namespace
}  // namespace lamina
