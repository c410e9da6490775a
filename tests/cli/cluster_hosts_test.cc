// Daemons on other hosts, through a fake ssh.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "api/http_client.h"
#include "tests/cli/cluster_ops_fixture.h"

namespace lamina::testing {
namespace {

using ::testing::HasSubstr;

TEST_F(ClusterOpsTest, OtherHostsAreReachedThroughSsh) {
  const std::string ssh = folder_.path() + "/fake-ssh";
  WriteProgram(ssh, "#!/bin/sh\necho \"$1 $2\" >> " + folder_.path() +
                        "/hosts\nshift 2\nexec sh -c \"$*\"\n");
  config_.ssh = ssh + " -q";
  config_.nodes[2].host = "elsewhere.example";
  config_.env = {{"FAKE_NOTE", "it's here"}};
  const Status up = Up();
  ASSERT_TRUE(up.ok()) << up << out_.str();
  const std::vector<DaemonRecord> records = Records();
  EXPECT_EQ(records[1].name, "m1");
  EXPECT_EQ(records[1].host, "elsewhere.example");
  EXPECT_THAT(ReadFile("/proc/" + std::to_string(records[1].process.pid) + "/environ"),
              HasSubstr("FAKE_NOTE=it's here"));
  EXPECT_THAT(ReadFile(folder_.path() + "/hosts"), HasSubstr("-q elsewhere.example\n"));
  EXPECT_TRUE(Down().ok());
  EXPECT_FALSE(Runs(records[1]));
}

TEST_F(ClusterOpsTest, AHostThatDoesNotAnswerStaysRecorded) {
  const std::string ssh = folder_.path() + "/fake-ssh";
  WriteProgram(ssh, "#!/bin/sh\nshift\nexec sh -c \"$*\"\n");
  config_.ssh = ssh;
  config_.nodes[2].host = "elsewhere.example";
  ASSERT_TRUE(Up().ok()) << out_.str();
  WriteProgram(ssh, "#!/bin/sh\necho no route to host >&2\nexit 255\n");
  const Status down = Down();
  EXPECT_THAT(down.message(), HasSubstr("cannot stop m1: elsewhere.example: the command failed "
                                        "with status 255: no route to host; if "));
  EXPECT_THAT(down.message(),
              HasSubstr("lamina cluster down --forget-unreachable " + options_.config_path));
  ASSERT_EQ(Records().size(), 1u);
  EXPECT_EQ(Records()[0].name, "m1");
  EXPECT_THAT(Up().message(), HasSubstr("cannot tell whether cluster 'test' is up already"));
  EXPECT_THAT(Up().message(),
              HasSubstr("lamina cluster down --forget-unreachable " + options_.config_path));

  WriteProgram(ssh, "#!/bin/sh\nshift\nexec sh -c \"$*\"\n");
  EXPECT_TRUE(Down().ok());
  EXPECT_TRUE(Records().empty());
}

TEST_F(ClusterOpsTest, AHostThatIsGoneForGoodCanBeForgotten) {
  const std::string ssh = folder_.path() + "/fake-ssh";
  WriteProgram(ssh, "#!/bin/sh\nshift\nexec sh -c \"$*\"\n");
  config_.ssh = ssh;
  config_.nodes[1].host = config_.nodes[2].host = "elsewhere.example";
  ASSERT_TRUE(Up().ok()) << out_.str();
  const std::vector<DaemonRecord> records = Records();
  WriteProgram(ssh, "#!/bin/sh\necho x >> " + folder_.path() +
                        "/calls\necho no route to host >&2\nexit 255\n");
  options_.forget_unreachable = true;
  const Status down = Down();
  EXPECT_TRUE(down.ok()) << down;
  EXPECT_THAT(out_.str(), HasSubstr("forgot m1 on elsewhere.example, pid " +
                                    std::to_string(records[1].process.pid)));
  EXPECT_EQ(ReadFile(folder_.path() + "/calls"), "x\n")
      << "a host that does not answer is asked once";
  EXPECT_TRUE(Records().empty());
  for (const DaemonRecord& daemon : records) {
    EXPECT_EQ(Runs(daemon), daemon.host == "elsewhere.example") << daemon.name;
    kill(daemon.process.pid, SIGKILL);
  }
}

// `up` is killed while ssh still waits for the host that has started the daemon.
TEST_F(ClusterOpsTest, DownKnowsADaemonWhoseStartNobodySawTheEndOf) {
  const std::string ssh = folder_.path() + "/fake-ssh";
  WriteProgram(ssh, "#!/bin/sh\nshift\nsh -c \"$*\" > /dev/null\ntouch " + folder_.path() +
                        "/started\nexec sleep 600\n");
  config_.ssh = ssh;
  config_.nodes[1].host = "elsewhere.example";  // m0, which is started first
  const pid_t up = fork();
  if (up == 0) {
    (void)Up();
    _exit(0);
  }
  const std::string log = config_.log_dir + "/m0.log";
  const auto runs = [&] {
    return ReadFile(log).find("m0: ") != std::string::npos &&
           std::filesystem::exists(folder_ / "started");
  };
  EXPECT_TRUE(testing::AwaitTrue(runs, Deadline::After(std::chrono::seconds(20))));
  kill(up, SIGKILL);
  waitpid(up, nullptr, 0);
  const auto listens = [&] {
    return CanConnect("127.0.0.1", config_.nodes[1].port, std::chrono::seconds(1));
  };
  EXPECT_TRUE(testing::AwaitTrue(listens, Deadline::After(std::chrono::seconds(20))));
  WriteProgram(ssh, "#!/bin/sh\nshift\nexec sh -c \"$*\"\n");
  ASSERT_EQ(Records().size(), 1u);
  EXPECT_TRUE(Records()[0].may_be_starting());
  EXPECT_EQ(Up().code(), StatusCode::kTryAgain) << "it is up already, in part";
  EXPECT_TRUE(Down().ok());
  EXPECT_THAT(out_.str(), HasSubstr("stopped m0 on elsewhere.example, pid "));
  EXPECT_FALSE(CanConnect("127.0.0.1", config_.nodes[1].port, std::chrono::seconds(1)));
  EXPECT_TRUE(Records().empty());
}

TEST_F(ClusterOpsTest, AHostThatCannotBeReachedLeavesNoRecord) {
  const std::string ssh = folder_.path() + "/fake-ssh";
  WriteProgram(ssh, "#!/bin/sh\necho no route to host >&2\nexit 255\n");
  config_.ssh = ssh;
  config_.nodes[2].host = "elsewhere.example";
  EXPECT_EQ(
      Up().message(),
      "cannot start m1: elsewhere.example: the command failed with status 255: no route to host");
  EXPECT_TRUE(Records().empty());
}

}  // namespace
}  // namespace lamina::testing
