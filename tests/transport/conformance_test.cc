// What transport.h promises, for every fabric.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "tests/transport/fabric_pair.h"

namespace lamina {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class FabricConformance : public testing::TestWithParam<std::string> {
 protected:
  FabricPair pair_{GetParam()};
  Inbound at_server_;
  Inbound at_client_;

  // A source as every fabric takes it.
  std::span<std::byte> Source(const std::vector<std::byte>& data) {
    auto buffer = pair_.client_fabric->Allocate(data.size());
    EXPECT_TRUE(buffer.ok()) << buffer.status();
    buffers_.push_back(std::move(buffer).value());
    std::copy(data.begin(), data.end(), buffers_.back()->bytes().begin());
    return buffers_.back()->bytes().first(data.size());
  }

  void PollBoth() {
    at_server_.PollOnce(*pair_.server);
    at_client_.PollOnce(*pair_.client);
  }

  // Posts from the client and polls both until it was taken.
  void PostSoon(std::span<const WriteOp> ops, std::optional<uint32_t> notify, uint64_t tag) {
    Status status;
    ASSERT_TRUE(Until(
        [&] {
          status = pair_.client->Post(ops, notify, tag);
          return status.code() != StatusCode::kTryAgain;
        },
        [&] { PollBoth(); }));
    ASSERT_TRUE(status.ok()) << status;
  }

 private:
  std::vector<std::unique_ptr<Buffer>> buffers_;
};

TEST_P(FabricConformance, HellosWindowsAndNames) {
  pair_.Connect(pair_.server, pair_.client, {4096, "I serve"}, {100, std::string(kMaxHelloBytes, 'c')});
  ASSERT_TRUE(pair_.server && pair_.client);
  EXPECT_EQ(pair_.client->peer_hello(), "I serve");
  EXPECT_EQ(pair_.server->peer_hello(), std::string(kMaxHelloBytes, 'c'));
  EXPECT_EQ(pair_.client->peer_window_bytes(), 4096u);
  EXPECT_EQ(pair_.server->peer_window_bytes(), 100u);
  EXPECT_EQ(pair_.server->window().size(), 4096u);
  EXPECT_EQ(pair_.client->window().size(), 100u);
  EXPECT_THAT(pair_.client->peer_name(), HasSubstr(pair_.listener->address()));
  EXPECT_FALSE(pair_.server->peer_name().empty());
  EXPECT_EQ(pair_.client->last_error(), "");
  for (std::byte b : pair_.server->window()) EXPECT_EQ(b, std::byte{0});
}

TEST_P(FabricConformance, EmptyHelloAndWindow) {
  pair_.Connect(pair_.server, pair_.client, {}, {});
  ASSERT_TRUE(pair_.server && pair_.client);
  EXPECT_EQ(pair_.client->peer_window_bytes(), 0u);
  PostSoon({}, 7, 1);
  ASSERT_TRUE(Until([&] { return !at_server_.notifications.empty(); }, [&] { PollBoth(); }));
  EXPECT_THAT(at_server_.notifications, ElementsAre(7u));
}

TEST_P(FabricConformance, RefusesOptionsBeyondItsLimits) {
  const EndpointOptions long_hello{0, std::string(kMaxHelloBytes + 1, 'x')};
  const EndpointOptions large_window{pair_.client_fabric->limits().max_window_bytes + 1, ""};
  for (const EndpointOptions& options : {long_hello, large_window}) {
    EXPECT_EQ(pair_.listener->Accept(options).status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(pair_.client_fabric->Connect(pair_.listener->address(), options, Deadline::After(kPatience)).status().code(),
              StatusCode::kInvalidArgument);
  }
}

TEST_P(FabricConformance, AllocatesZeroedPages) {
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{4097}, size_t{3} << 20}) {
    auto buffer = pair_.client_fabric->Allocate(bytes);
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    ASSERT_GE((*buffer)->bytes().size(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>((*buffer)->bytes().data()) % 4096, 0u);
    EXPECT_EQ(std::accumulate((*buffer)->bytes().begin(), (*buffer)->bytes().end(), 0,
                              [](int sum, std::byte b) { return sum + std::to_integer<int>(b); }),
              0);
  }
}

TEST_P(FabricConformance, BytesAreThereWhenTheNotificationIs) {
  constexpr size_t kWindow = size_t{9} << 20;
  pair_.Connect(kWindow);
  const std::vector<size_t> sizes = {0, 1, 2, 3, 7, 63, 64, 65, 4095, 4097, 65535, 65537, 1000003, size_t{8} << 20};
  uint32_t value = 100;
  for (const size_t bytes : sizes) {
    const auto data = Pattern(bytes, value);
    const uint64_t offset = (kWindow - bytes) / 3;
    const WriteOp op{Source(data), offset};
    PostSoon({&op, 1}, value, value);
    const size_t expected = at_server_.notifications.size() + 1;
    ASSERT_TRUE(Until([&] { return at_server_.notifications.size() >= expected; }, [&] { PollBoth(); })) << bytes;
    EXPECT_EQ(at_server_.notifications.back(), value);
    EXPECT_TRUE(std::equal(data.begin(), data.end(), pair_.server->window().begin() + static_cast<ptrdiff_t>(offset))) << bytes;
    ++value;
  }
  ASSERT_TRUE(Until([&] { return at_client_.sent.size() == sizes.size(); }, [&] { PollBoth(); }));
  EXPECT_EQ(at_client_.sent.front(), 100u);
  EXPECT_TRUE(at_client_.sent_lost.empty());
}

TEST_P(FabricConformance, ManyOpsInOnePost) {
  const size_t max_ops = pair_.client_fabric->limits().max_ops;
  pair_.Connect(max_ops * 100);
  std::vector<WriteOp> ops;
  std::vector<std::vector<std::byte>> data;
  for (size_t i = 0; i < max_ops; ++i) {
    data.push_back(Pattern(i % 5 == 0 ? 0 : 1 + i % 99, static_cast<uint32_t>(i)));
    ops.push_back({Source(data.back()), (max_ops - 1 - i) * 100});
  }
  PostSoon(ops, 1, 1);
  ASSERT_TRUE(Until([&] { return !at_server_.notifications.empty(); }, [&] { PollBoth(); }));
  for (size_t i = 0; i < max_ops; ++i) {
    EXPECT_TRUE(std::equal(data[i].begin(), data[i].end(), pair_.server->window().subspan(ops[i].peer_offset).begin())) << i;
  }
  ops.push_back({});
  EXPECT_EQ(pair_.client->Post(ops, 2, 2).code(), StatusCode::kInvalidArgument);
}

TEST_P(FabricConformance, LaterOpsOverwriteEarlierOnes) {
  pair_.Connect(1000);
  const auto first = Pattern(1000, 1), second = Pattern(500, 2);
  const std::array<WriteOp, 2> ops = {WriteOp{Source(first), 0}, WriteOp{Source(second), 250}};
  PostSoon(ops, 1, 1);
  ASSERT_TRUE(Until([&] { return !at_server_.notifications.empty(); }, [&] { PollBoth(); }));
  EXPECT_EQ(std::memcmp(pair_.server->window().data() + 250, second.data(), 500), 0);
  EXPECT_EQ(std::memcmp(pair_.server->window().data() + 750, first.data() + 750, 250), 0);
}

TEST_P(FabricConformance, PostsWithoutNotificationAreVisibleWithTheNextOne) {
  pair_.Connect(4096);
  const auto data = Pattern(4096, 5);
  for (uint64_t i = 0; i < 4; ++i) {
    const WriteOp op{Source({data.begin() + static_cast<ptrdiff_t>(i * 1024), data.begin() + static_cast<ptrdiff_t>((i + 1) * 1024)}), i * 1024};
    PostSoon({&op, 1}, std::nullopt, i);
  }
  PostSoon({}, 9, 4);
  ASSERT_TRUE(Until([&] { return !at_server_.notifications.empty() && at_client_.sent.size() == 5; }, [&] { PollBoth(); }));
  EXPECT_THAT(at_server_.notifications, ElementsAre(9u));
  EXPECT_THAT(at_client_.sent, ElementsAre(0u, 1u, 2u, 3u, 4u));
  EXPECT_EQ(std::memcmp(pair_.server->window().data(), data.data(), data.size()), 0);
}

TEST_P(FabricConformance, RejectsWritesOutsideTheWindow) {
  pair_.Connect(100);
  const auto data = Pattern(101, 1);
  const std::span<std::byte> source = Source(data);
  const std::vector<WriteOp> bad = {{source, 0}, {source.first(1), 100}, {source.first(0), 101}, {source.first(50), 51}, {source.first(2), ~uint64_t{0}}};
  for (const WriteOp& op : bad) {
    const std::array<WriteOp, 2> ops = {WriteOp{source.first(1), 0}, op};
    const Status status = pair_.client->Post(ops, 1, 1);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("100 bytes"));
  }
  const WriteOp good{source.first(100), 0};
  PostSoon({&good, 1}, 2, 2);
  ASSERT_TRUE(Until([&] { return !at_server_.notifications.empty() && !at_client_.sent.empty(); }, [&] { PollBoth(); }));
  EXPECT_THAT(at_server_.notifications, ElementsAre(2u));  // nothing of the bad ones was posted
  EXPECT_THAT(at_client_.sent, ElementsAre(2u));
}

TEST_P(FabricConformance, BackPressureLosesNothing) {
  constexpr size_t kBytes = size_t{64} << 10;
  constexpr uint32_t kPosts = 3000;
  pair_.Connect(kBytes);
  const std::span<std::byte> source = Source(Pattern(kBytes, 3));
  uint32_t posted = 0;
  bool pushed_back = false;
  const auto post_all = [&] {
    for (; posted < kPosts; ++posted) {
      const WriteOp op{source.first(posted % 100 == 0 ? kBytes : 8), 0};
      const Status status = pair_.client->Post({&op, 1}, posted, posted);
      if (status.code() == StatusCode::kTryAgain) {
        pushed_back = true;
        return;
      }
      ASSERT_TRUE(status.ok()) << status;
    }
  };
  post_all();  // nobody polls: the limit is finite
  EXPECT_TRUE(pushed_back);
  ASSERT_TRUE(Until([&] { return at_server_.notifications.size() == kPosts && at_client_.sent.size() == kPosts; },
                    [&] {
                      PollBoth();
                      post_all();
                    }));
  for (uint32_t i = 0; i < kPosts; ++i) {
    ASSERT_EQ(at_server_.notifications[i], i);
    ASSERT_EQ(at_client_.sent[i], i);
  }
  PollBoth();
  EXPECT_EQ(at_server_.num_events() + at_client_.num_events(), 2 * kPosts);
}

TEST_P(FabricConformance, PollFillsAnyNumberOfEvents) {
  pair_.Connect(0);
  for (uint32_t i = 0; i < 20; ++i) PostSoon({}, i, i);
  EXPECT_EQ(at_client_.PollOnce(*pair_.client, 0), 0u);
  EXPECT_EQ(at_client_.PollOnce(*pair_.client, 1), 1u);
  ASSERT_TRUE(Until([&] { return at_server_.notifications.size() == 20; },
                    [&] {
                      EXPECT_LE(at_server_.PollOnce(*pair_.server, 3), 3u);
                      at_client_.PollOnce(*pair_.client, 1);
                    }));
  ASSERT_TRUE(Until([&] { return at_client_.sent.size() == 20; }, [&] { PollBoth(); }));
}

TEST_P(FabricConformance, ArmSaysNoWhileThereIsSomething) {
  pair_.Connect(0);
  PostSoon({}, 1, 1);
  PostSoon({}, 2, 2);
  EXPECT_FALSE(pair_.client_fabric->Arm());  // two kSent
  ASSERT_TRUE(Until([&] { return !at_server_.notifications.empty(); }, [&] { at_server_.PollOnce(*pair_.server, 1); }));
  ASSERT_TRUE(Until([&] { return at_server_.notifications.size() == 2; },
                    [&] {
                      Sleep(*pair_.server_fabric, {}, Deadline::After(kPatience));  // must return: the second is there or comes
                      at_server_.PollOnce(*pair_.server, 1);
                    }));
  ASSERT_TRUE(Until([&] { return at_client_.sent.size() == 2; }, [&] { PollBoth(); }));
}

TEST_P(FabricConformance, SleepEndsAtTheDeadlineAndOnOtherDescriptors) {
  pair_.Connect(0);
  PollBoth();
  const TimePoint start = Clock::now();
  Sleep(*pair_.server_fabric, {}, Deadline::After(milliseconds(30)));
  EXPECT_LT(SecondsSince(start), 10);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  ASSERT_EQ(write(ends[1], "x", 1), 1);
  const int fds[] = {ends[0]};
  Sleep(*pair_.server_fabric, fds, Deadline::After(kPatience));
  EXPECT_LT(SecondsSince(start), 30);
  close(ends[0]);
  close(ends[1]);
}

TEST_P(FabricConformance, ManyEndpointsOnAFabric) {
  constexpr size_t kPeers = 20;
  std::vector<std::unique_ptr<Endpoint>> servers(kPeers), clients(kPeers);
  for (size_t i = 0; i < kPeers; ++i) pair_.Connect(servers[i], clients[i], {64, ""}, {64, std::to_string(i)});
  std::vector<Inbound> inbound(kPeers);
  for (uint32_t round = 0; round < 10; ++round) {
    for (size_t i = 0; i < kPeers; ++i) {
      const auto data = Pattern(64, static_cast<uint32_t>(i));
      const WriteOp op{Source(data), 0};
      ASSERT_TRUE(clients[i]->Post({&op, 1}, round, round).ok());
    }
  }
  for (size_t i = 0; i < kPeers; ++i) {
    EXPECT_EQ(servers[i]->peer_hello(), std::to_string(i));
    ASSERT_TRUE(Until([&] { return inbound[i].notifications.size() == 10; }, [&] { inbound[i].PollOnce(*servers[i]); }));
    EXPECT_EQ(std::memcmp(servers[i]->window().data(), Pattern(64, static_cast<uint32_t>(i)).data(), 64), 0);
  }
  clients[3].reset();  // the others live on
  ASSERT_TRUE(Until([&] { return inbound[3].num_lost == 1; }, [&] { inbound[3].PollOnce(*servers[3]); }));
  ASSERT_TRUE(clients[4]->Post({}, 99, 99).ok());
  ASSERT_TRUE(Until([&] { return inbound[4].notifications.size() == 11; }, [&] { inbound[4].PollOnce(*servers[4]); }));
}

TEST_P(FabricConformance, PeerGoneWhileIdle) {
  pair_.Connect(64);
  pair_.client.reset();
  ASSERT_TRUE(Until([&] { return at_server_.num_lost > 0; },
                    [&] {
                      Sleep(*pair_.server_fabric, {}, Deadline::After(kPatience));  // wakes for a death too
                      at_server_.PollOnce(*pair_.server);
                    }));
  for (int i = 0; i < 10; ++i) at_server_.PollOnce(*pair_.server);
  EXPECT_EQ(at_server_.num_events(), 1u);
  EXPECT_FALSE(pair_.server->last_error().empty());
  EXPECT_EQ(pair_.server->Post({}, 1, 1).code(), StatusCode::kPeerLost);
  EXPECT_EQ(at_server_.PollOnce(*pair_.server), 0u);
  const TimePoint start = Clock::now();
  Sleep(*pair_.server_fabric, {}, Deadline::After(milliseconds(30)));  // a dead peer does not keep its fabric awake
  EXPECT_GE(SecondsSince(start), 0.029);
}

TEST_P(FabricConformance, PeerGoneIsNoticedByPollingAlone) {
  pair_.Connect(64);
  pair_.client.reset();
  ASSERT_TRUE(Until([&] { return at_server_.num_lost > 0; }, [&] { at_server_.PollOnce(*pair_.server); }));
}

TEST_P(FabricConformance, WhatAPeerPostedBeforeItsEndArrives) {
  pair_.Connect(64);
  const auto data = Pattern(64, 8);
  const WriteOp op{Source(data), 0};
  for (uint32_t i = 0; i < 40; ++i) PostSoon({&op, 1}, i, i);
  ASSERT_TRUE(Until([&] { return at_client_.sent.size() == 40; }, [&] { at_client_.PollOnce(*pair_.client); }));
  pair_.client.reset();
  ASSERT_TRUE(Until([&] { return at_server_.num_lost > 0; }, [&] { at_server_.PollOnce(*pair_.server, 7); }));
  EXPECT_EQ(at_server_.notifications.size(), 40u);
  EXPECT_FALSE(at_server_.after_lost);
  EXPECT_EQ(std::memcmp(pair_.server->window().data(), data.data(), 64), 0);
}

TEST_P(FabricConformance, PeerGoneWithPostsOutstandingGivesEveryTagBackOnce) {
  constexpr size_t kBytes = size_t{1} << 20;
  pair_.Connect(kBytes);
  const WriteOp op{Source(Pattern(kBytes, 4)), 0};
  uint64_t posted = 0;
  while (pair_.client->Post({&op, 1}, 1, posted).ok()) ++posted;
  ASSERT_GT(posted, 0u);
  pair_.server.reset();
  ASSERT_TRUE(Until([&] { return at_client_.num_lost > 0; }, [&] { at_client_.PollOnce(*pair_.client, 5); }));
  for (int i = 0; i < 10; ++i) at_client_.PollOnce(*pair_.client);
  std::vector<uint64_t> tags = at_client_.sent;
  tags.insert(tags.end(), at_client_.sent_lost.begin(), at_client_.sent_lost.end());
  ASSERT_EQ(tags.size(), posted);
  for (uint64_t i = 0; i < posted; ++i) EXPECT_EQ(tags[i], i);
  EXPECT_EQ(at_client_.num_lost, 1);
  EXPECT_FALSE(at_client_.after_lost);
  EXPECT_EQ(pair_.client->Post({&op, 1}, 1, 1).code(), StatusCode::kPeerLost);
}

TEST_P(FabricConformance, EndpointsCanBeDestroyedWithPostsOutstanding) {
  constexpr size_t kBytes = size_t{1} << 20;
  pair_.Connect(kBytes);
  const WriteOp op{Source(Pattern(kBytes, 4)), 0};
  while (pair_.client->Post({&op, 1}, 1, 1).ok()) {
  }
  pair_.client.reset();
  ASSERT_TRUE(Until([&] { return at_server_.num_lost > 0; }, [&] { at_server_.PollOnce(*pair_.server); }));
}

TEST_P(FabricConformance, ReconnectsAfterALoss) {
  for (int round = 0; round < 5; ++round) {
    pair_.Connect(64);
    Inbound inbound;
    ASSERT_TRUE(pair_.client->Post({}, 5, 5).ok());
    ASSERT_TRUE(Until([&] { return inbound.notifications.size() == 1; }, [&] { inbound.PollOnce(*pair_.server); }));
    if (round % 2 == 0) {
      pair_.client.reset();
      ASSERT_TRUE(Until([&] { return inbound.num_lost == 1; }, [&] { inbound.PollOnce(*pair_.server); }));
    } else {
      pair_.server.reset();
    }
  }
}

TEST_P(FabricConformance, ListenerGoneBeforeItAccepts) {
  const std::string address = pair_.listener->address();
  Status status;
  std::atomic<bool> done{false};
  std::thread connecting([&] {
    status = pair_.client_fabric->Connect(address, {}, Deadline::After(milliseconds(300))).status();
    done = true;
  });
  Sleep(*pair_.server_fabric, {}, Deadline::After(kPatience));  // somebody knocks
  pair_.listener.reset();
  connecting.join();
  EXPECT_TRUE(status.code() == StatusCode::kPeerLost || status.code() == StatusCode::kTimeout) << status;
  EXPECT_THAT(status.message(), HasSubstr(address));
}

TEST_P(FabricConformance, ConnectorGivesUpBeforeItIsAccepted) {
  const Status status = pair_.client_fabric->Connect(pair_.listener->address(), {0, "early"}, Deadline::After(milliseconds(50))).status();
  EXPECT_EQ(status.code(), StatusCode::kTimeout);
  EXPECT_THAT(status.message(), HasSubstr(pair_.listener->address()));
  // Whether Accept still finds it or not: it is lost at once, and the next peer is served.
  auto early = pair_.listener->Accept({});
  if (early.ok()) {
    Inbound inbound;
    EXPECT_EQ((*early)->peer_hello(), "early");
    EXPECT_TRUE(Until([&] { return inbound.num_lost > 0; }, [&] { inbound.PollOnce(**early); }));
  }
  pair_.Connect(64);
  ASSERT_TRUE(pair_.server);
  EXPECT_EQ(pair_.server->peer_hello(), "client");
}

TEST_P(FabricConformance, ConnectWaitsForAListener) {
  const std::string address = pair_.listener->address();
  pair_.listener.reset();
  std::unique_ptr<Endpoint> client;
  std::thread connecting([&] {
    auto made = pair_.client_fabric->Connect(address, {}, Deadline::After(kPatience));
    EXPECT_TRUE(made.ok()) << made.status();
    if (made.ok()) client = std::move(made).value();
  });
  auto listener = pair_.server_fabric->Listen(address);
  ASSERT_TRUE(listener.ok()) << listener.status();
  pair_.server = AcceptOne(*pair_.server_fabric, **listener, {});
  connecting.join();
  EXPECT_TRUE(client != nullptr);
}

TEST_P(FabricConformance, ConnectTimesOutAndNamesTheAddress) {
  const std::string address = pair_.listener->address();
  pair_.listener.reset();
  const TimePoint start = Clock::now();
  const Status status = pair_.client_fabric->Connect(address, {}, Deadline::After(milliseconds(50))).status();
  EXPECT_EQ(status.code(), StatusCode::kTimeout) << status;
  EXPECT_THAT(status.message(), HasSubstr(address));
  EXPECT_LT(SecondsSince(start), 10);
}

TEST_P(FabricConformance, AddressInUse) {
  const Status status = pair_.client_fabric->Listen(pair_.listener->address()).status();
  EXPECT_EQ(status.code(), StatusCode::kOutOfSpace);
  EXPECT_THAT(status.message(), HasSubstr("in use"));
  EXPECT_THAT(status.message(), HasSubstr(pair_.listener->address()));
}

// Both sides sleep whenever they have nothing: one lost wake-up and the test stands still.
TEST_P(FabricConformance, SleepersAreAlwaysWoken) {
  constexpr uint32_t kRounds = 5000;
  pair_.Connect(64);
  const auto play = [](Fabric& fabric, Endpoint& endpoint, bool begins) {
    uint32_t seen = 0;
    uint32_t posted = 0;
    Inbound inbound;
    const auto post = [&] { EXPECT_TRUE(endpoint.Post({}, posted++, 0).ok()); };
    if (begins) post();
    while (seen < kRounds) {
      for (uint32_t spin = 0; spin < 1 + seen % 7; ++spin) inbound.PollOnce(endpoint);
      if (inbound.notifications.size() > seen) {
        ++seen;
        if (posted < kRounds) post();
        continue;
      }
      const TimePoint start = Clock::now();
      Sleep(fabric, {}, Deadline::After(std::chrono::seconds(20)));
      if (SecondsSince(start) > 19) return false;
    }
    return true;
  };
  bool server_ok = false;
  std::thread server([&] { server_ok = play(*pair_.server_fabric, *pair_.server, false); });
  EXPECT_TRUE(play(*pair_.client_fabric, *pair_.client, true));
  server.join();
  EXPECT_TRUE(server_ok);
}

// A sender that sleeps when it is pushed back is woken when there is room, and a receiver when there is something.
TEST_P(FabricConformance, BackPressureWakesSleepingSenders) {
  constexpr uint32_t kPosts = 20000;
  constexpr size_t kBytes = size_t{32} << 10;
  pair_.Connect(kBytes);
  const WriteOp op{Source(Pattern(kBytes, 6)), 0};
  std::thread sender([&] {
    uint32_t posted = 0;
    while (posted < kPosts) {
      const WriteOp part{op.source.first(posted % 8 == 0 ? kBytes : 16), 0};
      const Status status = pair_.client->Post({&part, 1}, posted, posted);
      if (status.ok()) {
        ++posted;
        continue;
      }
      ASSERT_EQ(status.code(), StatusCode::kTryAgain) << status;
      if (at_client_.PollOnce(*pair_.client, 64) > 0) continue;
      const TimePoint start = Clock::now();
      Sleep(*pair_.client_fabric, {}, Deadline::After(std::chrono::seconds(20)));
      ASSERT_LT(SecondsSince(start), 19);
    }
    EXPECT_TRUE(Until([&] { return at_client_.sent.size() == kPosts; }, [&] { at_client_.PollOnce(*pair_.client); }));
  });
  EXPECT_TRUE(Until([&] { return at_server_.notifications.size() == kPosts; },
                    [&] {
                      if (at_server_.PollOnce(*pair_.server, 64) > 0) return;
                      const TimePoint start = Clock::now();
                      Sleep(*pair_.server_fabric, {}, Deadline::After(std::chrono::seconds(20)));
                      ASSERT_LT(SecondsSince(start), 19);
                    }));
  sender.join();
  for (uint32_t i = 0; i < kPosts; ++i) ASSERT_EQ(at_server_.notifications[i], i);
}

size_t NumOpenDescriptors() {
  const auto entries = std::filesystem::directory_iterator("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(entries), end(entries)));
}

TEST_P(FabricConformance, LeavesNoDescriptorsBehind) {
  const size_t before = NumOpenDescriptors();
  for (int round = 0; round < 3; ++round) {
    FabricPair pair(GetParam());
    pair.Connect(1000);
    ASSERT_TRUE(pair.client->Post({}, 1, 1).ok());
    EXPECT_GT(NumOpenDescriptors(), before);
  }
  EXPECT_EQ(NumOpenDescriptors(), before);
}

INSTANTIATE_TEST_SUITE_P(Fabrics, FabricConformance, testing::Values("loopback", "tcp", "shm", "faulty-loopback", "faulty-tcp"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase(name, '-');
                           return name;
                         });

TEST(OpenFabric, NamesTheKindsThereAre) {
  const Status status = OpenFabric("pigeon").status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("pigeon"));
  EXPECT_THAT(status.message(), HasSubstr("tcp, shm and loopback"));
}

}  // namespace
}  // namespace lamina
