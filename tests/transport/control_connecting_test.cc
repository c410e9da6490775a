#include "transport/control_connecting.h"

#include <gtest/gtest.h>

#include <future>

#include "tests/support/free_port.h"

namespace lamina::testing {
namespace {

using std::chrono::seconds;

TEST(ControlConnecting, SaysWhenThereIsAConnection) {
  const auto listener = ControlListener::Create("127.0.0.1:0", {.hello = "a listener"},
                                                [](std::unique_ptr<ControlConnection>) {});
  ASSERT_TRUE(listener.ok()) << listener.status();
  std::promise<void> changed;
  const std::unique_ptr<ControlConnecting> connecting =
      StartConnectControl((*listener)->address(), {.hello = "a test"}, Clock::now() + seconds(30),
                          [&] { changed.set_value(); });
  ASSERT_EQ(changed.get_future().wait_for(seconds(20)), std::future_status::ready);
  const auto outcome = connecting->Poll();
  ASSERT_TRUE(outcome.has_value());
  ASSERT_TRUE(outcome->ok()) << outcome->status();
  EXPECT_EQ((**outcome)->peer_hello(), "a listener");
}

TEST(ControlConnecting, SaysWhenThereIsNoneAtTheEnd) {
  std::promise<void> changed;
  const std::unique_ptr<ControlConnecting> connecting =
      StartConnectControl("127.0.0.1:" + std::to_string(FreePort()), {.hello = "a test"},
                          Clock::now() + milliseconds(50), [&] { changed.set_value(); });
  ASSERT_EQ(changed.get_future().wait_for(seconds(20)), std::future_status::ready);
  const auto outcome = connecting->Poll();
  ASSERT_TRUE(outcome.has_value());
  EXPECT_EQ(outcome->status().code(), StatusCode::kTimeout);
}

TEST(ControlConnecting, OneThatIsDestroyedGivesUpSoon) {
  std::unique_ptr<ControlConnecting> connecting =
      StartConnectControl("127.0.0.1:" + std::to_string(FreePort()), {.hello = "a test"},
                          Clock::now() + std::chrono::hours(1), [] {});
  EXPECT_FALSE(connecting->Poll().has_value());
  const TimePoint begin = Clock::now();
  connecting.reset();
  EXPECT_LT(Clock::now() - begin, seconds(20));
}

}  // namespace
}  // namespace lamina::testing
