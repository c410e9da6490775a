// Requests for embeddings, scores and rankings, read from JSON and checked. No text is tokenised
// here.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "api/api_error.h"
#include "api/requests.h"
#include "api/vector_form.h"

namespace lamina {

// Texts of one request; more than any client sends at a time, and what is kept of each is small.
inline constexpr size_t kMaxTexts = 8192;

struct VectorRequest {
  GenerationOptions options;  // model, request_id, priority, slo and truncation
  VectorForm form;            // without width and max_at_once
  std::vector<Prompt> texts;
  std::string field;  // that has the texts, for errors
  bool add_special_tokens = true;
};

struct VectorRules {
  int64_t vocab_size = 0;
  int64_t width = 0;  // VectorForm's
};

// Fills `out` or says what is wrong, by what `kind` asks for. Fields that lamina does not know are
// named in `unknown_fields` (at most 16), and ignored; on Ollama's paths they are errors.
// REQUIRES: `body` is an object nested at most 100 deep.
std::optional<ApiError> ParseVectors(const nlohmann::json& body, VectorForm::Kind kind,
                                     const VectorRules& rules, VectorRequest& out,
                                     std::vector<std::string>& unknown_fields);

}  // namespace lamina
