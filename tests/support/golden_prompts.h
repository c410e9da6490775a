// The prompts of models/tiny-stories/golden.json with what the model goes on with.
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/ids.h"

namespace lamina::testing {

inline std::string TinyStoriesDir() { return std::string(LAMINA_SOURCE_DIR) + "/models/tiny-stories"; }

struct GoldenPrompt {
  std::string prompt;
  std::vector<TokenId> prompt_ids;
  std::vector<TokenId> continuation_ids;
  std::string text;
  std::string finish_reason;
};

inline std::vector<GoldenPrompt> GoldenPrompts() {
  std::ifstream file(TinyStoriesDir() + "/golden.json");
  const nlohmann::json json = nlohmann::json::parse(file);
  std::vector<GoldenPrompt> prompts;
  for (const auto& entry : json["prompts"]) {
    prompts.push_back({entry["prompt"], entry["prompt_ids"], entry["continuation_ids"], entry["text"], entry["finish_reason"]});
  }
  return prompts;
}

}  // namespace lamina::testing
