// scripts/fit_host_costs.py finds the costs that made-up measurements were made of, and says what
// it needs.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "manager/process.h"
#include "tests/support/paths.h"
#include "tests/support/temporary_folder.h"

namespace lamina {
namespace {

int RunScript(const std::string& arguments) {
  return std::system(("python3 " + SourcePath("/scripts/fit_host_costs.py") + " " + arguments +
                      " > /dev/null 2>&1")
                         .c_str());
}

TEST(FitHostCostsTest, FindsWhatMadeUpMeasurementsWereMadeOf) {
  if (std::system("python3 -c '' > /dev/null 2>&1") != 0) GTEST_SKIP() << "there is no python3";
  EXPECT_EQ(RunScript("--self-check"), 0);
}

TEST(FitHostCostsTest, RefusesMeasurementsThatTellTooLittle) {
  if (std::system("python3 -c '' > /dev/null 2>&1") != 0) GTEST_SKIP() << "there is no python3";
  const TemporaryFolder folder;
  const std::string one =
      R"({"case":{"batch":16,"num_batches":1,"num_memory_nodes":1,"overlap":"off"},"details":{"step_ms":27,)"
      R"("ideal_linear_ms":21,"ideal_attention_ms":1,"manager_ms":0.5}})";
  const std::string three =
      R"({"case":{"batch":48,"num_batches":3,"num_memory_nodes":1,"overlap":"off"},"details":{"step_ms":66,)"
      R"("ideal_linear_ms":21,"ideal_attention_ms":1,"manager_ms":0.7}})";
  WriteFile(folder / "one.jsonl", one + "\n");
  WriteFile(folder / "both.jsonl", one + "\n" + three + "\n");
  EXPECT_NE(RunScript(folder / "one.jsonl" + std::string(" --layers 40")), 0);
  EXPECT_EQ(RunScript(folder / "both.jsonl" + std::string(" --layers 40")), 0);
  EXPECT_NE(RunScript(folder / "both.jsonl"), 0) << "without --layers";
}

// What it wrote of mistakes, and how it ended.
CommandOutput RunScriptForOutput(const std::vector<std::string>& arguments) {
  std::vector<std::string> argv = {"python3", SourcePath("/scripts/fit_host_costs.py")};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  Result<CommandOutput> output = RunCommand(argv, Deadline::After(std::chrono::seconds(60)));
  return output.ok() ? *output : CommandOutput{-1, "", output.status().ToString()};
}

TEST(FitHostCostsTest, MistakesAreSentences) {
  if (std::system("python3 -c '' > /dev/null 2>&1") != 0) GTEST_SKIP() << "there is no python3";
  const TemporaryFolder folder;
  const std::string good =
      R"({"case":{"batch":16,"num_batches":1,"num_memory_nodes":1},"details":{"step_ms":27,"ideal_linear_ms":21,)"
      R"("ideal_attention_ms":1,"manager_ms":0.5}})";
  struct Case {
    std::string bytes, expected;
  };
  const Case cases[] = {
      {"once upon a time", "measured:1: this is not JSON"},
      {good + "\n[1]\n", "measured:2: this is no JSON object"},
      {R"({"name":"transport"})", "measured:1: there is no object 'case'"},
      {R"({"case":{"batch":1,"num_batches":1,"num_memory_nodes":1},"details":{"step_ms":"27"}})",
       "measured:1: 'step_ms' of 'details' must be a number"},
      {R"({"case":{"batch":1,"num_batches":0,"num_memory_nodes":1},"details":{"step_ms":1,"ideal_linear_ms":1,)"
       R"("ideal_attention_ms":1,"manager_ms":1}})",
       "num_batches"},
      {"\xff\xfe\n", "measured: cannot be read"},
      {"", "there must be cases with one batch in flight"}};
  for (const Case& c : cases) {
    WriteFile(folder / "measured", c.bytes);
    const CommandOutput out = RunScriptForOutput({folder / "measured", "--layers", "40"});
    EXPECT_EQ(out.exit_status, 1) << c.bytes;
    EXPECT_EQ(out.out, "") << c.bytes;
    EXPECT_NE(out.err.find(c.expected), std::string::npos) << out.err;
    EXPECT_EQ(out.err.find("Traceback"), std::string::npos) << out.err;
  }
  const CommandOutput absent = RunScriptForOutput({folder / "absent", "--layers", "40"});
  EXPECT_EQ(absent.exit_status, 1);
  EXPECT_NE(absent.err.find("absent: cannot be read"), std::string::npos) << absent.err;
  for (const char* layers : {"0", "-3", "many"}) {
    const CommandOutput out = RunScriptForOutput({folder / "measured", "--layers", layers});
    EXPECT_EQ(out.exit_status, 2) << layers;
    EXPECT_NE(out.err.find("--layers"), std::string::npos) << out.err;
  }
}

}  // namespace
}  // namespace lamina
