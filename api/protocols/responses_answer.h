// Answers of OpenAI's Responses API: a response with its output items, or the events of a stream.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>

#include "api/answer_form.h"

namespace lamina {

// `repeated`: fields of the response that say what the request said.
std::unique_ptr<AnswerForm> NewResponsesAnswer(nlohmann::ordered_json repeated);

}  // namespace lamina
