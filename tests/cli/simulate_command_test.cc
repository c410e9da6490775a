// `lamina simulate` as a user runs it: its files, and what it says of mistakes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
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

const std::string kCluster = SourcePath("/configs/modelled-13b.yaml");

CommandOutput RunSimulate(std::vector<std::string> arguments) {
  const std::vector<std::string> common = {
      "simulate",           kCluster, "--num-prompts",       "5",
      "--random-input-len", "50",     "--random-output-len", "7"};
  arguments.insert(arguments.begin(), common.begin(), common.end());
  return RunLamina(arguments);
}

std::string FileText(const std::string& path) {
  std::ostringstream bytes;
  bytes << std::ifstream(path).rdbuf();
  return bytes.str();
}

TEST(SimulateCommand, HelpHasAnExample) {
  const CommandOutput help = RunLamina({"simulate", "--help"});
  EXPECT_EQ(help.exit_status, 0);
  EXPECT_THAT(help.out, HasSubstr("Examples:\n  lamina simulate configs/modelled-13b.yaml"));
  EXPECT_THAT(help.out, HasSubstr("--json-out"));
}

TEST(SimulateCommand, LengthsComeFromOnePlace) {
  for (const char* flag : {"--random-input-len", "--random-output-len"}) {
    const CommandOutput out = RunLamina(
        {"simulate", kCluster, "--num-prompts", "5", "--lengths-of", "azure-conv", flag, "50"});
    EXPECT_NE(out.exit_status, 0) << out.out;
    EXPECT_THAT(out.err, HasSubstr(std::string(flag) + " excludes --lengths-of"));
  }
}

TEST(SimulateCommand, SaysHowManyComputeNodesThereCanBe) {
  EXPECT_EQ(RunSimulate({"--compute-nodes", "16", "--pipeline", "none"}).exit_status, 0);
  const CommandOutput out = RunSimulate({"--compute-nodes", "17"});
  EXPECT_NE(out.exit_status, 0);
  EXPECT_THAT(out.err, HasSubstr("17 compute nodes hold the whole model each"));
  EXPECT_THAT(out.err, HasSubstr("at most 16 batches can be in flight"));
  EXPECT_THAT(RunLamina({"simulate", "--help"}).out, HasSubstr("at most 16 that hold the whole"));
}

TEST(SimulateCommand, JsonIsOneLineThatCanBeRead) {
  const CommandOutput run = RunSimulate({"--json"});
  ASSERT_EQ(run.exit_status, 0) << run.err;
  EXPECT_EQ(std::count(run.out.begin(), run.out.end(), '\n'), 1);
  const json report = json::parse(run.out, nullptr, false);
  ASSERT_FALSE(report.is_discarded()) << run.out;
  EXPECT_EQ(report.at("completed"), 5);
  EXPECT_EQ(report.at("total_output_tokens"), 35);
  EXPECT_GT(report.at("output_throughput"), 0);
  EXPECT_THAT(RunSimulate({}).out, HasSubstr("simulated in"));
}

TEST(SimulateCommand, WritesFilesUnderTheNamesOfBenchServe) {
  const std::vector<std::vector<std::string>> names = {
      {"--json-out", "--requests-out", "--svg"},
      {"--result-filename", "--requests-filename", "--svg-filename"}};
  for (const std::vector<std::string>& name : names) {
    const TemporaryFolder folder;
    const std::string result = folder / "run.json", requests = folder / "requests.jsonl",
                      svg = folder / "run.svg";
    const CommandOutput run = RunSimulate({name[0], result, name[1], requests, name[2], svg});
    ASSERT_EQ(run.exit_status, 0) << run.err;
    EXPECT_TRUE(json::parse(FileText(result), nullptr, false).contains("timeline"));
    std::istringstream lines(FileText(requests));
    int num_lines = 0;
    for (std::string line; std::getline(lines, line); ++num_lines)
      EXPECT_TRUE(json::accept(line)) << line;
    EXPECT_EQ(num_lines, 5);
    EXPECT_THAT(FileText(svg), HasSubstr("</svg>"));
    for (const std::string& option : name)
      EXPECT_THAT(RunLamina({"bench", "serve", "--help"}).out, HasSubstr(option));
  }
}

TEST(SimulateCommand, MistakesAreNamed) {
  const TemporaryFolder folder;
  WriteFile(folder / "events.yaml",
            "events:\n- {at: 1s, slow: m0, factor: 2}\n- {at: soon, fail: m0}\n");
  WriteFile(folder / "other.yaml", "events:\n- {at: 1s, fail: no-such-node}\n");
  struct Case {
    std::vector<std::string> arguments;
    std::string expected;
  };
  const Case cases[] = {
      {{"--no-such-option"}, "--no-such-option"},
      {{"--pipeline", "sideways"}, "--pipeline"},
      {{"--memory-nodes", "0"}, "--memory-nodes"},
      {{"--latency", "fast"}, "--latency"},
      {{"--slow", "m0@1s"}, "--slow"},
      {{"--fail", "m0"}, "--fail"},
      {{"--events", folder / "none.yaml"}, "none.yaml: cannot be opened"},
      {{"--events", folder / "events.yaml"},
       "events.yaml:3: 'at' must be a time such as 10s or 250ms"},
      {{"--events", folder / "other.yaml"}, "no-such-node"},
      {{"--host-costs", folder / "events.yaml"}, "events.yaml:1: "},
      {{"--dataset-path", folder / "none.csv"}, "none.csv"},
      {{"--json-out", "/no/such/folder/run.json"}, "cannot write /no/such/folder/run.json"}};
  for (const Case& c : cases) {
    const CommandOutput run = RunSimulate(c.arguments);
    EXPECT_THAT(run.exit_status, ::testing::AnyOf(1, 2)) << c.expected;
    EXPECT_THAT(run.err, HasSubstr(c.expected));
  }
  EXPECT_EQ(RunLamina({"simulate"}).exit_status, 2) << "without a cluster";
  const CommandOutput absent = RunLamina({"simulate", "no-such-cluster.yaml"});
  EXPECT_EQ(absent.exit_status, 1);
  EXPECT_THAT(absent.err, HasSubstr("no-such-cluster.yaml"));
}

}  // namespace
}  // namespace lamina::testing
