// `lamina simulate --measure`: the same workload in virtual time and on this machine's daemons.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/paths.h"
#include "tests/support/server_process.h"
#include "tests/support/temporary_folder.h"

namespace lamina::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr char kCatalog[] = R"(version: 1
devices:
- {name: laptop, bf16_tflops: 0.1, memory: 8GB, bandwidth_gb_per_s: 10, mfu: [{batch: 1, mfu: 0.5}], source: made up}
)";

CommandOutput Simulate(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"simulate"});
  return RunLamina(arguments, std::chrono::minutes(2));
}

// What the command printed of both, which have served the same requests.
void Read(const CommandOutput& output, json& simulated, json& measured) {
  ASSERT_EQ(output.exit_status, 0) << output.err;
  std::istringstream lines(output.out);
  std::string simulated_line, measured_line;
  ASSERT_TRUE(std::getline(lines, simulated_line) && std::getline(lines, measured_line))
      << output.out;
  simulated = json::parse(simulated_line);
  measured = json::parse(measured_line).at("measured");
  for (const char* key : {"completed", "total_input_tokens", "total_output_tokens"})
    EXPECT_EQ(measured.at(key), simulated.at(key)) << key;
}

TEST(MeasuredSimulation, ServesTheSameRequestsOnDevicesThatCompute) {
  const TemporaryFolder folder;
  std::ofstream(folder / "laptop.yaml") << kCatalog;
  const CommandOutput output =
      Simulate({SourcePath("/configs/local.yaml"), "--device-catalog", folder / "laptop.yaml",
                "--cpu-device", "laptop", "--num-prompts", "6", "--max-concurrency", "3",
                "--random-input-len", "uniform:5:20", "--random-output-len", "uniform:3:8",
                "--measure", "--json"});
  json simulated, measured;
  ASSERT_NO_FATAL_FAILURE(Read(output, simulated, measured));
  EXPECT_EQ(measured.at("completed"), 6);
  EXPECT_GT(measured.at("mean_tpot_ms").get<double>(), 0);
}

// The device is so slow that what the processes add hardly counts.
TEST(MeasuredSimulation, ServesTheSameWithoutMemoryNodes) {
  const TemporaryFolder folder;
  std::ofstream(folder / "slow.yaml") << "version: 1\ndevices:\n- {name: Slow, bf16_tflops: 20, "
                                         "memory: 40GB, bandwidth_gb_per_s: 200, mfu: [{batch: 1, "
                                         "mfu: 0.5}], source: made up}\n";
  std::ofstream(folder / "c.yaml")
      << "version: 1\ncluster: {name: alone, device_catalog: slow.yaml}\n"
         "nodes:\n- {name: c0, role: compute, port: 7100, memory: 10GB, "
         "device: \"modelled:Slow\"}\nmodel: {path: "
      << SourcePath("/configs/models/llama-13b") << "}\n";
  const CommandOutput output = Simulate(
      {folder / "c.yaml", "--num-prompts", "8", "--max-concurrency", "4", "--random-input-len",
       "uniform:50:200", "--random-output-len", "uniform:3:8", "--measure", "--json"});
  json simulated, measured;
  ASSERT_NO_FATAL_FAILURE(Read(output, simulated, measured));
  EXPECT_EQ(measured.at("completed"), 8);
  EXPECT_GT(measured.at("duration").get<double>(), 0.9 * simulated.at("duration").get<double>());
}

TEST(MeasuredSimulation, SaysWhatOnlyTheSimulatorCan) {
  const CommandOutput slow = Simulate({SourcePath("/configs/modelled-13b.yaml"), "--num-prompts",
                                       "2", "--random-output-len", "3", "--random-input-len", "8",
                                       "--slow", "m0:2@1s", "--measure"});
  EXPECT_EQ(slow.exit_status, 1);
  EXPECT_THAT(slow.err, HasSubstr("can only be simulated"));
}

}  // namespace
}  // namespace lamina::testing
