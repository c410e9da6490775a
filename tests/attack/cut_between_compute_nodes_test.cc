// Hosts as network namespaces. The way between two compute nodes is cut, while both go on to reach
// memory nodes and the manager: requests wait for the peer timeout, not for a step's deadline, and
// nothing is given up for good.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <fstream>
#include <future>
#include <nlohmann/json.hpp>

#include "api/http_client.h"
#include "manager/process.h"
#include "tests/support/paths.h"
#include "tests/support/serving.h"
#include "tests/support/temporary_folder.h"
#include "transport/posix.h"

namespace lamina::testing {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr int kManager = 1, kFirstCompute = 2, kSecondCompute = 3;  // hosts

CommandOutput Shell(const std::string& script) {
  Result<CommandOutput> output = RunCommand({"sh", "-ec", script}, Deadline::After(seconds(60)));
  return output.ok() ? *output : CommandOutput{-1, "", output.status().ToString()};
}

class CutBetweenComputeNodes : public ::testing::Test {
 protected:
  void SetUp() override {
    prefix_ = "lc" + std::to_string(getpid());
    if (geteuid() != 0 ||
        Shell("ip netns add " + prefix_ + "x && ip netns del " + prefix_ + "x").exit_status != 0)
      GTEST_SKIP() << "network namespaces need root and iproute2";
    std::string script = "ip netns add " + Space(0) + "\nip -n " + Space(0) +
                         " link add br0 type bridge\nip -n " + Space(0) + " link set br0 up\n";
    for (const int i : {kManager, kFirstCompute, kSecondCompute}) {
      const std::string space = Space(i), port = "port" + std::to_string(i);
      script += "ip netns add " + space + "\nip -n " + space + " link set lo up\n";
      script += "ip -n " + space + " link add eth0 type veth peer name " + port + " netns " +
                Space(0) + "\n";
      script += "ip -n " + Space(0) + " link set " + port + " master br0 up\n";
      script += "ip -n " + space + " addr add " + Host(i) + "/24 dev eth0\nip -n " + space +
                " link set eth0 up\n";
    }
    const CommandOutput made = Shell(script);
    ASSERT_EQ(made.exit_status, 0) << made.err;
    std::ofstream(folder_ / "secret") << "a secret of three hosts\n";
    ASSERT_EQ(Shell("chmod 600 " + folder_ / "secret").exit_status, 0);
    // This thread and what it starts stand on the manager's host.
    home_ = UniqueFd(open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC));
    const UniqueFd there(open(("/run/netns/" + Space(kManager)).c_str(), O_RDONLY | O_CLOEXEC));
    ASSERT_TRUE(home_.get() >= 0 && there.get() >= 0);
    ASSERT_EQ(setns(there.get(), CLONE_NEWNET), 0);
  }

  void TearDown() override {
    if (IsSkipped()) return;
    for (auto process = processes_.rbegin(); process != processes_.rend(); ++process)
      process->Stop(Deadline::After(seconds(10)));
    EXPECT_EQ(setns(home_.get(), CLONE_NEWNET), 0);
    for (int i = 0; i <= kSecondCompute; ++i) Shell("ip netns del " + Space(i));
  }

  void Serve(const std::string& sections) {
    const std::string config = folder_ / "cluster.yaml";
    std::ofstream(config) << "version: 1\ncluster: {name: hosts, controller: " << Host(kManager)
                          << ", secret_file: " << folder_ / "secret"
                          << "}\nnodes:\n"
                          << "  - {name: c0, role: compute, host: " << Host(kFirstCompute)
                          << ", port: 7100, threads: 1}\n"
                          << "  - {name: c1, role: compute, host: " << Host(kSecondCompute)
                          << ", port: 7100, threads: 1}\n"
                          << "  - {name: m0, role: memory, host: " << Host(kManager)
                          << ", port: 7101, memory: 16MiB, threads: 1}\n"
                          << "  - {name: m1, role: memory, host: " << Host(kManager)
                          << ", port: 7102, memory: 16MiB, threads: 1}\n"
                          << "model: {path: " << SourcePath("/models/tiny-stories") << "}\n"
                          << "limits: {peer_timeout: 3s, step_timeout: 60s, start_timeout: 60s}\n"
                          << sections;
    Start("c0", kFirstCompute,
          {BinPath("/lamina-compute-node"), "--listen", Host(kFirstCompute) + ":7100", "--threads",
           "1"});
    Start("c1", kSecondCompute,
          {BinPath("/lamina-compute-node"), "--listen", Host(kSecondCompute) + ":7100", "--threads",
           "1"});
    for (const std::string name : {"m0", "m1"}) {
      const std::string port = name == "m0" ? ":7101" : ":7102";
      Start(name, kManager,
            {BinPath("/lamina-memory-node"), "--listen", Host(kManager) + port, "--memory", "16MiB",
             "--threads", "1"});
    }
    ChildProcess::Options manager;
    manager.argv = {BinPath("/lamina"), "serve", "--cluster", config};
    manager.log_path = log();
    processes_.push_back(std::move(*ChildProcess::Spawn(manager)));
    ASSERT_TRUE(
        AwaitTrue([this] { return Get("/health").first == 200; }, Deadline::After(seconds(60))))
        << TailOfFile(log(), 30);
  }

  void Start(const std::string& name, int host, const std::vector<std::string>& argv) {
    ChildProcess::Options options;
    options.argv = {"ip", "netns", "exec", Space(host)};
    options.argv.insert(options.argv.end(), argv.begin(), argv.end());
    options.argv.insert(options.argv.end(), {"--name", name, "--secret-file", folder_ / "secret"});
    options.log_path = folder_ / (name + ".log");
    processes_.push_back(std::move(*ChildProcess::Spawn(options)));
  }

  // Frames between the two go to a machine that there is not.
  void Cut() {
    const std::string nobody = " lladdr 02:00:00:00:99:99 dev eth0 nud permanent\n";
    EXPECT_EQ(
        Shell("ip -n " + Space(kFirstCompute) + " neigh replace " + Host(kSecondCompute) + nobody +
              "ip -n " + Space(kSecondCompute) + " neigh replace " + Host(kFirstCompute) + nobody)
            .exit_status,
        0);
  }
  void Mend() {
    EXPECT_EQ(Shell("ip -n " + Space(kFirstCompute) + " neigh del " + Host(kSecondCompute) +
                    " dev eth0\nip -n " + Space(kSecondCompute) + " neigh del " +
                    Host(kFirstCompute) + " dev eth0\n")
                  .exit_status,
              0);
  }

  std::pair<int, std::string> Get(const std::string& path) const { return Fetch(path, ""); }

  // A text of some steps, and how long it took.
  struct Answer {
    int status = 0;
    std::string body;
    Clock::duration took{};
  };
  Answer Complete() const {
    const TimePoint start = Clock::now();
    const auto [status, body] = Fetch(
        "/v1/completions",
        R"({"model": "tiny-stories", "prompt": "Once upon a time", "max_tokens": 60, "temperature": 0})");
    return {status, body, Clock::now() - start};
  }

  static std::string TextOf(const Answer& answer) {
    const nlohmann::json body = nlohmann::json::parse(answer.body, nullptr, false);
    if (!body.is_object() || !body.contains("choices")) return answer.body;
    return body["choices"][0]["text"];
  }

  std::pair<int, std::string> Fetch(const std::string& path, const std::string& body) const {
    HttpClientOptions options;
    options.silence_timeout = seconds(120);
    const HttpClient client = *HttpClient::Create("http://" + Host(kManager) + ":8000", options);
    const Result<HttpResponse> answer =
        body.empty() ? client.Get(path) : client.PostJson(path, body);
    return answer.ok() ? std::pair(answer->status, answer->body)
                       : std::pair(0, answer.status().ToString());
  }

  std::string Space(int i) const { return prefix_ + "h" + std::to_string(i); }
  static std::string Host(int i) { return "10.89.0." + std::to_string(i); }
  std::string log() const { return folder_ / "manager.log"; }

  std::string prefix_;
  const TemporaryFolder folder_;
  UniqueFd home_;
  std::vector<ChildProcess> processes_;
};

// The batches' slices run on the two in turn, each has the whole model: one of them is enough.
TEST_F(CutBetweenComputeNodes, OfTwoWithTheWholeModelOneGoesOn) {
  Serve("pipeline: {policy: rotational, num_batches: 2}\n");
  const Answer before = Complete();
  ASSERT_EQ(before.status, 200) << before.body << TailOfFile(log(), 30);
  Cut();
  const Answer during = Complete();
  EXPECT_EQ(during.status, 200) << during.body << TailOfFile(log(), 30);
  EXPECT_LT(during.took, seconds(40)) << "only the step's deadline ended it";
  // Now and then the other one is tried: requests wait for that, but not for long.
  Clock::duration longest{};
  for (const Deadline cut = Deadline::After(seconds(20)); !cut.Passed();) {
    const Answer answer = Complete();
    ASSERT_EQ(answer.status, 200) << answer.body;
    longest = std::max(longest, answer.took);
  }
  RecordProperty(
      "longest_answer_ms",
      static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(longest).count()));
  EXPECT_LT(longest, seconds(12));
  EXPECT_EQ(Get("/health").first, 200);
  EXPECT_THAT(TailOfFile(log(), 100), HasSubstr("no sign of life"));
}

// Nobody else has their parts of the model: requests wait until the way is mended.
class SharedModel : public CutBetweenComputeNodes,
                    public ::testing::WithParamInterface<const char*> {};

TEST_P(SharedModel, GoesOnWhenTheWayIsMended) {
  Serve(GetParam());
  const Answer before = Complete();
  ASSERT_EQ(before.status, 200) << before.body << TailOfFile(log(), 30);
  Cut();
  std::future<Answer> during = std::async(std::launch::async, [this] { return Complete(); });
  EXPECT_TRUE(AwaitTrue(
      [this] { return TailOfFile(log(), 100).find("no sign of life") != std::string::npos; },
      Deadline::After(seconds(40))))
      << TailOfFile(log(), 30);
  Mend();
  const Answer waited = during.get();
  EXPECT_EQ(waited.status, 200) << waited.body << TailOfFile(log(), 30);
  EXPECT_EQ(Complete().status, 200);
  EXPECT_EQ(Get("/health").first, 200);
}

// What takes longer is an outage, in which requests wait until the cut is mended.
TEST_P(SharedModel, IsAnOutageWhenTheWayIsNotMendedSoon) {
  Serve(GetParam());
  const Answer before = Complete();
  ASSERT_EQ(before.status, 200) << before.body << TailOfFile(log(), 30);
  Cut();
  std::future<Answer> during = std::async(std::launch::async, [this] { return Complete(); });
  EXPECT_TRUE(AwaitTrue(
      [this] {
        return Get("/cluster/status").second.find(R"("state":"outage")") != std::string::npos;
      },
      Deadline::After(seconds(40))))
      << Get("/cluster/status").second << TailOfFile(log(), 30);
  EXPECT_EQ(Get("/health").first, 503);
  EXPECT_EQ(during.wait_for(seconds(0)), std::future_status::timeout) << "it waits";
  Mend();
  EXPECT_TRUE(
      AwaitTrue([this] { return Get("/health").first == 200; }, Deadline::After(seconds(40))))
      << TailOfFile(log(), 30);
  const Answer waited = during.get();
  EXPECT_EQ(waited.status, 200) << waited.body << TailOfFile(log(), 30);
  EXPECT_EQ(TextOf(waited), TextOf(before));
  EXPECT_EQ(Complete().status, 200);
}

INSTANTIATE_TEST_SUITE_P(
    Shares, SharedModel,
    ::testing::Values("parallel: {pipeline_parallel_size: 2}\n",
                      "parallel: {tensor_parallel_size: 2}\nattention: {kv_head_parallel: 2}\n"),
    [](const auto& info) { return info.index == 0 ? "Stages" : "Ranks"; });

}  // namespace
}  // namespace lamina::testing
