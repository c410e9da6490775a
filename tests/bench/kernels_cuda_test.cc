// `lamina bench kernels --device cuda:0`, which runs where there is a device or its emulation, and
// says what is missing elsewhere.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>

#include "kernels/cuda/device.h"
#include "manager/process.h"
#include "tests/support/paths.h"

namespace lamina {
namespace {

CommandOutput BenchCudaKernels(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(),
                   {BinPath("/lamina"), "bench", "kernels", "--quick", "--json"});
  Result<CommandOutput> output = RunCommand(arguments, Deadline::After(std::chrono::minutes(2)));
  EXPECT_TRUE(output.ok()) << output.status();
  return output.ok() ? *output : CommandOutput{};
}

TEST(CudaKernelsBench, PrintsOneLinePerCaseOrWhyItCannot) {
  // Emulated devices then can poll for messages.
  setenv("LAMINA_EMULATED_STREAMS", "threads", /*overwrite=*/1);
  const CommandOutput output = BenchCudaKernels({"--device", "cuda:0", "--kv", "bf16"});
  unsetenv("LAMINA_EMULATED_STREAMS");
  const Result<int> count = cuda::DeviceCount();
  if (!count.ok()) {
    EXPECT_EQ(output.exit_status, 1);
    EXPECT_EQ(output.err, "lamina bench kernels: " + count.status().message() + "\n");
    GTEST_SKIP() << "no CUDA device: " << count.status();
  }
  ASSERT_EQ(output.exit_status, 0) << output.err;
  std::vector<std::string> cases;
  std::istringstream in(output.out);
  for (std::string text; std::getline(in, text);) {
    const auto line = nlohmann::json::parse(text);
    const auto& sizes = line["case"];
    cases.push_back(line["name"].get<std::string>() +
                    (sizes.contains("rows") ? " " + sizes["rows"].dump() : "") +
                    (sizes.contains("x") ? " " + sizes["x"].get<std::string>() : ""));
    EXPECT_GT(line["value"].get<double>(), 0) << text;
    EXPECT_GT(line["reference_value"].get<double>(), 0) << text;
    EXPECT_FALSE(sizes["device"].get<std::string>().empty());
  }
  std::vector<std::string> expected = {"attention", "linear 1 split", "linear 1 rounded",
                                       "linear 16 split", "linear 16 rounded"};
  for (int format = 0; format < 3; ++format) {
    for (const std::string rows : {"1", "16"})
      expected.insert(expected.end(),
                      {"quantized_linear " + rows, "quantized_against_bf16 " + rows});
  }
  expected.insert(expected.end(), {"slice 1", "slice 16", "attention_round_trip 1"});
  EXPECT_EQ(cases, expected);
}

TEST(CudaKernelsBench, MeasuresKAndVWithScales) {
  if (const Result<int> count = cuda::DeviceCount(); !count.ok()) GTEST_SKIP() << count.status();
  const CommandOutput output =
      BenchCudaKernels({"--device", "cuda:0", "--only", "attention", "--kv", "int8s,fp8s"});
  ASSERT_EQ(output.exit_status, 0) << output.err;
  EXPECT_THAT(output.out, ::testing::HasSubstr("\"int8_per_token_head\""));
  EXPECT_THAT(output.out, ::testing::HasSubstr("\"fp8_per_token_head\""));
}

TEST(CudaKernelsBench, SlicesAndRoundTripsAreForGpus) {
  for (const std::string kernel : {"slice", "round-trip"}) {
    const CommandOutput output = BenchCudaKernels({"--only", kernel});
    EXPECT_EQ(output.exit_status, 1);
    EXPECT_EQ(output.err, "lamina bench kernels: --only " + kernel +
                              ": it is measured on a GPU, with --device cuda:N\n");
  }
}

TEST(CudaKernelsBench, RefusesWhatIsNoDevice) {
  for (const std::string name : {"gpu", "cuda:0x", "modelled:H100"}) {
    const CommandOutput output = BenchCudaKernels({"--device", name});
    EXPECT_EQ(output.exit_status, 1);
    EXPECT_THAT(output.err,
                ::testing::HasSubstr("--device: \"" + name + "\" is neither cpu nor cuda:N"));
  }
}

}  // namespace
}  // namespace lamina
