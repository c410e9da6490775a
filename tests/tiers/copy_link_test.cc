// Links in modelled time, and the one that processes share.
#include "tiers/copy_link.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

namespace lamina {
namespace {

using ::testing::HasSubstr;

// A bus that goes with the test.
class SharedBusTest : public ::testing::Test {
 protected:
  ~SharedBusTest() override { shm_unlink(file_.c_str()); }

  const std::string name_ = "test-" + std::to_string(getpid());
  const std::string file_ = "/lamina-bus-" + std::to_string(geteuid()) + "-" + name_;
};

TEST(OwnLink, CopiesFollowEachOther) {
  OwnLink link;
  const TimePoint start{std::chrono::seconds(100)};
  EXPECT_EQ(link.Book(start, milliseconds(30)), start + milliseconds(30));
  EXPECT_EQ(link.Book(start + milliseconds(10), milliseconds(30)), start + milliseconds(60));
  EXPECT_EQ(link.Book(start + milliseconds(90), milliseconds(5)), start + milliseconds(95));
}

TEST_F(SharedBusTest, WhoOpensTheSameNameHasTheSameBus) {
  const auto first = SharedBus::Open(name_), second = SharedBus::Open(name_);
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_TRUE(second.ok()) << second.status();
  const TimePoint start = Clock::now();
  EXPECT_EQ((*first)->Book(start, milliseconds(30)), start + milliseconds(30));
  EXPECT_EQ((*second)->Book(start, milliseconds(20)), start + milliseconds(50));
  EXPECT_EQ((*first)->Book(start, milliseconds(-1)), start + milliseconds(50));
}

TEST_F(SharedBusTest, NoBookingOfSeveralProcessesIsLost) {
  constexpr int kProcesses = 4, kBookings = 20000;
  const auto bus = SharedBus::Open(name_);
  ASSERT_TRUE(bus.ok()) << bus.status();
  const TimePoint start = Clock::now() + std::chrono::hours(1);
  for (int i = 0; i < kProcesses; ++i) {
    if (fork() != 0) continue;
    const auto own = SharedBus::Open(name_);
    for (int k = 0; own.ok() && k < kBookings; ++k) (*own)->Book(start, microseconds(1));
    _exit(own.ok() ? 0 : 1);
  }
  for (int i = 0; i < kProcesses; ++i) {
    int status = -1;
    wait(&status);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ((*bus)->Book(start, {}), start + microseconds(kProcesses * kBookings));
}

TEST_F(SharedBusTest, GoesWithItsLastUser) {
  const std::string path = "/dev/shm" + file_;
  auto first = SharedBus::Open(name_), second = SharedBus::Open(name_);
  ASSERT_TRUE(first.ok() && second.ok());
  first->reset();
  EXPECT_EQ(access(path.c_str(), F_OK), 0);
  second->reset();
  EXPECT_NE(access(path.c_str(), F_OK), 0);
  EXPECT_TRUE(SharedBus::Open(name_).ok());
}

TEST_F(SharedBusTest, RefusesNamesThatCouldLeadElsewhere) {
  for (const std::string& name :
       {std::string(), std::string("../x"), std::string("a/b"), std::string(64, 'a')})
    EXPECT_EQ(SharedBus::Open(name).status().code(), StatusCode::kInvalidArgument) << name;
}

TEST_F(SharedBusTest, RefusesALinkThatSomebodyPutThere) {
  ASSERT_EQ(symlink("/etc/passwd", ("/dev/shm" + file_).c_str()), 0);
  const Status refused = SharedBus::Open(name_).status();
  EXPECT_EQ(refused.code(), StatusCode::kInternal);
  EXPECT_THAT(refused.message(), HasSubstr("cannot use the bus /dev/shm/lamina-bus-"));
}

}  // namespace
}  // namespace lamina
