// `lamina bench kernels` as people run it, on sizes that take no time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "base/worker_team.h"
#include "bench/kernels/kernel_attention.h"
#include "kernels/cpu_features.h"
#include "manager/process.h"
#include "tests/support/paths.h"

namespace lamina {
namespace {

using ::testing::HasSubstr;

CommandOutput BenchKernels(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {BinPath("/lamina"), "bench", "kernels"});
  Result<CommandOutput> output = RunCommand(arguments, Deadline::After(std::chrono::minutes(2)));
  EXPECT_TRUE(output.ok()) << output.status();
  return output.ok() ? *output : CommandOutput{};
}

TEST(KernelsBench, PrintsOneLinePerCaseWithTheLimitOfTheSameRun) {
  if (!CpuSupports(CpuIsa::kAvx2)) GTEST_SKIP() << "this CPU lacks AVX2";
  const CommandOutput output =
      BenchKernels({"--quick", "--json", "--threads", "1", "--kv", "bf16"});
  ASSERT_EQ(output.exit_status, 0) << output.err;
  std::multiset<std::string> cases;
  std::istringstream in(output.out);
  for (std::string text; std::getline(in, text);) {
    const auto line = nlohmann::json::parse(text);
    const auto& sizes = line["case"];
    cases.insert(
        line["name"].get<std::string>() + " " +
        (sizes.contains("slots") ? sizes["slots"].get<std::string>() : sizes["rows"].dump()));
    EXPECT_EQ(sizes["threads"], 1) << text;
    EXPECT_GT(line["value"].get<double>(), 0) << text;
    EXPECT_EQ(line["unit"], line["name"] == "attention" ? "GB/s" : "GFLOP/s");
    if (line["reference"].is_null()) {  // OpenBLAS is not installed: the line says so
      EXPECT_EQ(line["name"], "linear_against_peer") << text;
      EXPECT_THAT(line["note"].get<std::string>(), HasSubstr("apt-get install")) << text;
    } else {
      EXPECT_GT(line["reference_value"].get<double>(), 0) << text;
      EXPECT_GT(line["ratio"].get<double>(), 0) << text;
    }
  }
  EXPECT_THAT(cases, ::testing::ElementsAre(
                         "attention churn", "attention random", "attention runs", "linear 1",
                         "linear 16", "linear_against_peer 1", "linear_against_peer 16",
                         "quantized_against_bf16 1", "quantized_against_bf16 1",
                         "quantized_against_bf16 1", "quantized_against_bf16 16",
                         "quantized_against_bf16 16", "quantized_against_bf16 16",
                         "quantized_linear 1", "quantized_linear 1", "quantized_linear 1",
                         "quantized_linear 16", "quantized_linear 16", "quantized_linear 16"));
}

TEST(KernelsBench, MeasuresEachKvDtype) {
  if (!CpuSupports(CpuIsa::kAvx2)) GTEST_SKIP() << "this CPU lacks AVX2";
  const CommandOutput output =
      BenchKernels({"--quick", "--json", "--threads", "1", "--only", "attention", "--slots", "runs",
                    "--kv", "bf16,fp16,fp8,int8s,fp8s"});
  ASSERT_EQ(output.exit_status, 0) << output.err;
  std::vector<std::string> measured;
  std::istringstream in(output.out);
  for (std::string text; std::getline(in, text);)
    measured.push_back(nlohmann::json::parse(text)["case"]["kv"]);
  EXPECT_THAT(measured, ::testing::ElementsAre("bfloat16", "float16", "fp8", "int8_per_token_head",
                                               "fp8_per_token_head"));
}

TEST(KernelsBench, RefusesWhatItDoesNotKnow) {
  EXPECT_EQ(BenchKernels({"--only", "convolution"}).exit_status, 2);
  EXPECT_EQ(BenchKernels({"--repeats", "0"}).exit_status, 2);
  const CommandOutput shape = BenchKernels({"--only", "linear", "--shapes", "large"});
  EXPECT_EQ(shape.exit_status, 1);
  EXPECT_THAT(shape.err, HasSubstr("\"large\" is no OUTxIN"));
  const CommandOutput behind = BenchKernels({"--only", "linear", "--shapes", "16x16foo"});
  EXPECT_EQ(behind.exit_status, 1);
  EXPECT_THAT(behind.err, HasSubstr("\"16x16foo\" is no OUTxIN"));
  const CommandOutput huge = BenchKernels({"--only", "linear", "--shapes", "1000000x1000000"});
  EXPECT_EQ(huge.exit_status, 1);
  EXPECT_THAT(huge.err, HasSubstr("more than half of this machine's"));
  EXPECT_THAT(BenchKernels({"--help"}).out, HasSubstr("Example:"));
}

TEST(KernelsBench, RefusesMoreThreadsThanCores) {
  const CommandOutput output =
      BenchKernels({"--quick", "--threads", std::to_string(NumAllowedCores() + 1)});
  EXPECT_EQ(output.exit_status, 1);
  EXPECT_THAT(output.err, HasSubstr("they are pinned to a core each, and this process may use " +
                                    std::to_string(NumAllowedCores())));
  EXPECT_EQ(output.out, "");
}

TEST(AttentionBench, MeasuresTheWholeContextHoweverLargeTheSlab) {
  if (!CpuSupports(CpuIsa::kAvx2)) GTEST_SKIP() << "this CPU lacks AVX2";
  constexpr int64_t kContext = 3000, kSlabBytes = 64 << 10;  // KV of 32 tokens
  const Result<std::unique_ptr<AttentionBench>> bench =
      AttentionBench::Create(DType::kBF16, 64, kSlabBytes, kContext);
  ASSERT_TRUE(bench.ok()) << bench.status();
  WorkerTeam team(1);
  for (const SlotOrder order : {SlotOrder::kRuns, SlotOrder::kRandom}) {
    const Result<Measurement> m =
        (*bench)->Measure({DType::kBF16, 64, 1, kContext, order}, 1, team);
    ASSERT_TRUE(m.ok()) << m.status();
    EXPECT_EQ(m->sizes["context"], kContext);
    EXPECT_EQ(m->sizes["sequences"], 2);
    EXPECT_EQ(m->sizes["mean_tokens"], kContext);
  }
  EXPECT_EQ(AttentionBench::Create(DType::kBF16, 64, kSlabBytes, int64_t{1} << 31).status().code(),
            StatusCode::kOutOfSpace);
}

TEST(KernelsBench, HasNoLimitForScalarKernels) {
  const std::string program = BinPath("/lamina");
  const Result<CommandOutput> output =
      RunCommand({"/usr/bin/env", "LAMINA_CPU_ISA=scalar", program, "bench", "kernels", "--quick"},
                 Deadline::After(std::chrono::minutes(2)));
  ASSERT_TRUE(output.ok()) << output.status();
  EXPECT_EQ(output->exit_status, 1);
  EXPECT_THAT(output->err, HasSubstr("LAMINA_CPU_ISA"));
}

}  // namespace
}  // namespace lamina
