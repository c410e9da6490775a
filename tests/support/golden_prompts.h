// The prompts of models/tiny-stories/golden*.json with what the model goes on with, made with
// PyTorch.
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/ids.h"
#include "tests/support/paths.h"

namespace lamina::testing {

inline std::string TinyStoriesDir() { return SourcePath("/models/tiny-stories"); }

struct GoldenPrompt {
  std::string prompt;
  std::vector<TokenId> prompt_ids;
  std::vector<TokenId> continuation_ids;
  std::vector<double> logprobs;  // of continuation_ids
  std::string text;
  std::string finish_reason;
};

inline std::vector<GoldenPrompt> GoldenPromptsIn(const std::string& path) {
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

// With the KV cache in float32, bfloat16 or fp8; fp8 has fewer prompts.
inline std::vector<GoldenPrompt> GoldenPrompts(DType kv_dtype = DType::kF32) {
  return GoldenPromptsIn(TinyStoriesDir() + (kv_dtype == DType::kF32  ? "/golden.json"
                                             : kv_dtype == DType::kF8 ? "/golden_fp8kv.json"
                                                                      : "/golden_bf16kv.json"));
}

}  // namespace lamina::testing
