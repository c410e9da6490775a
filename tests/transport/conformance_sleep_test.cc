// What transport.h promises, for every fabric: who sleeps is woken.
#include <gtest/gtest.h>
#include <poll.h>

#include <thread>

#include "tests/transport/conformance.h"
#include "transport/posix.h"

namespace lamina {
namespace {

TEST_P(FabricConformance, ArmSaysNoWhileThereIsSomething) {
  pair_.Connect(0);
  PostSoon({}, 1, 1);
  PostSoon({}, 2, 2);
  // Two kSent, which take a NIC some time.
  ASSERT_TRUE(Until([&] { return !pair_.client_fabric->Arm(); }, [] {}));
  ASSERT_TRUE(Until([&] { return !at_server_.notifications.empty(); },
                    [&] { at_server_.PollOnce(*pair_.server, 1); }));
  ASSERT_TRUE(Until([&] { return at_server_.notifications.size() == 2; },
                    [&] {
                      // Must return: the second is there or comes.
                      Sleep(*pair_.server_fabric, {}, Deadline::After(kPatience));
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

// A sender that sleeps when it is pushed back is woken when there is room, and a receiver when
// there is something.
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
    EXPECT_TRUE(Until([&] { return at_client_.sent.size() == kPosts; },
                      [&] { at_client_.PollOnce(*pair_.client); }));
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

bool IsReadable(int fd) { return WaitForFd(fd, POLLIN, Deadline::After(std::chrono::seconds(20))); }

TEST_P(FabricConformance, EventFdFollowsArm) {
  pair_.Connect(64);
  ASSERT_TRUE(Until([&] { return pair_.server_fabric->Arm(); }, [&] { PollBoth(); }));
  PostSoon({}, 1, 1);
  EXPECT_TRUE(IsReadable(pair_.server_fabric->event_fd()));
  ASSERT_TRUE(Until([&] { return at_server_.notifications.size() == 1; },
                    [&] { at_server_.PollOnce(*pair_.server); }));
  ASSERT_TRUE(Until([&] { return pair_.server_fabric->Arm(); },
                    [&] { at_server_.PollOnce(*pair_.server); }));
  pair_.client.reset();
  EXPECT_TRUE(IsReadable(pair_.server_fabric->event_fd()));
}

TEST_P(FabricConformance, RoomWakesASenderThatWasPushedBack) {
  constexpr size_t kBytes = size_t{256} << 10;
  pair_.Connect(kBytes);
  const WriteOp op{Source(Pattern(kBytes, 2)), 0};
  uint32_t posted = 0;
  const auto pushed_back = [&] {
    const Status status = pair_.client->Post({&op, 1}, posted, posted);
    if (status.ok()) ++posted;
    return status.code() == StatusCode::kTryAgain && at_client_.PollOnce(*pair_.client) == 0 &&
           pair_.client_fabric->Arm();
  };
  ASSERT_TRUE(Until(pushed_back, [] {}));
  ASSERT_TRUE(Until(
      [&] { return WaitForFd(pair_.client_fabric->event_fd(), POLLIN, Deadline(Clock::now())); },
      [&] { at_server_.PollOnce(*pair_.server); }));
  PostSoon({&op, 1}, posted, posted);
  ASSERT_TRUE(Until(
      [&] {
        return at_server_.notifications.size() == posted + 1 &&
               at_client_.sent.size() == posted + 1;
      },
      [&] { PollBoth(); }));
}

}  // namespace
}  // namespace lamina
