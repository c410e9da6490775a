// A modelled link: when what it carries is seen.
#include "transport/modelled/modelled_fabric.h"

#include <gtest/gtest.h>

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
}

class ModelledLinkTest : public testing::Test {
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

TEST_F(ModelledLinkTest, APeerThatDoesNotModelTheNetworkIsRefused) {
  pair_.client_fabric = *OpenFabric("shm");
  std::unique_ptr<Endpoint> client;
  std::thread connecting([&] {
    auto made =
        pair_.client_fabric->Connect(pair_.listener->address(), {}, Deadline::After(kPatience));
    if (made.ok()) client = std::move(*made);
  });
  Result<std::unique_ptr<Endpoint>> accepted = TryAgain();
  const Deadline deadline = Deadline::After(kPatience);
  while (accepted.status().code() == StatusCode::kTryAgain && !deadline.Passed())
    accepted = pair_.listener->Accept({});
  EXPECT_EQ(accepted.status().code(), StatusCode::kPeerLost);
  connecting.join();
}

}  // namespace
}  // namespace lamina
