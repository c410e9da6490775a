// The golden continuations with the compute node on one host and both memory nodes on another. The
// same program runs on both: rank 0 has the manager and the compute node, rank 1 the memory nodes.
// Listed only where LAMINA_TEST_RANK, LAMINA_TEST_RDMA_ADDR (this host) and LAMINA_TEST_PEER (the
// other) are set; tests/softroce/run.sh does that.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>

#include "manager/process.h"
#include "tests/support/expect_golden.h"
#include "tests/support/paths.h"
#include "tests/support/serving.h"
#include "tests/support/temporary_folder.h"
#include "tests/transport/fabric_pair.h"

namespace lamina::testing {
namespace {

constexpr auto kPatience = std::chrono::minutes(7);  // emulated hosts are slow
constexpr int kMeetingPort = 17'800, kComputePort = 17'801, kMemoryPort = 17'802;

class GoldenOnTwoHosts : public ::testing::TestWithParam<std::string> {
 protected:
  GoldenOnTwoHosts() {
    WriteFile(secret(), "a secret of two hosts\n");
    chmod(secret().c_str(), 0600);
  }

  std::string secret() const { return folder_ / "secret"; }

  void Spawn(const std::string& program, int port, const std::vector<std::string>& more) {
    ChildProcess::Options options;
    options.argv = {BinPath("/") + program,
                    "--name",
                    std::to_string(port),
                    "--listen",
                    here_ + ":" + std::to_string(port),
                    "--secret-file",
                    secret()};
    options.argv.insert(options.argv.end(), more.begin(), more.end());
    options.log_path = folder_ / std::to_string(port);
    Result<ChildProcess> child = ChildProcess::Spawn(options);
    ASSERT_TRUE(child.ok()) << child.status();
    daemons_.push_back(std::move(*child));
  }

  ClusterConfig Config() const {
    ClusterConfig config;
    config.secret_file = secret();
    config.transport = TransportKind::kVerbs;
    for (const auto& [name, role, host, port] :
         {std::tuple("c0", NodeRole::kCompute, here_, kComputePort),
          {"m0", NodeRole::kMemory, there_, kMemoryPort},
          {"m1", NodeRole::kMemory, there_, kMemoryPort + 1}}) {
      NodeConfig node;
      node.name = name;
      node.role = role;
      node.host = host;
      node.port = port;
      config.nodes.push_back(node);
    }
    return config;
  }

  const std::string here_ = Variable("LAMINA_TEST_RDMA_ADDR"),
                    there_ = Variable("LAMINA_TEST_PEER");
  const TemporaryFolder folder_;
  std::vector<ChildProcess> daemons_;
};

// Both hosts: as long as rank 0's end of a tcp connection lives, rank 1 keeps its memory nodes.
TEST_P(GoldenOnTwoHosts, OverVerbs) {
  const auto fabric = OpenTestFabric("tcp");
  if (Variable("LAMINA_TEST_RANK") == "1") {
    for (const int port : {kMemoryPort, kMemoryPort + 1})
      Spawn("lamina-memory-node", port, {"--memory", "16MiB", "--threads", "1"});
    const auto listener = fabric->Listen(here_ + ":" + std::to_string(kMeetingPort));
    ASSERT_TRUE(listener.ok()) << listener.status();
    const std::unique_ptr<Endpoint> rank0 = AcceptOne(*fabric, **listener, {});
    ASSERT_NE(rank0, nullptr);
    Inbound inbound;
    const Deadline deadline = Deadline::After(kPatience);
    while (inbound.PollOnce(*rank0) == 0 && !deadline.Passed()) Sleep(*fabric, {}, deadline);
    EXPECT_EQ(inbound.num_lost, 1);
    for (ChildProcess& daemon : daemons_)
      EXPECT_TRUE(daemon.running()) << daemon.exit_description();
    return;
  }

  Spawn("lamina-compute-node", kComputePort, {});
  const auto rank1 =
      fabric->Connect(there_ + ":" + std::to_string(kMeetingPort), {}, Deadline::After(kPatience));
  ASSERT_TRUE(rank1.ok()) << rank1.status();
  Deployment deployment;
  deployment.kv_dtype = DTypeNamed(GetParam()).value();
  deployment.peer_timeout = std::chrono::seconds(60);
  const auto serving = Serving::Connect(Config(), deployment);
  ASSERT_TRUE(serving.ok()) << serving.status();
  Engine& engine = *(*serving)->engine;
  for (const NodeStatus& node : engine.status().nodes) {
    if (node.role == NodeRole::kMemory) {
      EXPECT_EQ(node.transport, "verbs") << node.name << ": " << node.transport_refused;
    }
  }
  const std::vector<GoldenPrompt> golden = GoldenPrompts(deployment.kv_dtype);
  ASSERT_EQ(golden.size(), 19u);
  ExpectGolden(engine, golden, kPatience);
  // A few alone: the hosts are slow.
  for (size_t i = 0; i < golden.size(); i += 4) ExpectGolden(engine, {golden[i]}, kPatience);
  EXPECT_EQ(AwaitNoTokens(engine, Deadline::After(kPatience)), "");
}

INSTANTIATE_TEST_SUITE_P(SoftRoce, GoldenOnTwoHosts,
                         ::testing::ValuesIn(Variable("LAMINA_TEST_RANK").empty()
                                                 ? std::vector<std::string>()
                                                 : std::vector<std::string>{"float32", "bfloat16"}),
                         [](const auto& kv) { return kv.param; });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GoldenOnTwoHosts);

}  // namespace
}  // namespace lamina::testing
