// Answers to /completion and /infill of llama.cpp's API: an object, or server-sent events that are
// objects.
#pragma once

#include <memory>
#include <string>

#include "api/answer_form.h"

namespace lamina {

std::unique_ptr<AnswerForm> NewLlamaAnswer(const std::string& model);

// The answer to a request for no tokens.
std::string LlamaNothing(const std::string& model);

}  // namespace lamina
