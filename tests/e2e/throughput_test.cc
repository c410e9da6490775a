// `lamina bench throughput`: what its options mean. The rates are nobody's promise.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/paths.h"
#include "tests/support/server_process.h"

namespace lamina::testing {
namespace throughput_test {

using nlohmann::json;
using ::testing::HasSubstr;

const std::string kModel = SourcePath("/models/tiny-stories");

TEST(Throughput, DecodeOnlyIsHeldAgainstThisMachinesLimits) {
  const CommandOutput out = RunLamina({"bench", "throughput", kModel, "--load-format", "dummy",
                                       "--decode-only", "--num-prompts", "3", "--input-len", "100",
                                       "--output-len", "6", "--repeats", "1", "--json"});
  ASSERT_EQ(out.exit_status, 0) << out.err;
  const json line = json::parse(out.out);
  EXPECT_TRUE(line["case"]["decode_only"].get<bool>());
  EXPECT_GT(line["value"].get<double>(), 0);
  EXPECT_GT(line["reference_value"].get<double>(), 0);
  EXPECT_GT(line["details"]["limit_tokens_per_s"].get<double>(), 0);
  const CommandOutput wrong =
      RunLamina({"bench", "throughput", kModel, "--decode-only", "--output-len", "1"});
  EXPECT_EQ(wrong.exit_status, 1);
  EXPECT_THAT(wrong.err, HasSubstr("--decode-only needs an --output-len of at least 2"));
}

TEST(Throughput, DecodeOnlyRefusesMemoryThatDoesNotHoldTheWholeBatch) {
  const std::vector<std::string> command = {
      "bench", "throughput",  kModel, "--load-format", "dummy", "--decode-only", "--num-prompts",
      "5",     "--input-len", "100",  "--output-len",  "6",     "--memory",      "100KiB"};
  const CommandOutput out = RunLamina(command);
  EXPECT_EQ(out.exit_status, 1);
  const json config = json::parse(std::ifstream(std::string(kModel) + "/config.json"));
  const int64_t head_dim =
      config["hidden_size"].get<int64_t>() / config["num_attention_heads"].get<int64_t>();
  const int64_t token_bytes = 2 * config["num_hidden_layers"].get<int64_t>() *
                              config["num_key_value_heads"].get<int64_t>() * head_dim *
                              (config["torch_dtype"] == "float32" ? 4 : 2);
  const std::string needed = std::to_string(3 * 106 * token_bytes);
  EXPECT_THAT(out.err, HasSubstr("5 sequences of 106 tokens need " + needed +
                                 " bytes of KV on each of the 2 memory nodes"));
  EXPECT_THAT(out.err, HasSubstr("--memory is 102400 bytes"));
  std::vector<std::string> in_8_bits = command;
  in_8_bits.insert(in_8_bits.end(), {"--kv-dtype", "fp8"});
  const std::string of_8_bits =
      std::to_string(3 * 106 * token_bytes / (config["torch_dtype"] == "float32" ? 4 : 2));
  EXPECT_THAT(RunLamina(in_8_bits).err, HasSubstr("need " + of_8_bits + " bytes of KV"));
  in_8_bits.back() = "int8_per_token_head";
  const std::string with_scales =
      std::to_string(3 * 106 * 2 * config["num_hidden_layers"].get<int64_t>() *
                     config["num_key_value_heads"].get<int64_t>() * (head_dim + 4));
  EXPECT_THAT(RunLamina(in_8_bits).err, HasSubstr("need " + with_scales + " bytes of KV"));
}

TEST(Throughput, RefusesWhatNobodyKnows) {
  for (const std::vector<std::string>& wrong :
       std::vector<std::vector<std::string>>{{"--kv-dtype", "foo"},
                                             {"--load-format", "foo"},
                                             {"--transport", "foo"},
                                             {"--compute-threads", "1025"},
                                             {"--memory-threads", "1025"}}) {
    std::vector<std::string> command = {"bench", "throughput", "/no/model"};
    command.insert(command.end(), wrong.begin(), wrong.end());
    EXPECT_EQ(RunLamina(command).exit_status, 2) << wrong[0];
  }
}

}  // namespace throughput_test
}  // namespace lamina::testing
