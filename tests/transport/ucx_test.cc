// What UCX may be used for, and by whom.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

#include "tests/support/listening.h"
#include "transport/rdma_host.h"
#include "transport/transport.h"

namespace lamina {
namespace {

using ::testing::HasSubstr;

class Ucx : public ::testing::Test {
 protected:
#if !__has_include(<ucp/api/ucp.h>)
  void SetUp() override { GTEST_SKIP() << "this build has no UCX: libucx-dev is not installed"; }
#endif
};

TEST_F(Ucx, OpensNoPortsWhateverTheEnvironmentSaysAndNoMemoryToOthers) {
  setenv("UCX_TLS", "all", 1);
  setenv("UCX_NET_DEVICES", "all", 1);
  const Result<std::unique_ptr<Fabric>> fabric = OpenFabric("ucx");
  ASSERT_TRUE(fabric.ok()) << fabric.status();
  const Result<std::unique_ptr<Buffer>> buffer = (*fabric)->Allocate(size_t{1} << 20);
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  EXPECT_TRUE(testing::SocketsOf(getpid()).empty());
  EXPECT_TRUE(testing::SharedSystemVSegmentsOf(getpid()).empty());
  EXPECT_TRUE(testing::SharedMemoryFilesOf(getpid()).empty());
}

TEST_F(Ucx, DevicesThatAreNotThereAreAnErrorThatNamesTheVariable) {
  if (HasRdmaDevice()) GTEST_SKIP() << "this machine has an RDMA device";
  setenv(kUcxTrustedDevices, "mlx5_0:1", 1);
  const Status status = OpenFabric("ucx").status();
  unsetenv(kUcxTrustedDevices);
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr(kUcxTrustedDevices));
}

// The child gets the listener's address through a pipe, as UCX must be opened behind the fork.
TEST_F(Ucx, AProcessOfAnotherUserIsToldThatNothingJoinsThem) {
  if (getuid() != 0) GTEST_SKIP() << "only root can become another user";
  std::array<int, 2> ends;
  ASSERT_EQ(pipe(ends.data()), 0);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    std::array<char, 64> address{};
    if (setuid(65534) != 0 || read(ends[0], address.data(), address.size() - 1) <= 0) _exit(1);
    const auto fabric = OpenFabric("ucx");
    if (!fabric.ok()) _exit(2);
    const Status status =
        (*fabric)
            ->Connect(address.data(), {64, "stranger"}, Deadline::After(std::chrono::seconds(30)))
            .status();
    _exit(status.message().find(kUcxTrustedDevices) != std::string::npos ? 0 : 3);
  }
  const auto fabric = OpenFabric("ucx");
  ASSERT_TRUE(fabric.ok()) << fabric.status();
  const auto listener = (*fabric)->Listen("127.0.0.1:0");
  ASSERT_TRUE(listener.ok()) << listener.status();
  const std::string& address = (*listener)->address();
  ASSERT_EQ(write(ends[1], address.data(), address.size()), static_cast<ssize_t>(address.size()));
  int status = -1;
  while (waitpid(child, &status, WNOHANG) == 0) {
    EXPECT_FALSE((*listener)->Accept({64, "server"}).ok());
    Sleep(**fabric, {}, Deadline::After(milliseconds(10)));
  }
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace lamina
