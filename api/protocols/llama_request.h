// Requests to POST /completion and /infill, the API of llama.cpp's server.
#pragma once

#include "api/protocols/translation.h"

namespace lamina {

std::optional<ApiError> TranslateLlamaCompletion(ForeignBody body, const ServedModel& model,
                                                 Translation& out);
std::optional<ApiError> TranslateLlamaInfill(ForeignBody body, const ServedModel& model,
                                             Translation& out);

}  // namespace lamina
