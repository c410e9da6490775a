// --cpus of the daemons: which cores their threads may run on, as the kernel tells it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include "base/clock.h"
#include "manager/process.h"
#include "tests/support/paths.h"
#include "transport/posix.h"

namespace lamina {
namespace {

using ::testing::IsSupersetOf;

constexpr auto kPatience = std::chrono::seconds(20);

// Of each thread, as "0-1" or "0,2".
std::vector<std::string> CoresOfThreads(const std::string& process) {
  std::vector<std::string> cores;
  std::error_code gone;
  for (const auto& thread :
       std::filesystem::directory_iterator("/proc/" + process + "/task", gone)) {
    std::ifstream status(thread.path() / "status");
    constexpr std::string_view kKey = "Cpus_allowed_list:\t";
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with(kKey)) cores.push_back(line.substr(kKey.size()));
    }
  }
  return cores;
}

// Two threads of the kernels, and one that listens.
TEST(Cpus, EachThreadOfTheKernelsGetsOneAndTheOthersAny) {
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
  std::vector<int> cores;
  for (int i = 0; i < CPU_SETSIZE && cores.size() < 2; ++i) {
    if (CPU_ISSET(i, &allowed)) cores.push_back(i);
  }
  if (cores.size() < 2) GTEST_SKIP() << "one core is all that there is";
  const std::string first = std::to_string(cores[0]), second = std::to_string(cores[1]);
  for (const char* program : {"lamina-memory-node", "lamina-compute-node"}) {
    std::vector<std::string> argv = {BinPath("/") + program, "--cpus", second + "," + first};
    if (std::string(program) == "lamina-memory-node")
      argv.insert(argv.end(), {"--memory", "16MiB"});
    Result<ChildProcess> node =
        ChildProcess::Spawn({.argv = argv, .env = {}, .log_path = "/dev/null"});
    ASSERT_TRUE(node.ok()) << node.status();
    const std::vector<std::string> expected = {
        first, second, first + (cores[1] == cores[0] + 1 ? "-" : ",") + second};
    std::vector<std::string> found;
    for (const Deadline deadline = Deadline::After(kPatience); !deadline.Passed();
         PauseBeforeRetry(deadline)) {
      found = CoresOfThreads(std::to_string(node->pid()));
      if (::testing::Matches(IsSupersetOf(expected))(found)) break;
    }
    EXPECT_THAT(found, IsSupersetOf(expected)) << program;
  }
}

}  // namespace
}  // namespace lamina
