// A cluster with TLS: real daemons, with the certificates that docs/tls.md says how to make, and
// with others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/support/certificates.h"
#include "tests/support/free_port.h"
#include "tests/support/paths.h"
#include "tests/support/server_process.h"
#include "tests/support/temporary_folder.h"

namespace lamina::testing {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kNodeTls[] = "{certificate: node.pem, key: node.key, ca: ca.pem}";

class Tls : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("XDG_STATE_HOME", (folder_ / "state").c_str(), 1);
    for (int& port : ports_) port = FreePort();
  }
  void TearDown() override { RunLamina({"cluster", "down", config()}); }

  void WriteConfig(const std::string& tls, const std::string& more = "") const {
    WriteFile(config(), "version: 1\ncluster: {name: tls, http_port: " + std::to_string(ports_[0]) +
                            ", tls: " + tls + more +
                            "}\n"
                            "nodes:\n"
                            "  - {name: c0, role: compute, host: 127.0.0.1, port: " +
                            std::to_string(ports_[1]) +
                            "}\n"
                            "  - {name: m0, role: memory, host: 127.0.0.1, port: " +
                            std::to_string(ports_[2]) +
                            ", memory: 16MiB, threads: 1}\n"
                            "model: {path: " +
                            SourcePath("/models/tiny-stories") +
                            "}\n"
                            "limits: {start_timeout: 20s}\n");
  }
  std::string config() const { return folder_ / "cluster.yaml"; }

  // A daemon as somebody else starts it.
  ChildProcess Start(std::vector<std::string> argv, int port, const TlsFiles& files) const {
    argv[0] = BinPath("/") + argv[0];
    argv.insert(argv.end(), {"--listen", "127.0.0.1:" + std::to_string(port)});
    if (!files.empty())
      argv.insert(argv.end(), {"--tls-certificate", files.certificate, "--tls-key", files.key,
                               "--tls-ca", files.ca});
    return std::move(*ChildProcess::Spawn({std::move(argv), {}, folder_ / "daemons.log"}));
  }

  // The commands of docs/tls.md, run in the folder for the address that this test's nodes have.
  Result<CommandOutput> MakeAsDocumented() const {
    std::ifstream document(SourcePath("/docs/tls.md"));
    std::string script = "set -e\ncd " + folder_.path() + "\n", line;
    bool in_commands = false;
    while (std::getline(document, line)) {
      if (line.starts_with("```")) {
        in_commands = line == "```sh";
      } else if (in_commands) {
        script += (line == "names=DNS:mem0" ? "names=DNS:localhost,IP:127.0.0.1" : line) + "\n";
      }
    }
    return RunCommand({"/bin/sh", "-c", script}, Deadline::After(seconds(60)));
  }

  const TemporaryFolder folder_;
  int ports_[3] = {};  // HTTP, c0, m0
};

TEST_F(Tls, AClusterWithTheDocumentedCertificatesServes) {
  const Result<CommandOutput> made = MakeAsDocumented();
  ASSERT_TRUE(made.ok()) << made.status();
  ASSERT_EQ(made->exit_status, 0) << made->err;
  EXPECT_EQ(fs::status(folder_ / "node.key").permissions(),
            fs::perms::owner_read | fs::perms::owner_write);
  WriteConfig(kNodeTls);
  const CommandOutput dry_run = RunLamina({"cluster", "up", config(), "--dry-run"});
  EXPECT_THAT(dry_run.out, HasSubstr("--tls-certificate " + folder_ / "node.pem --tls-key " +
                                     folder_ / "node.key --tls-ca " + folder_ / "ca.pem"));
  const CommandOutput up = RunLamina({"cluster", "up", config()});
  ASSERT_EQ(up.exit_status, 0) << up.out << up.err;
  const CommandOutput answer =
      RunLamina({"complete", "Once upon a time", "--max-tokens", "8", "--temperature", "0", "--url",
                 "http://127.0.0.1:" + std::to_string(ports_[0])});
  EXPECT_THAT(answer.out, HasSubstr(", in a ")) << answer.err;

  const CommandOutput doctor = RunLamina({"doctor", config(), "--probe-seconds", "0.1"});
  for (const char* good : {"a manager would take it", "nodes would take the manager's",
                           "is for 127.0.0.1", "valid for 36"}) {
    EXPECT_THAT(doctor.out, HasSubstr(good));
  }
  EXPECT_THAT(doctor.out, Not(HasSubstr("fail  tls")));
}

TEST_F(Tls, TheManagerSpeaksHttpsAndIsAskedSo) {
  const TestCa ca(folder_.path());
  ca.Issue("node");
  WriteConfig(kNodeTls, ", https: {certificate: node.pem, key: node.key, ca: ca.pem}");
  const CommandOutput up = RunLamina({"cluster", "up", config()});
  ASSERT_EQ(up.exit_status, 0) << up.out << up.err;
  const std::string url = "https://127.0.0.1:" + std::to_string(ports_[0]);
  EXPECT_THAT(up.out, HasSubstr(url));
  const CommandOutput status = RunLamina({"cluster", "status", config()});
  EXPECT_EQ(status.exit_status, 0) << status.out << status.err;
  const std::vector<std::string> complete = {
      "complete", "Once upon a time", "--max-tokens", "8", "--temperature", "0", "--url", url};
  EXPECT_THAT(RunLamina(complete).err, HasSubstr("--ca"));
  std::vector<std::string> trusting = complete;
  trusting.insert(trusting.end(), {"--ca", ca.path()});
  const CommandOutput answer = RunLamina(trusting);
  EXPECT_THAT(answer.out, HasSubstr(", in a ")) << answer.err;
  // A certificate that cannot be used is found before anything starts.
  ASSERT_EQ(RunLamina({"cluster", "down", config()}).exit_status, 0);
  fs::remove(folder_ / "node.key");
  WriteConfig("{}", ", https: {certificate: node.pem, key: node.key}");
  EXPECT_THAT(RunLamina({"cluster", "up", config()}).err, HasSubstr("node.key"));
}

TEST_F(Tls, ANodeOfAnotherCaOrWithoutTlsIsNotServedWith) {
  const TestCa ca(folder_.path()), other(folder_.path(), "other-ca");
  const TlsFiles node = ca.Issue("node");
  WriteConfig(kNodeTls);
  struct Case {
    TlsFiles files;
    std::string at_manager, at_node;
  };
  const std::vector<Case> cases = {
      {other.Issue("stranger"), "the peer's certificate does not come from the CA in " + ca.path(),
       "unknown CA"},
      {ca.Issue("elsewhere", {.names = "DNS:elsewhere"}),
       "the peer's certificate is not for \"127.0.0.1\"", "the peer refused the certificate"},
      {{},
       "the peer does not speak TLS, and this end was given a certificate",
       "the peer speaks TLS, and this end was given no certificate"}};
  for (const Case& wrong : cases) {
    ChildProcess compute = Start({"lamina-compute-node", "--name", "c0"}, ports_[1], node);
    ChildProcess memory =
        Start({"lamina-memory-node", "--name", "m0", "--memory", "16MiB", "--threads", "1"},
              ports_[2], wrong.files);
    const CommandOutput served = RunLamina({"serve", "--cluster", config()});
    EXPECT_EQ(served.exit_status, 1) << served.out;
    EXPECT_THAT(served.err, AllOf(HasSubstr("m0: 127.0.0.1:" + std::to_string(ports_[2])),
                                  HasSubstr(wrong.at_manager)));
    EXPECT_TRUE(memory.running()) << "a stranger does it no harm";
    memory.Stop(Deadline::After(seconds(10)));
    compute.Stop(Deadline::After(seconds(10)));
    EXPECT_THAT(TailOfFile(folder_ / "daemons.log", 50), HasSubstr(wrong.at_node));
  }
}

TEST_F(Tls, FilesThatCannotBeUsedStartNothing) {
  const TlsFiles node = TestCa(folder_.path()).Issue("node");
  fs::permissions(node.key, fs::perms::group_read, fs::perm_options::add);
  WriteConfig(kNodeTls);
  const CommandOutput up = RunLamina({"cluster", "up", config()});
  EXPECT_EQ(up.exit_status, 1);
  EXPECT_THAT(
      up.err,
      HasSubstr("TLS key " + node.key +
                " has mode 640, so others than its owner have rights to it; use `chmod 600 "));
  const CommandOutput doctor = RunLamina({"doctor", config(), "--probe-seconds", "0.1"});
  EXPECT_EQ(doctor.exit_status, 1);
  EXPECT_THAT(doctor.out,
              AllOf(HasSubstr("fail  tls-files"), HasSubstr("-> use `chmod 600 " + node.key)));

  WriteConfig("{certificate: node.pem, ca: ca.pem}");
  EXPECT_THAT(RunLamina({"cluster", "up", config()}).err,
              HasSubstr("needs 'key': TLS takes certificate, key and ca together"));
  ChildProcess incomplete =
      Start({"lamina-memory-node", "--memory", "16MiB", "--tls-ca", node.ca}, 0, {});
  ASSERT_TRUE(incomplete.Wait(Deadline::After(seconds(30))));
  EXPECT_THAT(TailOfFile(folder_ / "daemons.log", 5),
              HasSubstr("there is no certificate; name all three files"));
}

}  // namespace
}  // namespace lamina::testing
