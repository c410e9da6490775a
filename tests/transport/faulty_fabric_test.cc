// The faults that tests inject are the ones they asked for.
#include "tests/support/faulty_fabric.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>

#include "tests/transport/fabric_pair.h"

namespace lamina {
namespace {

using ::testing::ElementsAre;

class FaultyFabricTest : public ::testing::Test {
 protected:
  void Open(const FaultPlan& plan, uint64_t window_bytes = 1000) {
    pair_.Connect(window_bytes);
    faulty().set_plan(plan);
    data_ = Pattern(window_bytes, 1);
  }

  FaultyFabric& faulty() { return static_cast<FaultyFabric&>(*pair_.client_fabric); }

  void Post(uint32_t value) {
    const WriteOp op{data_, 0};
    ASSERT_TRUE(pair_.client->Post({&op, 1}, value, value).ok());
  }

  void PollAll() {
    for (int i = 0; i < 50; ++i) {
      at_server_.PollOnce(*pair_.server);
      at_client_.PollOnce(*pair_.client);
    }
  }

  FabricPair pair_{"faulty-loopback"};
  std::vector<std::byte> data_;
  Inbound at_server_, at_client_;
};

TEST_F(FaultyFabricTest, DropsNotificationsOnly) {
  Open({.drop_notification = 1});
  Post(1);
  PollAll();
  EXPECT_TRUE(at_server_.notifications.empty());
  EXPECT_THAT(at_client_.sent, ElementsAre(1u));
  EXPECT_EQ(std::memcmp(pair_.server->window().data(), data_.data(), data_.size()), 0);
  EXPECT_EQ(faulty().counts().dropped, 1u);
}

TEST_F(FaultyFabricTest, DuplicatesNotifications) {
  Open({.duplicate_notification = 1});
  Post(1);
  Post(2);
  PollAll();
  EXPECT_THAT(at_server_.notifications, ElementsAre(1u, 1u, 2u, 2u));
  EXPECT_THAT(at_client_.sent, ElementsAre(1u, 2u));
  EXPECT_EQ(faulty().counts().duplicated, 2u);
}

TEST_F(FaultyFabricTest, CorruptsOneBitAndLeavesTheSourceAlone) {
  Open({.corrupt_payload = 1});
  Post(1);
  PollAll();
  ASSERT_THAT(at_server_.notifications, ElementsAre(1u));
  int wrong_bits = 0;
  for (size_t i = 0; i < data_.size(); ++i) {
    wrong_bits += std::popcount(std::to_integer<unsigned>(pair_.server->window()[i] ^ data_[i]));
  }
  EXPECT_EQ(wrong_bits, 1);
  EXPECT_EQ(data_, Pattern(data_.size(), 1));
  EXPECT_EQ(faulty().counts().corrupted, 1u);
}

TEST_F(FaultyFabricTest, DelaysAndKeepsTheOrder) {
  Open({.delay = 1, .delay_polls = 10});
  Post(1);
  faulty().set_plan({});
  Post(2);
  EXPECT_FALSE(faulty().Arm());  // whoever sleeps now would wait for ever
  for (int i = 0; i < 9; ++i) {
    at_client_.PollOnce(*pair_.client);
    at_server_.PollOnce(*pair_.server);
    EXPECT_EQ(at_server_.num_events(), 0u);
  }
  PollAll();
  EXPECT_THAT(at_server_.notifications, ElementsAre(1u, 2u));
  EXPECT_THAT(at_client_.sent, ElementsAre(1u, 2u));
  EXPECT_EQ(faulty().counts().delayed, 1u);
}

TEST_F(FaultyFabricTest, DisconnectsAfterSomePosts) {
  Open({.delay = 1, .disconnect_after_posts = 3});
  for (uint32_t i = 0; i < 3; ++i) Post(i);
  EXPECT_EQ(pair_.client->Post({}, 9, 9).code(), StatusCode::kPeerLost);
  PollAll();
  EXPECT_THAT(at_client_.sent_lost, ElementsAre(0u, 1u, 2u));
  EXPECT_EQ(at_client_.num_lost, 1);
  EXPECT_FALSE(at_client_.after_lost);
  EXPECT_THAT(pair_.client->last_error(), ::testing::HasSubstr("fault plan"));
  EXPECT_EQ(at_server_.num_events(), 0u);
  pair_.client.reset();
  ASSERT_TRUE(
      Until([&] { return at_server_.num_lost > 0; }, [&] { at_server_.PollOnce(*pair_.server); }));
}

TEST_F(FaultyFabricTest, SameSeedSameFaults) {
  std::vector<std::vector<uint32_t>> runs;
  for (int run = 0; run < 2; ++run) {
    FabricPair pair("loopback");
    FaultyFabric fabric(std::move(pair.client_fabric),
                        {.seed = 42, .drop_notification = 0.5, .duplicate_notification = 0.2});
    std::unique_ptr<Endpoint> client;
    std::thread connecting([&] {
      client = std::move(fabric.Connect(pair.listener->address(), {}, Deadline::After(kPatience)))
                   .value();
    });
    pair.server = AcceptOne(*pair.server_fabric, *pair.listener, {});
    connecting.join();
    Inbound inbound, ignored;
    for (uint32_t i = 0; i < 100; ++i) {
      ASSERT_TRUE(client->Post({}, i, i).ok());
      ignored.PollOnce(*client);
      inbound.PollOnce(*pair.server);
    }
    EXPECT_EQ(inbound.notifications.size(),
              100 - fabric.counts().dropped + fabric.counts().duplicated);
    EXPECT_GT(fabric.counts().dropped, 20u);
    runs.push_back(inbound.notifications);
    client.reset();
  }
  EXPECT_EQ(runs[0], runs[1]);
}

}  // namespace
}  // namespace lamina
