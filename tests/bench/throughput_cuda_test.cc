// `lamina bench throughput` and `lamina serve` with --device cuda:0, which run where there is a
// device or its emulation, and say what is missing elsewhere.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "kernels/cuda/device.h"
#include "manager/process.h"
#include "tests/support/paths.h"

namespace lamina {
namespace throughput_cuda_test {

using ::testing::HasSubstr;

const std::string kModel = SourcePath("/models/tiny-stories");

CommandOutput Lamina(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), BinPath("/lamina"));
  Result<CommandOutput> output = RunCommand(arguments, Deadline::After(std::chrono::minutes(4)));
  EXPECT_TRUE(output.ok()) << output.status();
  return output.ok() ? *output : CommandOutput{};
}

TEST(ThroughputOnCuda, ClusterAndOneProcessShareTheGpu) {
  const CommandOutput output =
      Lamina({"bench", "throughput", kModel, "--device", "cuda:0", "--memory-nodes", "1",
              "--num-prompts", "2", "--input-len", "8", "--output-len", "5", "--repeats", "1",
              "--memory", "16MiB", "--json"});
  const Result<int> count = cuda::DeviceCount();
  if (!count.ok()) {
    EXPECT_EQ(output.exit_status, 1);
    EXPECT_THAT(output.err, HasSubstr(count.status().message()));
    GTEST_SKIP() << "no CUDA device: " << count.status();
  }
  ASSERT_EQ(output.exit_status, 0) << output.err;
  const auto line = nlohmann::json::parse(output.out);
  EXPECT_EQ(line["case"]["device"], "cuda:0");
  EXPECT_EQ(line["case"]["memory_device"], "cuda:0");
  EXPECT_GT(line["value"].get<double>(), 0);
  EXPECT_GT(line["reference_value"].get<double>(), 0);
}

TEST(ServeOnCuda, AMemoryNodeOnTheCpuServesAGpu) {
  const CommandOutput output =
      Lamina({"serve", kModel, "--device", "cuda:0", "--memory-device", "cpu", "--memory-nodes",
              "1", "--port", "0", "--prompt", "Once upon a time", "--max-tokens", "8", "--once"});
  if (const Result<int> count = cuda::DeviceCount(); !count.ok()) {
    EXPECT_EQ(output.exit_status, 1);
    EXPECT_THAT(output.err, HasSubstr(count.status().message()));
    GTEST_SKIP() << "no CUDA device: " << count.status();
  }
  const CommandOutput on_cpu =
      Lamina({"serve", kModel, "--memory-nodes", "1", "--port", "0", "--prompt", "Once upon a time",
              "--max-tokens", "8", "--once"});
  const auto answer = [](const std::string& text) {
    const size_t begin = text.find("\nOnce upon a time");
    return text.substr(begin, text.find("\n\n", begin + 1) - begin);
  };
  EXPECT_GT(answer(on_cpu.out).size(), 20u) << on_cpu.out << on_cpu.err;
  EXPECT_EQ(answer(output.out), answer(on_cpu.out)) << output.out << output.err;
}

TEST(DeviceOptions, NameDevicesOfThisHost) {
  for (const std::string name : {"gpu", "cuda:x", "modelled:H100"}) {
    const CommandOutput serve = Lamina({"serve", kModel, "--device", name});
    EXPECT_EQ(serve.exit_status, 2);
    EXPECT_THAT(serve.err,
                HasSubstr("'" + name + "': expected cpu, or cuda:N with the number of a GPU"));
    const CommandOutput bench = Lamina({"bench", "throughput", kModel, "--memory-device", name});
    EXPECT_EQ(bench.exit_status, 1);
    EXPECT_THAT(bench.err, HasSubstr("--device: \"" + name + "\" is neither cpu nor cuda:N"));
  }
}

}  // namespace throughput_cuda_test
}  // namespace lamina
