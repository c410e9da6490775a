#include "base/descriptors.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <vector>

#include "base/inbox.h"

namespace lamina {
namespace {

// Lowers the soft limit for one test, and opens files up to a number below it.
class FewDescriptors : public ::testing::Test {
 protected:
  static constexpr int kLimit = 64;

  void SetUp() override {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit low = before_;
    low.rlim_cur = kLimit;
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  }
  void TearDown() override {
    for (const int fd : opened_) close(fd);
    setrlimit(RLIMIT_NOFILE, &before_);
  }

  void OpenUpTo(int last) {
    for (int fd = 0; fd >= 0 && fd < last;) {
      fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
      if (fd >= 0) opened_.push_back(fd);
    }
  }

  rlimit before_{};
  std::vector<int> opened_;
};

TEST_F(FewDescriptors, AQuarterIsTheReserve) {
  EXPECT_EQ(DescriptorLimit(), 64u);
  EXPECT_FALSE(DescriptorsAreScarce());
  OpenUpTo(46);
  EXPECT_FALSE(DescriptorsAreScarce());
  OpenUpTo(47);
  EXPECT_TRUE(DescriptorsAreScarce());
}

TEST_F(FewDescriptors, WhatDoesNotFitIsAStatusThatSaysWhatToDo) {
  EXPECT_TRUE(CheckDescriptorsLeft(10).ok());
  OpenUpTo(kLimit - 1);
  EXPECT_TRUE(DescriptorsAreScarce());
  const std::vector<Status> refused = {CheckDescriptorsLeft(1), WakeFd::Create().status(),
                                       Inbox<int>::Create().status()};
  // UBSan needs some to look at what matchers point to.
  for (; !opened_.empty(); opened_.pop_back()) close(opened_.back());
  for (const Status& status : refused) {
    EXPECT_EQ(status.code(), StatusCode::kOutOfSpace);
    EXPECT_THAT(status.message(),
                ::testing::HasSubstr("64 files open, raise the limit (ulimit -n)"));
  }
}

TEST_F(FewDescriptors, RaisingGoesUpToTheHardLimit) {
  RaiseDescriptorLimit();
  EXPECT_EQ(DescriptorLimit(), before_.rlim_max);
}

}  // namespace
}  // namespace lamina
