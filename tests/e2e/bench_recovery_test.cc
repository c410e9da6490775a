// `lamina bench recovery` on a cluster of real processes: what it counts, not how long it took.
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

class BenchRecovery : public ::testing::Test {
 protected:
  void SetUp() override {
    // Its ports are replaced by free ones.
    WriteFile(config_,
              "version: 1\n"
              "cluster: {name: small}\n"
              "nodes:\n"
              "  - {name: c0, role: compute, port: 7100}\n"
              "  - {name: m0, role: memory, port: 7101, memory: 16MiB, threads: 1}\n"
              "  - {name: m1, role: memory, port: 7102, memory: 16MiB, threads: 1}\n"
              "model: {path: " +
                  SourcePath("/models/tiny-stories") + "}\n");
  }

  // The lines of 8 streams.
  void Run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"bench", "recovery", config_, "--streams", "8",
                                         "--input-len", "16", "--output-len", "100", "--json"});
    const CommandOutput output = RunLamina(arguments, std::chrono::seconds(120));
    ASSERT_EQ(output.exit_status, 0) << output.err;
    std::istringstream lines(output.out);
    for (std::string line; std::getline(lines, line);) {
      lines_.push_back(json::parse(line));
      EXPECT_EQ(lines_.back()["name"], "recovery");
    }
  }

  // The line of a figure, of the fault if it is one of a fault's.
  json Line(const std::string& figure, const std::string& fault = "") const {
    for (const json& line : lines_) {
      if (line["case"]["figure"] == figure && line["case"].value("fault", "") == fault) return line;
    }
    ADD_FAILURE() << "no line has the figure " << figure << " " << fault;
    return {{"value", nullptr}};
  }

  void ExpectNothingLost() const {
    EXPECT_EQ(Line("errors")["value"], 0) << Line("errors").value("note", "");
    EXPECT_EQ(Line("different_tokens")["value"], 0);
    EXPECT_GT(Line("different_tokens")["details"]["compared"], 100);
    EXPECT_EQ(Line("slots_at_end")["value"], 0);
  }

  const TemporaryFolder folder_;
  const std::string config_ = folder_ / "c.yaml";
  std::vector<json> lines_;
};

TEST_F(BenchRecovery, StreamsOfAKilledMemoryNodeGoOnElsewhere) {
  const std::string chart = folder_ / "r.svg", fault = "kill m1@1s";
  ASSERT_NO_FATAL_FAILURE(
      Run({"--duration", "4s", "--kill", "m1@1s", "--chart", chart, "--temperature", "1"}));
  ExpectNothingLost();
  EXPECT_GE(Line("detection", fault)["value"], 0);
  const json interrupted = Line("interrupted", fault);
  EXPECT_GT(interrupted["value"], 0);
  EXPECT_EQ(interrupted["details"]["resumed"], interrupted["value"]);
  EXPECT_GT(Line("tokens_again", fault)["value"], 16 * interrupted["value"].get<double>())
      << "each with its prompt and what it had";
  const json last = Line("last_resumed", fault), alone = Line("prefill_alone", fault);
  EXPECT_GT(last["value"], 0);
  EXPECT_GT(alone["value"], 0);
  EXPECT_NEAR(Line("last_resumed_over_prefill", fault)["value"],
              last["value"].get<double>() / alone["value"].get<double>(), 1e-6);
  std::ostringstream svg;
  svg << std::ifstream(chart).rdbuf();
  EXPECT_THAT(svg.str(), HasSubstr(">" + fault + "<"));
  EXPECT_THAT(svg.str(), HasSubstr("</svg>"));
}

TEST_F(BenchRecovery, StreamsGoOnWithTheNextManager) {
  const std::string fault = "kill manager@1s";
  ASSERT_NO_FATAL_FAILURE(
      Run({"--duration", "4s", "--kill", "manager@1s", "--restart", "manager@1200ms"}));
  ExpectNothingLost();
  const json interrupted = Line("interrupted", fault);
  EXPECT_EQ(interrupted["value"], 8);
  EXPECT_EQ(interrupted["details"]["resumed"], 8);
  EXPECT_GE(Line("kv_kept", fault)["value"], 0.99);
  EXPECT_GE(Line("last_resumed", fault)["value"], 200);
}

TEST_F(BenchRecovery, ANodeThatHangsForAMomentCostsAPause) {
  const std::string fault = "stop m0@1s";
  ASSERT_NO_FATAL_FAILURE(Run({"--duration", "3s", "--stop", "m0@1s+500ms"}));
  ExpectNothingLost();
  const json interrupted = Line("interrupted", fault);
  EXPECT_GT(interrupted["value"], 0);
  EXPECT_EQ(interrupted["details"]["resumed"], interrupted["value"]);
  EXPECT_GT(Line("last_resumed", fault)["value"], 400) << "ms, of which it hung 500";
}

TEST_F(BenchRecovery, AFaultBehindTheLastTokenIsAnError) {
  const CommandOutput output = RunLamina({"bench", "recovery", config_, "--streams", "2",
                                          "--tokens", "3", "--no-check", "--kill", "m1@10m"});
  EXPECT_EQ(output.exit_status, 1);
  EXPECT_EQ(output.out, "");
  EXPECT_THAT(output.err, HasSubstr("before kill m1@10m: give more --tokens, or another time"));
}

}  // namespace
}  // namespace lamina::testing
