// `lamina bench transport` as people run it: real processes, tiny sizes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "manager/process.h"
#include "tests/support/paths.h"

namespace lamina {
namespace {

using ::testing::HasSubstr;

CommandOutput Bench(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {BinPath("/lamina"), "bench", "transport"});
  Result<CommandOutput> output = RunCommand(arguments, Deadline::After(std::chrono::minutes(2)));
  EXPECT_TRUE(output.ok()) << output.status();
  return output.ok() ? *output : CommandOutput{};
}

TEST(TransportBench, PrintsOneLinePerFabricMeasureAndSize) {
  const CommandOutput output =
      Bench({"--json", "--fabric", "shm,tcp", "--max-bytes", "64", "--repeats", "1"});
  ASSERT_EQ(output.exit_status, 0) << output.err;
  std::vector<std::string> cases;
  std::istringstream in(output.out);
  for (std::string text; std::getline(in, text);) {
    const auto line = nlohmann::json::parse(text);
    cases.push_back(line["name"].get<std::string>() + " " +
                    line["case"]["fabric"].get<std::string>() + " " + line["case"]["bytes"].dump());
    EXPECT_GT(line["value"].get<double>(), 0) << text;
    EXPECT_EQ(line["unit"], line["name"] == "transport_latency" ? "us" : "GB/s");
    if (line["reference"].is_null()) {  // its program is not installed: the line says so
      EXPECT_THAT(line["note"].get<std::string>(), HasSubstr("apt-get install")) << text;
      EXPECT_TRUE(line["ratio"].is_null()) << text;
    } else {
      EXPECT_GT(line["reference_value"].get<double>(), 0) << text;
      EXPECT_GT(line["ratio"].get<double>(), 0) << text;
    }
  }
  EXPECT_THAT(cases,
              ::testing::ElementsAre("transport_latency shm 8", "transport_latency shm 64",
                                     "transport_bandwidth shm 8", "transport_bandwidth shm 64",
                                     "transport_latency tcp 8", "transport_latency tcp 64",
                                     "transport_bandwidth tcp 8", "transport_bandwidth tcp 64"));
}

TEST(TransportBench, MissingReferenceIsSaidNotInvented) {
  std::string path = BinPath();
  const Result<CommandOutput> output =
      RunCommand({"/usr/bin/env", "PATH=" + path, path + "/lamina", "bench", "transport", "--json",
                  "--fabric", "shm", "--min-bytes", "8", "--max-bytes", "8", "--repeats", "1"},
                 Deadline::After(std::chrono::minutes(2)));
  ASSERT_TRUE(output.ok() && output->exit_status == 0) << output->err;
  const auto line = nlohmann::json::parse(output->out.substr(0, output->out.find('\n')));
  EXPECT_TRUE(line["reference"].is_null() && line["reference_value"].is_null() &&
              line["ratio"].is_null());
  EXPECT_THAT(line["note"].get<std::string>(), HasSubstr("ucx-utils"));
}

TEST(TransportBench, RefusesWhatItDoesNotKnow) {
  const CommandOutput pigeon = Bench({"--fabric", "pigeon"});
  EXPECT_EQ(pigeon.exit_status, 1);
  EXPECT_THAT(pigeon.err, HasSubstr("\"pigeon\" does not exist"));
  const CommandOutput loopback = Bench({"--fabric", "shm,loopback"});
  EXPECT_EQ(loopback.exit_status, 1);
  EXPECT_THAT(loopback.err, HasSubstr("\"loopback\" does not exist, or joins no two processes"));
  EXPECT_EQ(loopback.out, "");
  EXPECT_EQ(Bench({"--max-bytes", "many"}).exit_status, 2);
  EXPECT_EQ(Bench({"--min-bytes", "16", "--max-bytes", "8"}).exit_status, 1);
  EXPECT_THAT(Bench({"--help"}).out, HasSubstr("Example:"));
}

}  // namespace
}  // namespace lamina
