#include "manager/local_cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "api/http_client.h"
#include "tests/cli/fake_programs.h"
#include "tests/support/free_port.h"
#include "tests/support/temporary_folder.h"

namespace lamina {
namespace {

using ::testing::HasSubstr;

class LocalClusterTest : public ::testing::Test {
 protected:
  LocalClusterTest() {
    MakeFakePrograms(folder_.path() + "/bin");
    options_.bin_dir = folder_.path() + "/bin";
    options_.log_dir = folder_.path() + "/logs";
  }
  ~LocalClusterTest() override { unsetenv("FAKE_FAIL"); }

  static void WaitForEnd(LocalCluster& cluster, const std::string& node) {
    const Deadline deadline = Deadline::After(std::chrono::seconds(10));
    while (cluster.pids().contains(node) && !deadline.Passed()) usleep(1000);
    ASSERT_FALSE(cluster.pids().contains(node));
  }

  TemporaryFolder folder_;
  LocalClusterOptions options_;
};

TEST_F(LocalClusterTest, AllNodesListenAndAllEndWithIt) {
  std::map<std::string, pid_t> pids;
  {
    Result<std::unique_ptr<LocalCluster>> cluster = LocalCluster::Create(options_);
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    const ClusterConfig& config = (*cluster)->config();
    ASSERT_EQ(config.nodes.size(), 3u);
    EXPECT_EQ(config.transport, TransportKind::kAuto);
    for (const NodeConfig& node : config.nodes)
      EXPECT_TRUE(CanConnect(node.host, node.port, std::chrono::seconds(1))) << node.name;
    EXPECT_EQ(config.nodes[1].memory_bytes, int64_t{256} << 20);
    EXPECT_TRUE((*cluster)->Check().ok());
    pids = (*cluster)->pids();
    EXPECT_EQ(pids.size(), 3u);
    EXPECT_THAT(ReadFile(folder_.path() + "/logs/m1.log"),
                HasSubstr("--name m1 --listen 127.0.0.1:"));
  }
  for (const auto& [name, pid] : pids) EXPECT_FALSE(FindProcess(pid).has_value()) << name;
}

TEST_F(LocalClusterTest, WithoutMemoryNodes) {
  options_.num_memory_nodes = 0;
  Result<std::unique_ptr<LocalCluster>> cluster = LocalCluster::Create(options_);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  ASSERT_EQ((*cluster)->config().nodes.size(), 1u);
  EXPECT_EQ((*cluster)->config().nodes[0].role, NodeRole::kCompute);
}

TEST_F(LocalClusterTest, AKilledNodeCanBeStartedAgain) {
  Result<std::unique_ptr<LocalCluster>> cluster = LocalCluster::Create(options_);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const pid_t before = (*cluster)->pids().at("m0");
  ASSERT_TRUE((*cluster)->Kill("m0", SIGKILL).ok());
  WaitForEnd(**cluster, "m0");
  EXPECT_TRUE((*cluster)->Check().ok()) << "an end by Kill is expected";
  EXPECT_EQ((*cluster)->Kill("m0", SIGKILL).code(), StatusCode::kNotFound);
  EXPECT_EQ((*cluster)->Kill("m7", SIGKILL).code(), StatusCode::kNotFound);

  const Status restarted = (*cluster)->Restart("m0");
  ASSERT_TRUE(restarted.ok()) << restarted;
  EXPECT_NE((*cluster)->pids().at("m0"), before);
  const NodeConfig& node = (*cluster)->config().nodes[1];
  EXPECT_TRUE(CanConnect(node.host, node.port, std::chrono::seconds(1)));
}

// Clients of other programs get any port that is free, thousands of them in the time that a daemon
// takes to start.
TEST_F(LocalClusterTest, ThePortOfANodeIsKeptForItWhileItDoesNotListen) {
  Result<std::unique_ptr<LocalCluster>> cluster = LocalCluster::Create(options_);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  ASSERT_TRUE((*cluster)->Kill("m0", SIGKILL).ok());
  WaitForEnd(**cluster, "m0");
  const UniqueFd other(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>((*cluster)->config().nodes[1].port));
  EXPECT_EQ(bind(other.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), -1);
  EXPECT_EQ(errno, EADDRINUSE);
  EXPECT_TRUE((*cluster)->Restart("m0").ok());
}

TEST_F(LocalClusterTest, AnEndOfItsOwnIsNoticed) {
  Result<std::unique_ptr<LocalCluster>> cluster = LocalCluster::Create(options_);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  kill((*cluster)->pids().at("c0"), SIGKILL);
  WaitForEnd(**cluster, "c0");
  const Status status = (*cluster)->Check();
  EXPECT_EQ(status.code(), StatusCode::kPeerLost);
  EXPECT_THAT(status.message(), HasSubstr("node c0 was killed by signal 9"));
}

TEST_F(LocalClusterTest, TheEndOfANodeThatWasOnlyStoppedIsNoticed) {
  Result<std::unique_ptr<LocalCluster>> cluster = LocalCluster::Create(options_);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  ASSERT_TRUE((*cluster)->Kill("c0", SIGSTOP).ok());
  ASSERT_TRUE((*cluster)->Kill("c0", SIGCONT).ok());
  EXPECT_TRUE((*cluster)->Check().ok());
  kill((*cluster)->pids().at("c0"), SIGKILL);
  WaitForEnd(**cluster, "c0");
  EXPECT_EQ((*cluster)->Check().code(), StatusCode::kPeerLost);
}

TEST_F(LocalClusterTest, ANodeThatDoesNotStartIsReportedWithItsLog) {
  setenv("FAKE_FAIL", "m1", 1);
  const Status status = LocalCluster::Create(options_).status();
  EXPECT_EQ(status.code(), StatusCode::kPeerLost);
  EXPECT_THAT(status.message(), HasSubstr("node m1 exited with status 3; its log " +
                                          options_.log_dir + "/m1.log ends with:"));
  EXPECT_THAT(status.message(), HasSubstr("m1 has no wish to live"));
}

TEST_F(LocalClusterTest, AMissingProgramIsReported) {
  options_.bin_dir = "/nonexistent";
  const Status status = LocalCluster::Create(options_).status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_EQ(status.message(), "/nonexistent/lamina-compute-node: No such file or directory");
}

// Ctrl-C goes to the daemons too, some of which have just begun.
TEST_F(LocalClusterTest, AStartThatIsInterruptedLeavesNoLogs) {
  setenv("FAKE_FAIL", "c0", 1);
  setenv("TMPDIR", folder_.path().c_str(), 1);
  options_.log_dir.clear();
  options_.interrupted = [] {
    siginfo_t ended{};
    return waitid(P_ALL, 0, &ended, WEXITED | WNOWAIT) == 0;  // a daemon is no more
  };
  const Status status = LocalCluster::Create(options_).status();
  unsetenv("TMPDIR");
  EXPECT_EQ(status.code(), StatusCode::kTryAgain) << status;
  for (const auto& file : std::filesystem::directory_iterator(folder_.path()))
    EXPECT_FALSE(file.path().filename().string().starts_with("lamina-")) << file.path();
}

TEST_F(LocalClusterTest, TemporaryLogsGoWhenAllWentWell) {
  options_.log_dir.clear();
  std::string good, bad;
  {
    Result<std::unique_ptr<LocalCluster>> cluster = LocalCluster::Create(options_);
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    good = (*cluster)->log_dir();
    EXPECT_TRUE(std::filesystem::exists(good));
  }
  EXPECT_FALSE(std::filesystem::exists(good));
  {
    Result<std::unique_ptr<LocalCluster>> cluster = LocalCluster::Create(options_);
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    bad = (*cluster)->log_dir();
    kill((*cluster)->pids().at("m0"), SIGKILL);
    WaitForEnd(**cluster, "m0");
  }
  EXPECT_TRUE(std::filesystem::exists(bad + "/m0.log"));
  std::filesystem::remove_all(bad);
}

}  // namespace
}  // namespace lamina
