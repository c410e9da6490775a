#include "transport/rdma_host.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <iostream>

namespace lamina {
namespace {

constexpr int kLocksNothing = 77;

TEST(RdmaHost, TheLimitOnLockedMemoryIsFoundAndNamed) {
  if (getuid() != 0) GTEST_SKIP() << "only root can become a user to whom the limit applies";
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit{64 << 10, 64 << 10};
    if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || setuid(65534) != 0) _exit(1);
    static char pages[256 << 10];
    if (mlock(pages, sizeof(pages)) == 0) _exit(kLocksNothing);
    if (!CheckCanLock(32 << 10).ok()) _exit(2);
    const Status status = CheckCanLock(1 << 20);
    std::cerr << status << "\n";
    const bool says_why = status.message().find("65536") != std::string::npos &&
                          status.message().find("ulimit -l") != std::string::npos;
    _exit(status.code() == StatusCode::kOutOfSpace && says_why ? 0 : 3);
  }
  int status = -1;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status)) << status;
  if (WEXITSTATUS(status) == kLocksNothing)
    GTEST_SKIP() << "mlock knows no limit here: that of a sanitizer does nothing";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace lamina
