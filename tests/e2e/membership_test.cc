// Who may join a cluster: real daemons with the same secret, with different ones, and with none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>
#include <functional>

#include "tests/support/free_port.h"
#include "tests/support/paths.h"
#include "tests/support/server_process.h"
#include "tests/support/serving.h"
#include "tests/support/temporary_folder.h"

namespace lamina::testing {
namespace {

using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Membership : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("XDG_STATE_HOME", (folder_ / "state").c_str(), 1);
    for (int& port : ports_) port = FreePort();
    std::ofstream(config()) << "version: 1\n"
                            << "cluster: {name: members, http_port: " << ports_[0]
                            << ", secret_file: secret}\n"
                            << "nodes:\n"
                            << "  - {name: c0, role: compute, host: 127.0.0.1, port: " << ports_[1]
                            << "}\n"
                            << "  - {name: m0, role: memory, host: 127.0.0.1, port: " << ports_[2]
                            << ", memory: 16MiB, threads: 1}\n"
                            << "model: {path: " << SourcePath("/models/tiny-stories") << "}\n"
                            << "limits: {start_timeout: 20s}\n";
    WriteSecret("secret", "the secret of this cluster\n");
  }
  void TearDown() override { RunLamina({"cluster", "down", config()}); }

  std::string config() const { return folder_ / "cluster.yaml"; }
  std::string WriteSecret(const std::string& name, const std::string& text,
                          mode_t mode = 0600) const {
    std::ofstream(folder_ / name) << text;
    EXPECT_EQ(chmod((folder_ / name).c_str(), mode), 0);
    return folder_ / name;
  }

  // A daemon as somebody else starts it.
  ChildProcess Start(const std::string& program, const std::string& name, int port,
                     const std::vector<std::string>& arguments) const {
    ChildProcess::Options options;
    options.argv = {BinPath("/") + program, "--name", name, "--listen",
                    "127.0.0.1:" + std::to_string(port)};
    options.argv.insert(options.argv.end(), arguments.begin(), arguments.end());
    options.log_path = folder_ / (name + ".log");
    return std::move(*ChildProcess::Spawn(options));
  }
  ChildProcess StartMemoryNode(std::vector<std::string> arguments) const {
    arguments.insert(arguments.end(), {"--memory", "16MiB", "--threads", "1"});
    return Start("lamina-memory-node", "m0", ports_[2], arguments);
  }
  std::string log() const { return folder_ / "m0.log"; }

  const TemporaryFolder folder_;
  int ports_[3] = {};  // HTTP, c0, m0
};

TEST_F(Membership, AClusterWithASecretServes) {
  const CommandOutput dry_run = RunLamina({"cluster", "up", config(), "--dry-run"});
  EXPECT_THAT(dry_run.out, HasSubstr("--secret-file " + folder_ / "secret"));
  const CommandOutput up = RunLamina({"cluster", "up", config()});
  ASSERT_EQ(up.exit_status, 0) << up.out << up.err;
  const CommandOutput answer =
      RunLamina({"complete", "Once upon a time", "--max-tokens", "8", "--temperature", "0", "--url",
                 "http://127.0.0.1:" + std::to_string(ports_[0])});
  EXPECT_THAT(answer.out, HasSubstr(", in a ")) << answer.err;
}

TEST_F(Membership, ANodeWithAnotherSecretOrNoneIsNotServedWith) {
  const std::string other = WriteSecret("other", "the secret of another cluster\n");
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--secret-file", other},
       "has another cluster secret; copy the same secret file to every node"},
      {{}, "the peer was given no cluster secret"}};
  for (const auto& [arguments, reason] : cases) {
    ChildProcess compute =
        Start("lamina-compute-node", "c0", ports_[1], {"--secret-file", folder_ / "secret"});
    ChildProcess memory = StartMemoryNode(arguments);
    const CommandOutput served = RunLamina({"serve", "--cluster", config()});
    EXPECT_EQ(served.exit_status, 1) << served.out;
    EXPECT_THAT(served.err,
                AllOf(HasSubstr("memory node m0: 127.0.0.1:" + std::to_string(ports_[2])),
                      HasSubstr(reason)));
    EXPECT_TRUE(memory.running()) << "a stranger does it no harm";
    memory.Stop(Deadline::After(seconds(10)));
    compute.Stop(Deadline::After(seconds(10)));
  }
  EXPECT_THAT(TailOfFile(log(), 50), HasSubstr("the peer's proof is wrong"));
}

TEST_F(Membership, ASecretThatOthersCanReadStartsNothing) {
  WriteSecret("secret", "the secret of this cluster\n", 0644);
  const CommandOutput up = RunLamina({"cluster", "up", config()});
  EXPECT_EQ(up.exit_status, 1);
  EXPECT_THAT(
      up.err,
      HasSubstr(
          "secret has mode 644, so others than its owner have rights to it; use `chmod 600 "));
  EXPECT_THAT(up.out, Not(HasSubstr("started")));
}

TEST_F(Membership, OffTheLoopbackADaemonWithoutASecretRefusesToStart) {
  for (const std::vector<std::string>& argv :
       {std::vector<std::string>{BinPath("/lamina-memory-node"), "--listen", "0.0.0.0:0",
                                 "--memory", "16MiB"},
        std::vector<std::string>{BinPath("/lamina-compute-node"), "--listen", "0.0.0.0:0"}}) {
    const Result<CommandOutput> output = RunCommand(argv, Deadline::After(seconds(20)));
    ASSERT_TRUE(output.ok()) << output.status();
    EXPECT_EQ(output->exit_status, 1);
    EXPECT_THAT(output->err + output->out, AllOf(HasSubstr("refusing to listen on 0.0.0.0:"),
                                                 HasSubstr("openssl rand -hex 32 > FILE")));
  }
}

}  // namespace
}  // namespace lamina::testing
