// The prompts of models/tiny-stories/golden*.json with what the model goes on with, made with
// PyTorch.
#pragma once

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

// Throws what nlohmann-json throws if the file is not as it should be.
std::vector<GoldenPrompt> GoldenPromptsIn(const std::string& path);

// With the KV cache in this dtype, which is not float16; those of 8 bits have fewer prompts. Reads
// each file once.
const std::vector<GoldenPrompt>& GoldenPrompts(DType kv_dtype = DType::kF32);

}  // namespace lamina::testing
