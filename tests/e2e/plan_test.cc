// `lamina plan` as a user runs it: its answer, its files, and that the cluster it writes runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "tests/support/paths.h"
#include "tests/support/temporary_folder.h"

namespace lamina::testing {
namespace plan_test {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

struct Ran {
  int status = -1;
  std::string output;  // stdout and stderr
};

Ran RunLamina(const std::string& arguments, const std::string& folder = SourcePath()) {
  const std::string command =
      "cd " + folder + " && " + BinPath("/lamina") + " " + arguments + " 2>&1";
  Ran ran;
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return ran;
  std::array<char, 4096> bytes{};
  while (const size_t got = fread(bytes.data(), 1, bytes.size(), pipe))
    ran.output.append(bytes.data(), got);
  const int status = pclose(pipe);
  ran.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return ran;
}

TEST(PlanCommand, AnswersInATableAndInJson) {
  const Ran table =
      RunLamina("plan configs/models/llama-3-70b --input-len 4096 --output-len 512 --tpot 100ms");
  EXPECT_EQ(table.status, 0) << table.output;
  EXPECT_THAT(table.output, HasSubstr("isaggregate"));
  EXPECT_THAT(table.output, HasSubstr("limited by"));
  const Ran json = RunLamina(
      "plan configs/models/llama-3-70b/config.json --lengths-of azure-conv --rate 20 --price buy "
      "--json");
  ASSERT_EQ(json.status, 0) << json.output;
  const nlohmann::json parsed = nlohmann::json::parse(json.output, nullptr, false);
  ASSERT_FALSE(parsed.is_discarded()) << json.output;
  EXPECT_EQ(parsed.at("prices"), "buy");
  EXPECT_NEAR(parsed.at("disaggregated").at(0).at("tokens_per_s").get<double>(),
              20 * parsed.at("workload").at("mean_output_tokens").get<double>(), 1e-6);
}

TEST(PlanCommand, TheClusterItWritesRunsOnModelledDevices) {
  const TemporaryFolder folder;
  const std::string yaml = folder / "cluster.yaml", svg = folder / "plan.svg";
  const Ran plan = RunLamina(
      "plan configs/models/llama-13b --input-len 200 --output-len 100 --prefill elsewhere "
      "--compute A100-40G --memory RTX3090 "
      "--max-replicas 1 --max-ranks 1 --max-memory-nodes 2 --emit " +
      yaml + " --svg " + svg);
  ASSERT_EQ(plan.status, 0) << plan.output;
  std::ifstream picture(svg);
  EXPECT_THAT(std::string((std::istreambuf_iterator<char>(picture)), {}),
              HasSubstr("A100-40G + 2 x RTX3090"));
  const Ran bench =
      RunLamina("bench modelled " + yaml + " --batch 36 --context 200 --steps 5 --json");
  ASSERT_EQ(bench.status, 0) << bench.output;
  EXPECT_THAT(bench.output, HasSubstr("\"batch\":36"));
}

// A device with a measured profile: its times are of whole layers, which ranks have no use for.
TEST(PlanCommand, WritesNoClusterThatTheRuntimeRefuses) {
  const TemporaryFolder folder;
  const std::string header =
      "n_head,n_kv_head,n_embd,n_expanded_embd,num_tokens,num_tensor_parallel_workers,input_"
      "layernorm_ms,attn_pre_proj_ms,attn_rope_ms,"
      "attn_post_proj_ms,post_attention_layernorm_ms,mlp_up_proj_ms,mlp_act_ms,mlp_down_proj_ms,"
      "add_ms\n";
  std::ofstream(folder / "p.csv")
      << header << "40,40,5120,13824,1,2,0.01,0.05,0.01,0.02,0.01,0.1,0.01,0.05,0.01\n"
      << "40,40,5120,13824,1,1,0.01,0.1,0.01,0.04,0.01,0.2,0.01,0.1,0.01\n";
  std::ofstream(folder / "d.yaml")
      << "version: 1\nextends: " << SourcePath()
      << "/configs/devices-2026.yaml\ndevices:\n- {name: A100-40G, memory: 16GB, profile: p.csv}\n";
  const std::string plan =
      "plan configs/models/llama-13b --input-len 200 --output-len 100 --prefill elsewhere "
      "--compute A100-40G --memory "
      "RTX3090 --max-replicas 1 --max-ranks 2 --max-memory-nodes 2 --catalog " +
      (folder / "d.yaml") + " --emit " + (folder / "c.yaml");
  const Ran two = RunLamina(plan);
  EXPECT_EQ(two.status, 1);
  EXPECT_THAT(
      two.output,
      ContainsRegex("--emit: .*2 x A100-40G .tensor parallel.*is of whole layers.*--max-ranks 1"));
  EXPECT_FALSE(std::ifstream(folder / "c.yaml").good());
}

TEST(PlanCommand, SaysWhatATraceLacksAndWhoCountedItsTokens) {
  const TemporaryFolder folder;
  const std::string turn = R"({"value": "once upon a time there was a princess"})";
  std::ofstream(folder / "s.json") << R"([{"conversations": [)" << turn << "," << turn
                                   << R"(]}, {"conversations": [)" << turn << "]}]";
  const std::string plan =
      "plan configs/models/llama-13b --compute H100 --memory H20 --trace " + (folder / "s.json");
  const Ran text = RunLamina(plan);
  ASSERT_EQ(text.status, 0) << text.output;
  EXPECT_THAT(text.output, HasSubstr("1 requests of the file are left out"));
  EXPECT_THAT(text.output, HasSubstr("Token counts are estimated: a token for every 4 bytes."));
  const nlohmann::json json =
      nlohmann::json::parse(RunLamina(plan + " --json").output, nullptr, false);
  ASSERT_FALSE(json.is_discarded());
  EXPECT_EQ(json.at("workload").at("num_left_out"), 1);
  EXPECT_EQ(json.at("workload").at("counted_by"), "estimated: a token for every 4 bytes");
}

TEST(PlanCommand, FindsItsCatalogFromAnyFolder) {
  const TemporaryFolder folder;
  const Ran plan =
      RunLamina("plan " + SourcePath("/configs/models/llama-13b") + " --compute H100 --memory H20",
                folder.path());
  EXPECT_EQ(plan.status, 0) << plan.output;
}

TEST(PlanCommand, MistakesAreNamed) {
  const Ran both = RunLamina("plan configs/models/llama-13b --lengths-of alpaca --input-len 500");
  EXPECT_NE(both.status, 0);
  EXPECT_THAT(both.output, HasSubstr("--lengths-of excludes --input-len"));
  EXPECT_THAT(
      RunLamina("simulate configs/modelled-13b.yaml --lengths-of alpaca --random-output-len 5")
          .output,
      HasSubstr("--random-output-len excludes --lengths-of"));
  const Ran model = RunLamina("plan no-such-model");
  EXPECT_EQ(model.status, 1);
  EXPECT_THAT(model.output, HasSubstr("no-such-model/config.json"));
  EXPECT_THAT(RunLamina("plan configs/models/llama-13b --compute A101").output,
              HasSubstr("has no 'A101'"));
  EXPECT_THAT(RunLamina("plan configs/models/llama-13b --tpot 100").output, HasSubstr("--tpot"));
  const Ran never = RunLamina("plan configs/models/llama-13b --tpot 1us");
  EXPECT_EQ(never.status, 1);
  EXPECT_THAT(never.output, HasSubstr("no cluster of these devices"));
  const Ran long_ones = RunLamina("plan configs/models/llama-13b --input-len 3000");
  EXPECT_EQ(long_ones.status, 1);
  EXPECT_THAT(long_ones.output, HasSubstr("all 10000 requests are longer, prompt and answer, than "
                                          "the 2048 tokens of the model's context"));
  const Ran some = RunLamina(
      "plan configs/models/llama-13b --input-len uniform:1000:3000 --output-len 48 --compute H100 "
      "--memory H20");
  EXPECT_EQ(some.status, 0);
  EXPECT_THAT(
      some.output,
      ContainsRegex(
          "[45]... requests are left out: they have more tokens than the model's context of 2048"));
  EXPECT_THAT(RunLamina("plan --help").output, HasSubstr("Examples:"));
}

}  // namespace plan_test
}  // namespace lamina::testing
