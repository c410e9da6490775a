// Answers of Ollama's API: an object, or lines that are objects.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "api/answer_form.h"

namespace lamina {

enum class OllamaPath { kChat, kGenerate };

std::unique_ptr<AnswerForm> NewOllamaAnswer(OllamaPath path, const std::string& model);

// The answer to a request for nothing.
std::string OllamaLoaded(OllamaPath path, const std::string& model);

// As RFC 3339 has it, in UTC.
std::string TimeText(std::chrono::system_clock::time_point time);

}  // namespace lamina
