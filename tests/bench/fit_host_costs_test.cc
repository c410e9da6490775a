// scripts/fit_host_costs.py finds the costs that made-up measurements were made of, and says what it needs.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "tests/support/temporary_folder.h"

namespace lamina {
namespace {

int RunScript(const std::string& arguments) {
  return std::system(("python3 " LAMINA_SOURCE_DIR "/scripts/fit_host_costs.py " + arguments + " > /dev/null 2>&1").c_str());
}

TEST(FitHostCostsTest, FindsWhatMadeUpMeasurementsWereMadeOf) {
  if (std::system("python3 -c '' > /dev/null 2>&1") != 0) GTEST_SKIP() << "there is no python3";
  EXPECT_EQ(RunScript("--self-check"), 0);
}

TEST(FitHostCostsTest, RefusesMeasurementsThatTellTooLittle) {
  if (std::system("python3 -c '' > /dev/null 2>&1") != 0) GTEST_SKIP() << "there is no python3";
  const TemporaryFolder folder;
  const std::string one = R"({"case":{"batch":16,"num_batches":1,"num_memory_nodes":1,"overlap":"off"},"details":{"step_ms":27,)"
                          R"("ideal_linear_ms":21,"ideal_attention_ms":1,"manager_ms":0.5}})";
  const std::string three = R"({"case":{"batch":48,"num_batches":3,"num_memory_nodes":1,"overlap":"off"},"details":{"step_ms":66,)"
                            R"("ideal_linear_ms":21,"ideal_attention_ms":1,"manager_ms":0.7}})";
  WriteFile(folder / "one.jsonl", one + "\n");
  WriteFile(folder / "both.jsonl", one + "\n" + three + "\n");
  EXPECT_NE(RunScript(folder / "one.jsonl" + std::string(" --layers 40")), 0);
  EXPECT_EQ(RunScript(folder / "both.jsonl" + std::string(" --layers 40")), 0);
  EXPECT_NE(RunScript(folder / "both.jsonl"), 0) << "without --layers";
}

}  // namespace
}  // namespace lamina
