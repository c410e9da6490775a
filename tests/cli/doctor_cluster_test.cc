// The doctor on what several hosts have to agree on, and on what a cluster needs of each.
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "cli/doctor/cluster_checks.h"
#include "cli/doctor/planned_memory.h"
#include "manager/resolve_config.h"
#include "tests/cli/doctor_fixture.h"

namespace lamina::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

TEST_F(Doctor, SecretsCanBeCompared) {
  for (const char* name : {"one", "same", "other"}) {
    std::ofstream(folder_ / name) << (name == std::string("other") ? "fedcba9876543210"
                                                                   : "0123456789abcdef");
    fs::permissions(folder_ / name, fs::perms::owner_read | fs::perms::owner_write);
  }
  const auto value = [&](const std::string& file, const std::string& nonce) {
    needs_.secret_file = folder_ / file;
    needs_.secret_nonce = nonce;
    const Finding finding = Find(CheckSecret(needs_), "secret");
    EXPECT_EQ(finding.level, Level::kOk) << finding.cause;
    return finding.value;
  };
  EXPECT_EQ(value("one", ""), 0);
  EXPECT_EQ(value("one", "n"), value("same", "n"));
  EXPECT_NE(value("one", "n"), value("other", "n"));
  EXPECT_NE(value("one", "n"), value("one", "m")) << "a report of yesterday tells nothing";
}

TEST_F(Doctor, AnotherSecretOnOneHostIsAFailure) {
  EXPECT_TRUE(JudgeSecrets({{"a", 5}, {"b", 5}, {"c", 0}}).empty());
  const std::vector<Finding> findings = JudgeSecrets({{"a", 5}, {"b", 5}, {"c", 6}});
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].level, Level::kFail);
  EXPECT_EQ(findings[0].subject, "c");
  EXPECT_EQ(findings[0].cause, "is another secret than on a");
}

TEST_F(Doctor, PortsThatTheClusterItselfUsesAreRight) {
  std::vector<Finding> findings = {
      {"port", "h 10.0.0.1:7100", Level::kWarn, "in use", "choose another"},
      {"port", "h 10.0.0.1:7101", Level::kWarn, "in use", "choose another"},
      {"memlock", "h 10.0.0.1:7100", Level::kWarn, "x", "y"}};
  ExcuseOwnPorts({"10.0.0.1:7100"}, findings);
  EXPECT_EQ(findings[0].level, Level::kOk);
  EXPECT_EQ(findings[0].fix, "");
  EXPECT_EQ(findings[1].level, Level::kWarn);
  EXPECT_EQ(findings[2].level, Level::kWarn);
}

// Two hosts through a fake ssh; the second has another secret, or does not answer.
TEST_F(Doctor, ComparesTheHostsOfACluster) {
  ClusterConfig config;
  config.transport = TransportKind::kTcp;
  config.controller_host = "one.example";
  config.secret_file = folder_ / "secret";
  config.ssh = folder_ / "fake-ssh";
  config.nodes = {{.name = "c0", .role = NodeRole::kCompute, .host = "one.example", .port = 1},
                  {.name = "m0", .role = NodeRole::kMemory, .host = "two.example", .port = 1}};
  ClusterCheckOptions options;
  options.probe_duration = milliseconds(1);
  const auto check = [&](const std::string& of_two) {
    const std::string report =
        R"({"level": "ok", "findings": [{"check": "secret", "subject": "f", "level": "ok", "cause": "", "fix": "",)";
    std::ofstream(config.ssh)
        << "#!/bin/sh\ncase \"$2\" in *probe*) exit 1;; *date*) echo 1; exit 0;; esac\n"
        << "case $1 in two*) " << of_two << ";; *) v=7;; esac\necho '" << report
        << " \"value\": '$v'}]}'\n";
    fs::permissions(config.ssh, fs::perms::owner_all);
    return CheckCluster(config, options);
  };
  const auto failures_of = [](const std::vector<Finding>& findings, const std::string& check) {
    return std::ranges::count_if(findings, [&](const Finding& finding) {
      return finding.check == check && finding.level == Level::kFail;
    });
  };
  EXPECT_EQ(failures_of(check("v=7"), "secret"), 0);
  EXPECT_EQ(failures_of(check("v=8"), "secret"), 1);
  const std::vector<Finding> unreachable = check("echo no route to host >&2; exit 255");
  EXPECT_EQ(failures_of(unreachable, "host"), 1) << "said once";
  EXPECT_EQ(failures_of(unreachable, "pair"), 0);
}

class DoctorOfCluster : public Doctor {
 protected:
  void AddNode(const std::string& host, NodeRole role) {
    NodeConfig node;
    node.role = role;
    node.host = host;
    config_.nodes.push_back(node);
  }

  ClusterConfig config_;
};

TEST_F(DoctorOfCluster, HostsThatExchangeDataArePairs) {
  AddNode("a", NodeRole::kCompute);
  AddNode("b", NodeRole::kCompute);
  AddNode("b", NodeRole::kMemory);
  AddNode("c", NodeRole::kMemory);
  using Pair = std::pair<std::string, std::string>;
  EXPECT_THAT(PairsOf(config_), ::testing::UnorderedElementsAre(Pair("a", "b"), Pair("a", "c"),
                                                                Pair("b", "b"), Pair("b", "c")));
  config_.nodes.clear();
  for (const char* host : {"a", "b", "c"}) AddNode(host, NodeRole::kCompute);
  AddNode("m", NodeRole::kMemory);
  EXPECT_THAT(PairsOf(config_),
              ::testing::UnorderedElementsAre(Pair("a", "m"), Pair("b", "m"), Pair("c", "m"),
                                              Pair("a", "b"), Pair("a", "c"), Pair("b", "c")));
}

// Of LLaMA-65B's shape: a decode message of 64 rows has 64 x (4 + 2 x 2) x 8192 bytes, an output
// half of that.
TEST_F(DoctorOfCluster, LockedMemoryGrowsWithTheModelAndThePeers) {
  AddNode("a", NodeRole::kCompute);
  AddNode("m", NodeRole::kMemory);
  ModelConfig model;
  model.hidden_size = 8192;
  model.num_heads = model.num_kv_heads = 64;
  model.head_dim = 128;
  config_.kv_dtype = DType::kBF16;
  config_.wire_dtype = DType::kF32;
  config_.num_batches = 2;
  const auto planned = [&](const std::string& host) {
    return PlannedLockedBytes(config_, model, *ViewOf(config_, model), host);
  };
  const int64_t once = planned("a");
  EXPECT_GT(once, 2 * (64 * 8 * 8192 + 64 * 4 * 8192));
  EXPECT_EQ(planned("m"), once);
  config_.kv_dtype = DType::kF8;
  EXPECT_LE(planned("a"), once - 2 * 64 * 2 * 8192) << "k and v take half";
  config_.kv_dtype = DType::kBF16;
  AddNode("m2", NodeRole::kMemory);
  EXPECT_EQ(planned("a"), 2 * once);
  EXPECT_EQ(planned("m2"), once);
  AddNode("b", NodeRole::kCompute);
  EXPECT_GE(planned("a"), 2 * once + 2 * 2 * int64_t{512} * 8192 * 4);
  EXPECT_EQ(planned("elsewhere"), 0);
}

// A group's largest memory node counts: of 5 KV heads for two nodes the one with 3.
TEST_F(DoctorOfCluster, LockedMemoryIsThatOfTheMemoryNodeWithMostHeads) {
  AddNode("a", NodeRole::kCompute);
  AddNode("m", NodeRole::kMemory);
  ModelConfig model;
  model.num_heads = model.num_kv_heads = 3;
  model.head_dim = 128;
  config_.kv_dtype = DType::kBF16;
  const int64_t of_three = PlannedLockedBytes(config_, model, *ViewOf(config_, model), "m");
  AddNode("m2", NodeRole::kMemory);
  config_.kv_head_parallel = 2;
  model.num_heads = model.num_kv_heads = 5;
  EXPECT_EQ(PlannedLockedBytes(config_, model, *ViewOf(config_, model), "m"), of_three);
}

TEST_F(Doctor, PairsAndClocks) {
  EXPECT_EQ(JudgePair({"a", "b", "verbs", "", "", 3, 11e9, 100e9}).level, Level::kOk);
  const Finding slow = JudgePair({"a", "b", "verbs", "", "", 3, 1e9, 100e9});
  EXPECT_EQ(slow.level, Level::kWarn);
  EXPECT_THAT(slow.cause, HasSubstr("8 % of the link's 100 Gb/s"));
  EXPECT_THAT(JudgePair({"a", "b", "tcp", "", "verbs: no device", 3, 1e9, 0}).cause,
              HasSubstr("not used: verbs: no device"));
  EXPECT_THAT(JudgePair({"a", "b", "ucx", "tcp/eth0", "", 3, 1e9, 0}).cause,
              HasSubstr("ucx (tcp/eth0): 3.0 us"));
  EXPECT_EQ(JudgeClock("b", 0.3, 0.01).level, Level::kOk);
  EXPECT_EQ(JudgeClock("b", -2, 0.01).level, Level::kWarn);
  EXPECT_EQ(JudgeClock("b", 2, 3).level, Level::kOk) << "not known well enough";
}

}  // namespace
}  // namespace lamina::testing
