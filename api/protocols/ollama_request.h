// Requests to POST /api/chat and /api/generate, Ollama's API.
#pragma once

#include "api/protocols/translation.h"

namespace lamina {

std::optional<ApiError> TranslateOllamaChat(ForeignBody body, const ServedModel& model,
                                            Translation& out);
std::optional<ApiError> TranslateOllamaGenerate(ForeignBody body, const ServedModel& model,
                                                Translation& out);

// What is wrong with the body of a request to POST /api/show.
std::optional<ApiError> CheckOllamaShow(const std::string& body, const ServedModel& model);

// The model that a request names: Ollama's clients write "NAME:latest" for NAME too.
std::string OllamaModelName(std::string name, const ServedModel& model);

}  // namespace lamina
