// Fabrics between real processes, one of which is killed without warning.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include "tests/transport/child.h"
#include "tests/transport/fabric_pair.h"

namespace lamina {
namespace {

class TwoProcesses : public ::testing::TestWithParam<std::string> {
 protected:
  // After the last Child.
  void Listen() {
    fabric_ = OpenTestFabric(GetParam());
    listener_ = std::move(fabric_->Listen(FreshAddress(GetParam()))).value();
  }

  // In the child: a connection of its own to this test's listener.
  struct Client {
    std::unique_ptr<Fabric> fabric;
    std::unique_ptr<Endpoint> endpoint;
  };
  Client ConnectFromChild(const std::string& address, uint64_t window_bytes) {
    Client client{OpenTestFabric(GetParam()), nullptr};
    auto made =
        client.fabric->Connect(address, {window_bytes, "child"}, Deadline::After(kPatience));
    if (made.ok()) client.endpoint = std::move(made).value();
    return client;
  }

  void AcceptChild(Child& child, uint64_t window_bytes) {
    if (!listener_) Listen();
    child.Start(listener_->address());
    endpoint_ = AcceptOne(*fabric_, *listener_, {window_bytes, "parent"});
    ASSERT_TRUE(endpoint_ != nullptr);
  }

  bool SleepUntil(const std::function<bool()>& done) {
    return Until(done, [&] {
      if (inbound_.PollOnce(*endpoint_) == 0 && !done())
        Sleep(*fabric_, {}, Deadline::After(kPatience));
    });
  }

  std::unique_ptr<Fabric> fabric_;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<Endpoint> endpoint_;
  Inbound inbound_;
};

TEST_P(TwoProcesses, EchoesData) {
  constexpr size_t kBytes = 100'000;
  constexpr uint32_t kRounds = 200;
  Child child([&](const std::string& address) {
    Client client = ConnectFromChild(address, kBytes);
    Inbound inbound;
    for (uint32_t round = 0; round < kRounds; ++round) {
      const auto arrived = [&] {
        return inbound.notifications.size() > round && inbound.sent.size() == round;
      };
      const auto wait = [&] {
        if (inbound.PollOnce(*client.endpoint) == 0 && !arrived())
          Sleep(*client.fabric, {}, Deadline::After(kPatience));
      };
      if (!Until(arrived, wait)) return false;
      const WriteOp op{client.endpoint->window(), 0};
      if (!client.endpoint->Post({&op, 1}, round, round).ok()) return false;
    }
    return Until([&] { return inbound.num_lost == 1; },
                 [&] { inbound.PollOnce(*client.endpoint); });
  });
  AcceptChild(child, kBytes);
  auto buffer = std::move(fabric_->Allocate(kBytes)).value();
  for (uint32_t round = 0; round < kRounds; ++round) {
    const auto data = Pattern(kBytes, round);
    std::memcpy(buffer->bytes().data(), data.data(), kBytes);
    const WriteOp op{buffer->bytes().first(kBytes), 0};
    ASSERT_TRUE(endpoint_->Post({&op, 1}, round, round).ok());
    ASSERT_TRUE(SleepUntil(
        [&] { return inbound_.notifications.size() > round && inbound_.sent.size() > round; }));
    ASSERT_EQ(std::memcmp(endpoint_->window().data(), data.data(), kBytes), 0) << round;
  }
  endpoint_.reset();
  EXPECT_EQ(child.Wait(), 0);
}

TEST_P(TwoProcesses, KilledPeerIsNoticedWhileSleeping) {
  Child child([&](const std::string& address) {
    const Client client = ConnectFromChild(address, 64);
    return WaitToBeKilled();
  });
  AcceptChild(child, 64);
  std::thread killer([&] { child.Kill(); });
  EXPECT_TRUE(SleepUntil([&] { return inbound_.num_lost > 0; }));
  killer.join();
  EXPECT_EQ(endpoint_->Post({}, 1, 1).code(), StatusCode::kPeerLost);
  EXPECT_FALSE(endpoint_->last_error().empty());
}

TEST_P(TwoProcesses, KilledPeerIsNoticedWhilePolling) {
  Child child([&](const std::string& address) {
    const Client client = ConnectFromChild(address, 64);
    return WaitToBeKilled();
  });
  AcceptChild(child, 64);
  child.Kill();
  EXPECT_TRUE(Until([&] { return inbound_.num_lost > 0; }, [&] { inbound_.PollOnce(*endpoint_); }));
  for (int i = 0; i < 10; ++i) inbound_.PollOnce(*endpoint_);
  EXPECT_EQ(inbound_.num_events(), 1u);
}

TEST_P(TwoProcesses, KilledPeerGivesEveryTagBack) {
  constexpr size_t kBytes = size_t{1} << 20;
  Child child([&](const std::string& address) {
    const Client client = ConnectFromChild(address, kBytes);
    return WaitToBeKilled();  // never polls
  });
  AcceptChild(child, 64);
  auto buffer = std::move(fabric_->Allocate(kBytes)).value();
  const WriteOp op{buffer->bytes(), 0};
  uint64_t posted = 0;
  while (endpoint_->Post({&op, 1}, 1, posted).ok()) ++posted;
  child.Kill();
  ASSERT_TRUE(SleepUntil([&] { return inbound_.num_lost > 0; }));
  EXPECT_EQ(inbound_.sent.size() + inbound_.sent_lost.size(), posted);
  EXPECT_FALSE(inbound_.after_lost);
}

TEST_P(TwoProcesses, PeerKilledWhileItPosts) {
  constexpr size_t kBytes = size_t{256} << 10;
  Child child([&](const std::string& address) {
    Client client = ConnectFromChild(address, 64);
    Inbound inbound;
    auto buffer = std::move(client.fabric->Allocate(kBytes)).value();
    for (uint32_t i = 0; i < 1'000'000'000;) {
      const WriteOp op{buffer->bytes(), 0};
      if (client.endpoint->Post({&op, 1}, i, i).ok()) ++i;
      inbound.PollOnce(*client.endpoint);
    }
    return false;
  });
  AcceptChild(child, kBytes);
  ASSERT_TRUE(SleepUntil([&] { return inbound_.notifications.size() > 50; }));
  child.Kill();
  ASSERT_TRUE(SleepUntil([&] { return inbound_.num_lost > 0; }));
  for (uint32_t i = 0; i < inbound_.notifications.size(); ++i)
    ASSERT_EQ(inbound_.notifications[i], i);
}

TEST_P(TwoProcesses, PeerKilledBeforeItIsAccepted) {
  // Stays until this process has accepted it and leaves: who leaves earlier is not accepted.
  const auto connect = [&](const std::string& address) {
    const Client client = ConnectFromChild(address, 64);
    Inbound inbound;
    return client.endpoint != nullptr && Until([&] { return inbound.num_lost == 1; },
                                               [&] { inbound.PollOnce(*client.endpoint); });
  };
  Child child(connect);
  Child next(connect);
  Listen();
  child.Start(listener_->address());
  Sleep(*fabric_, {}, Deadline::After(kPatience));  // it knocks
  child.Kill();
  auto endpoint = listener_->Accept({});
  if (endpoint.ok()) {
    endpoint_ = std::move(endpoint).value();
    EXPECT_TRUE(SleepUntil([&] { return inbound_.num_lost > 0; }));
  }
  endpoint_.reset();
  AcceptChild(next, 64);
  endpoint_.reset();
  EXPECT_EQ(next.Wait(), 0);
}

TEST_P(TwoProcesses, AddressIsFreeAgainAfterItsOwnerWasKilled) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  Child child([&](const std::string& address) {
    const auto fabric = OpenTestFabric(GetParam());
    const auto listener = fabric->Listen(address);
    if (!listener.ok() || write(ends[1], "x", 1) != 1) return false;
    return WaitToBeKilled();
  });
  Listen();
  const std::string address = GetParam() == "shm" ? FreshAddress("shm") : listener_->address();
  listener_.reset();
  child.Start(address);
  char byte;
  ASSERT_EQ(read(ends[0], &byte, 1), 1);
  EXPECT_FALSE(fabric_->Listen(address).ok());
  child.Kill();
  auto again = fabric_->Listen(address);
  EXPECT_TRUE(again.ok()) << again.status();
  close(ends[0]);
  close(ends[1]);
}

INSTANTIATE_TEST_SUITE_P(Fabrics, TwoProcesses, ::testing::ValuesIn(WithRdma({"tcp", "shm"})),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace lamina
