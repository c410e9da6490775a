// `lamina bench kernels` as people run it, on sizes that take no time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "frontend/process.h"
#include "kernels/cpu_features.h"

namespace lamina {
namespace {

using testing::HasSubstr;

CommandOutput BenchKernels(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {std::string(LAMINA_BIN_DIR) + "/lamina", "bench", "kernels"});
  Result<CommandOutput> output = RunCommand(arguments, Deadline::After(std::chrono::minutes(2)));
  EXPECT_TRUE(output.ok()) << output.status();
  return output.ok() ? *output : CommandOutput{};
}

TEST(KernelsBench, PrintsOneLinePerCaseWithTheLimitOfTheSameRun) {
  if (!CpuSupports(CpuIsa::kAvx2)) GTEST_SKIP() << "this CPU lacks AVX2";
  const CommandOutput output = BenchKernels({"--quick", "--json", "--threads", "1", "--kv", "bf16"});
  ASSERT_EQ(output.exit_status, 0) << output.err;
  std::multiset<std::string> cases;
  std::istringstream in(output.out);
  for (std::string text; std::getline(in, text);) {
    const auto line = nlohmann::json::parse(text);
    const auto& sizes = line["case"];
    cases.insert(line["name"].get<std::string>() + " " +
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
  EXPECT_THAT(cases, testing::ElementsAre("attention churn", "attention random", "attention runs", "linear 1", "linear 16",
                                          "linear_against_peer 1", "linear_against_peer 16"));
}

TEST(KernelsBench, RefusesWhatItDoesNotKnow) {
  EXPECT_EQ(BenchKernels({"--only", "convolution"}).exit_status, 2);
  EXPECT_EQ(BenchKernels({"--repeats", "0"}).exit_status, 2);
  const CommandOutput shape = BenchKernels({"--only", "linear", "--shapes", "large"});
  EXPECT_EQ(shape.exit_status, 1);
  EXPECT_THAT(shape.err, HasSubstr("\"large\" is no OUTxIN"));
  EXPECT_THAT(BenchKernels({"--help"}).out, HasSubstr("Example:"));
}

TEST(KernelsBench, HasNoLimitForScalarKernels) {
  const std::string program = std::string(LAMINA_BIN_DIR) + "/lamina";
  const Result<CommandOutput> output = RunCommand({"/usr/bin/env", "LAMINA_CPU_ISA=scalar", program, "bench", "kernels", "--quick"},
                                                  Deadline::After(std::chrono::minutes(2)));
  ASSERT_TRUE(output.ok()) << output.status();
  EXPECT_EQ(output->exit_status, 1);
  EXPECT_THAT(output->err, HasSubstr("LAMINA_CPU_ISA"));
}

}  // namespace
}  // namespace lamina
