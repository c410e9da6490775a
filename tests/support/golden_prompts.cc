#include "tests/support/golden_prompts.h"

#include <fstream>
#include <nlohmann/json.hpp>

namespace lamina::testing {

std::vector<GoldenPrompt> GoldenPromptsIn(const std::string& path) {
  std::ifstream file(path);
  const nlohmann::json json = nlohmann::json::parse(file);
  std::vector<GoldenPrompt> prompts;
  for (const auto& entry : json["prompts"]) {
    GoldenPrompt golden{entry["prompt"], entry["prompt_ids"],   entry["continuation_ids"], {},
                        entry["text"],   entry["finish_reason"]};
    for (const auto& step : entry["steps"]) golden.logprobs.push_back(step["logprob"]);
    prompts.push_back(std::move(golden));
  }
  return prompts;
}

const std::vector<GoldenPrompt>& GoldenPrompts(DType kv_dtype) {
  if (kv_dtype == DType::kF8) {
    static const std::vector<GoldenPrompt> fp8 =
        GoldenPromptsIn(TinyStoriesDir() + "/golden_fp8kv.json");
    return fp8;
  }
  if (kv_dtype == DType::kI8Scaled) {
    static const std::vector<GoldenPrompt> int8s =
        GoldenPromptsIn(TinyStoriesDir() + "/golden_int8skv.json");
    return int8s;
  }
  if (kv_dtype == DType::kF8Scaled) {
    static const std::vector<GoldenPrompt> fp8s =
        GoldenPromptsIn(TinyStoriesDir() + "/golden_fp8skv.json");
    return fp8s;
  }
  if (kv_dtype == DType::kF32) {
    static const std::vector<GoldenPrompt> f32 = GoldenPromptsIn(TinyStoriesDir() + "/golden.json");
    return f32;
  }
  static const std::vector<GoldenPrompt> bf16 =
      GoldenPromptsIn(TinyStoriesDir() + "/golden_bf16kv.json");
  return bf16;
}

}  // namespace lamina::testing
