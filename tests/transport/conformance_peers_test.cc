// What transport.h promises, for every fabric: connecting, many peers, and peers that go at any
// moment.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/transport/conformance.h"

namespace lamina {
namespace {

using ::testing::HasSubstr;

TEST_P(FabricConformance, ManyEndpointsOnAFabric) {
  constexpr size_t kPeers = 20;
  std::vector<std::unique_ptr<Endpoint>> servers(kPeers), clients(kPeers);
  for (size_t i = 0; i < kPeers; ++i)
    pair_.Connect(servers[i], clients[i], {64, ""}, {64, std::to_string(i)});
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
    ASSERT_TRUE(Until([&] { return inbound[i].notifications.size() == 10; },
                      [&] { inbound[i].PollOnce(*servers[i]); }));
    EXPECT_EQ(
        std::memcmp(servers[i]->window().data(), Pattern(64, static_cast<uint32_t>(i)).data(), 64),
        0);
  }
  clients[3].reset();  // the others live on
  ASSERT_TRUE(
      Until([&] { return inbound[3].num_lost == 1; }, [&] { inbound[3].PollOnce(*servers[3]); }));
  ASSERT_TRUE(clients[4]->Post({}, 99, 99).ok());
  ASSERT_TRUE(Until([&] { return inbound[4].notifications.size() == 11; },
                    [&] { inbound[4].PollOnce(*servers[4]); }));
}

TEST_P(FabricConformance, WhoMayNotJoinIsToldNothing) {
  const EndpointOptions options{64, "server",
                                [](const std::string& hello) { return hello == "client"; }};
  Status refused;
  std::atomic<bool> done{false};
  std::thread knocking([&] {
    refused = pair_.client_fabric
                  ->Connect(pair_.listener->address(), {64, "stranger"}, Deadline::After(kPatience))
                  .status();
    done = true;
  });
  EXPECT_TRUE(Until([&] { return done.load(); },
                    [&] {
                      EXPECT_EQ(pair_.listener->Accept(options).status().code(),
                                StatusCode::kTryAgain);
                      Sleep(*pair_.server_fabric, {}, Deadline::After(milliseconds(5)));
                    }));
  knocking.join();
  EXPECT_EQ(refused.code(), StatusCode::kPeerLost) << refused;
  pair_.Connect(pair_.server, pair_.client, options, {64, "client"});
  ASSERT_TRUE(pair_.server && pair_.client);
  EXPECT_EQ(pair_.server->peer_hello(), "client");
}

TEST_P(FabricConformance, PeerGoneWhileIdle) {
  pair_.Connect(64);
  pair_.client.reset();
  ASSERT_TRUE(Until([&] { return at_server_.num_lost > 0; },
                    [&] {
                      // Wakes for a death too.
                      Sleep(*pair_.server_fabric, {}, Deadline::After(kPatience));
                      at_server_.PollOnce(*pair_.server);
                    }));
  for (int i = 0; i < 10; ++i) at_server_.PollOnce(*pair_.server);
  EXPECT_EQ(at_server_.num_events(), 1u);
  EXPECT_FALSE(pair_.server->last_error().empty());
  EXPECT_EQ(pair_.server->Post({}, 1, 1).code(), StatusCode::kPeerLost);
  EXPECT_EQ(at_server_.PollOnce(*pair_.server), 0u);
  const TimePoint start = Clock::now();
  // A dead peer does not keep its fabric awake.
  Sleep(*pair_.server_fabric, {}, Deadline::After(milliseconds(30)));
  EXPECT_GE(SecondsSince(start), 0.029);
}

TEST_P(FabricConformance, PeerGoneIsNoticedByPollingAlone) {
  pair_.Connect(64);
  pair_.client.reset();
  ASSERT_TRUE(
      Until([&] { return at_server_.num_lost > 0; }, [&] { at_server_.PollOnce(*pair_.server); }));
}

TEST_P(FabricConformance, WhatAPeerPostedBeforeItsEndArrives) {
  pair_.Connect(64);
  const auto data = Pattern(64, 8);
  const WriteOp op{Source(data), 0};
  for (uint32_t i = 0; i < 40; ++i) PostSoon({&op, 1}, i, i);
  ASSERT_TRUE(Until([&] { return at_client_.sent.size() == 40; },
                    [&] { at_client_.PollOnce(*pair_.client); }));
  pair_.client.reset();
  ASSERT_TRUE(Until([&] { return at_server_.num_lost > 0; },
                    [&] { at_server_.PollOnce(*pair_.server, 7); }));
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
  ASSERT_TRUE(Until([&] { return at_client_.num_lost > 0; },
                    [&] { at_client_.PollOnce(*pair_.client, 5); }));
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
  ASSERT_TRUE(
      Until([&] { return at_server_.num_lost > 0; }, [&] { at_server_.PollOnce(*pair_.server); }));
}

TEST_P(FabricConformance, ReconnectsAfterALoss) {
  for (int round = 0; round < 5; ++round) {
    pair_.Connect(64);
    Inbound inbound;
    ASSERT_TRUE(pair_.client->Post({}, 5, 5).ok());
    ASSERT_TRUE(Until([&] { return inbound.notifications.size() == 1; },
                      [&] { inbound.PollOnce(*pair_.server); }));
    if (round % 2 == 0) {
      pair_.client.reset();
      ASSERT_TRUE(
          Until([&] { return inbound.num_lost == 1; }, [&] { inbound.PollOnce(*pair_.server); }));
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
  EXPECT_TRUE(status.code() == StatusCode::kPeerLost || status.code() == StatusCode::kTimeout)
      << status;
  EXPECT_THAT(status.message(), HasSubstr(address));
}

TEST_P(FabricConformance, ConnectorGivesUpBeforeItIsAccepted) {
  const Status status =
      pair_.client_fabric
          ->Connect(pair_.listener->address(), {0, "early"}, Deadline::After(milliseconds(50)))
          .status();
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
  const Status status =
      pair_.client_fabric->Connect(address, {}, Deadline::After(milliseconds(50))).status();
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

}  // namespace
}  // namespace lamina
