// What UCX may be used for, and by whom.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "tests/support/listening.h"
#include "tests/transport/child.h"
#include "tests/transport/fabric_pair.h"
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
  FabricPair pair("ucx");
  pair.Connect(64);
  pair.listener.reset();  // the rendezvous, which does listen
  const Result<std::unique_ptr<Buffer>> buffer = pair.server_fabric->Allocate(size_t{1} << 20);
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

#ifdef __x86_64__

// Where the code of UCX's transports lies in process `pid`, which is one that this one forked.
std::vector<std::pair<uint64_t, uint64_t>> CodeOfTransports(pid_t pid) {
  std::vector<std::pair<uint64_t, uint64_t>> ranges;
  std::ifstream maps("/proc/" + std::to_string(pid) + "/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("libuct.so") == std::string::npos || line.find(" r-xp ") == std::string::npos)
      continue;
    std::istringstream text(line);
    uint64_t begin = 0, end = 0;
    char dash = 0;
    text >> std::hex >> begin >> dash >> end;
    ranges.emplace_back(begin, end);
  }
  return ranges;
}

// Lets the stopped process go on until it has taken a place in the queue of its peer, which is the
// one compare-and-swap in UCX's transport for shared memory (lock cmpxchg of 64 bits), and no
// further: the place is empty. False if it ends or does not get there.
bool StepUntilAPlaceIsTaken(pid_t pid) {
  const auto code = CodeOfTransports(pid);
  const Deadline deadline = Deadline::After(kPatience);
  for (bool found = false; !deadline.Passed();) {
    int status = 0;
    if (ptrace(PTRACE_SINGLESTEP, pid, nullptr, nullptr) != 0 || waitpid(pid, &status, 0) != pid ||
        !WIFSTOPPED(status))
      return false;
    if (found) return true;
    user_regs_struct registers{};
    if (ptrace(PTRACE_GETREGS, pid, nullptr, &registers) != 0) return false;
    if (std::ranges::none_of(code, [&](const auto& range) {
          return registers.rip >= range.first && registers.rip < range.second;
        }))
      continue;
    const auto instruction =
        static_cast<uint64_t>(ptrace(PTRACE_PEEKTEXT, pid, registers.rip, nullptr));
    found = (instruction & 0xfffffeff) == 0xb10f48f0;  // f0 48|49 0f b1
  }
  return false;
}

TEST_F(Ucx, APeerKilledInTheMiddleOfAMessageHoldsUpNobodyElse) {
  constexpr int kCannotBeTraced = 77;
  const bool was_set = getenv("LAMINA_UCX_PATH") != nullptr;
  setenv("LAMINA_UCX_PATH", "puts", 1);  // notifications go in messages
  Child victim([](const std::string& address) {
    const auto fabric = OpenTestFabric("ucx");
    const auto made = fabric->Connect(address, {64, "victim"}, Deadline::After(kPatience));
    if (!made.ok()) return false;
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(kCannotBeTraced);
    raise(SIGSTOP);
    return (*made)->Post({}, 1, 0).ok() && WaitToBeKilled();
  });
  Child other([](const std::string& address) {
    const auto fabric = OpenTestFabric("ucx");
    const auto made = fabric->Connect(address, {64, "other"}, Deadline::After(kPatience));
    return made.ok() && (*made)->Post({}, 2, 0).ok() && WaitToBeKilled();
  });
  const auto fabric = OpenTestFabric("ucx");
  const auto listener = std::move(fabric->Listen("127.0.0.1:0")).value();
  victim.Start(listener->address());
  const auto lost = AcceptOne(*fabric, *listener, {64, "server"});
  ASSERT_TRUE(lost != nullptr);
  int status = 0;
  ASSERT_EQ(waitpid(victim.pid(), &status, 0), victim.pid());
  if (WIFEXITED(status) && WEXITSTATUS(status) == kCannotBeTraced)
    GTEST_SKIP() << "no process may be traced here";
  ASSERT_TRUE(WIFSTOPPED(status)) << status;
  ASSERT_TRUE(StepUntilAPlaceIsTaken(victim.pid()));
  victim.Kill();

  other.Start(listener->address());
  const auto whole = AcceptOne(*fabric, *listener, {64, "server"});
  ASSERT_TRUE(whole != nullptr);
  Inbound from_victim, from_other;
  EXPECT_TRUE(Until([&] { return from_victim.num_lost == 1 && !from_other.notifications.empty(); },
                    [&] {
                      from_victim.PollOnce(*lost);
                      from_other.PollOnce(*whole);
                    }));
  EXPECT_THAT(from_victim.notifications, ::testing::IsEmpty());
  EXPECT_THAT(from_other.notifications, ::testing::ElementsAre(2));
  if (!was_set) unsetenv("LAMINA_UCX_PATH");
}
#endif

}  // namespace
}  // namespace lamina
