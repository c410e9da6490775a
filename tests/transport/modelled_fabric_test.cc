// A modelled link: when what it carries is seen.
#include "transport/modelled/modelled_fabric.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <limits>

#include "tests/transport/fabric_pair.h"

namespace lamina {
namespace {

TEST(IngressTimeline, TakesTheFirstGapThatIsLongEnough) {
  const TimePoint start = Clock::now();
  const auto at = [&](int us) { return start + microseconds(us); };
  IngressTimeline timeline;
  EXPECT_EQ(timeline.Book(at(100), microseconds(10)), at(110));
  EXPECT_EQ(timeline.Book(at(100), microseconds(10)), at(120)) << "one thing at a time";
  EXPECT_EQ(timeline.Book(at(50), microseconds(50)), at(100))
      << "learnt of late, but it fits before them";
  EXPECT_EQ(timeline.Book(at(140), microseconds(10)), at(150));
  EXPECT_EQ(timeline.Book(at(115), microseconds(30)), at(180))
      << "the gap from 120 to 140 is too short";
  EXPECT_EQ(timeline.Book(at(115), microseconds(20)), at(140));
  EXPECT_EQ(timeline.Book(at(105), Clock::duration::zero()), at(110))
      << "no bytes fit between two others";
  EXPECT_EQ(timeline.Book(at(200), microseconds(30), at(220)), at(220)) << "no later than this";
  EXPECT_EQ(timeline.Book(at(200), microseconds(10)), at(210)) << "that was not booked";
}

class ModelledLinkTest : public ::testing::Test {
 protected:
  static constexpr size_t kBytes = 1 << 20;
  static constexpr ModelledLink kLink{milliseconds(3), 1e8};  // 10.5 ms for kBytes

  ModelledLinkTest() {
    pair_.listener.reset();
    pair_.server_fabric = MakeModelledFabric(*OpenFabric("shm"), server_nic_);
    pair_.client_fabric = MakeModelledFabric(*OpenFabric("shm"), client_nic_);
    pair_.listener = *pair_.server_fabric->Listen(FreshAddress("shm"));
    source_ = *pair_.client_fabric->Allocate(kBytes);
  }

  // Until the server has seen `count` notifications; it sleeps meanwhile.
  void Await(size_t count) {
    Inbound inbound;
    const TimePoint start = Clock::now();
    while (inbound.notifications.size() < count && Clock::now() - start < kPatience) {
      inbound.PollOnce(*pair_.server);
      if (inbound.notifications.size() < count)
        Sleep(*pair_.server_fabric, {}, Deadline::After(kPatience));
      ++num_wakeups_;
    }
  }

  ModelledNic server_nic_{kLink, {}, {}}, client_nic_{kLink, {}, {}};
  FabricPair pair_{"shm"};
  std::unique_ptr<Buffer> source_;
  int num_wakeups_ = 0;
};

TEST_F(ModelledLinkTest, ANotificationTakesLatencyAndBytes) {
  pair_.Connect(kBytes);
  TimePoint start = Clock::now();
  ASSERT_TRUE(pair_.client->Post({}, 1, 1).ok());
  Await(1);
  EXPECT_GE(Clock::now() - start, milliseconds(3));
  const WriteOp op{source_->bytes().first(kBytes), 0};
  start = Clock::now();
  ASSERT_TRUE(pair_.client->Post({&op, 1}, 2, 2).ok());
  num_wakeups_ = 0;
  Await(1);
  EXPECT_GE(Clock::now() - start, milliseconds(13));
  EXPECT_LT(num_wakeups_, 2000) << "it slept, but for the last moments";
}

TEST_F(ModelledLinkTest, PostsFollowOneAnotherAndLatencyCountsOnce) {
  pair_.Connect(kBytes);
  const WriteOp half{source_->bytes().first(kBytes / 2), 0};
  const TimePoint start = Clock::now();
  ASSERT_TRUE(pair_.client->Post({&half, 1}, std::nullopt, 1).ok());
  ASSERT_TRUE(pair_.client->Post({&half, 1}, 1, 2).ok());
  ASSERT_TRUE(pair_.client->Post({}, 2, 3).ok());
  Await(2);
  EXPECT_GE(Clock::now() - start, milliseconds(13));
  // An idle link's bookings: what the time of the test machine does not blur.
  const auto sent = client_nic_.egress.Book(start, Clock::duration::zero()) - start;
  EXPECT_GE(sent, client_nic_.CostOf(kBytes));
}

// The peer writes its stamps itself: this one is the inner fabric's own.
TEST_F(ModelledLinkTest, AStampHoldsANotificationBackForSomeSecondsAtMost) {
  constexpr size_t kStampBytes = 128, kAllStampBytes = 1024 * kStampBytes;
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  pair_.client_fabric = *OpenFabric("shm");
  pair_.Connect(pair_.server, pair_.client, {kBytes, ""}, {kAllStampBytes, ""});
  const auto post = [&](uint32_t number, int64_t departure_ns, uint64_t bytes) {
    const std::array<uint64_t, 3> stamp = {1, static_cast<uint64_t>(departure_ns), bytes};
    const WriteOp op{std::as_bytes(std::span(stamp)), number * kStampBytes};
    ASSERT_TRUE(pair_.client->Post({&op, 1}, number, number).ok());
  };
  const TimePoint start = Clock::now();
  post(0, std::numeric_limits<int64_t>::min(), 0);
  Await(1);
  post(1, kMost, ~uint64_t{0});
  post(2, kMost, ~uint64_t{0});
  post(3, 0, ~uint64_t{0});
  Inbound inbound;
  EXPECT_TRUE(Until([&] { return inbound.notifications.size() == 3; },
                    [&] { inbound.PollOnce(*pair_.server); }));
  EXPECT_GE(Clock::now() - start, std::chrono::seconds(9)) << "they were held back";
}

TEST_F(ModelledLinkTest, APeerThatDoesNotModelTheNetworkIsDropped) {
  pair_.client_fabric = *OpenFabric("shm");
  std::unique_ptr<Endpoint> client;
  std::atomic<bool> connected{false};
  std::thread connecting([&] {
    auto made =
        pair_.client_fabric->Connect(pair_.listener->address(), {}, Deadline::After(kPatience));
    if (made.ok()) client = std::move(*made);
    connected = true;
  });
  Inbound inbound;  // of the client
  EXPECT_TRUE(
      Until([&] { return connected.load(); },
            [&] { EXPECT_EQ(pair_.listener->Accept({}).status().code(), StatusCode::kTryAgain); }));
  connecting.join();
  if (client == nullptr) return;  // dropped before it knew of the connection
  EXPECT_TRUE(Until([&] { return inbound.num_lost > 0; },
                    [&] {
                      EXPECT_EQ(pair_.listener->Accept({}).status().code(), StatusCode::kTryAgain);
                      inbound.PollOnce(*client);
                    }));
}

}  // namespace
}  // namespace lamina
