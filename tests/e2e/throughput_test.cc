// `lamina bench throughput`: what its options mean. The rates are nobody's promise.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/server_process.h"

namespace lamina::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr char kModel[] = LAMINA_SOURCE_DIR "/models/tiny-stories";

TEST(Throughput, DecodeOnlyIsHeldAgainstThisMachinesLimits) {
  const CommandOutput out = RunLamina({"bench", "throughput", kModel, "--load-format", "dummy", "--decode-only", "--num-prompts", "3",
                                       "--input-len", "100", "--output-len", "6", "--repeats", "1", "--json"});
  ASSERT_EQ(out.exit_status, 0) << out.err;
  const json line = json::parse(out.out);
  EXPECT_TRUE(line["case"]["decode_only"].get<bool>());
  EXPECT_GT(line["value"].get<double>(), 0);
  EXPECT_GT(line["reference_value"].get<double>(), 0);
  EXPECT_GT(line["details"]["limit_tokens_per_s"].get<double>(), 0);
  const CommandOutput wrong = RunLamina({"bench", "throughput", kModel, "--decode-only", "--output-len", "1"});
  EXPECT_EQ(wrong.exit_status, 1);
  EXPECT_THAT(wrong.err, HasSubstr("--decode-only needs an --output-len of at least 2"));
}

}  // namespace
}  // namespace lamina::testing
