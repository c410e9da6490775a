// Requests to POST /v1/responses, OpenAI's Responses API. Nothing is stored here: each request has
// its whole conversation.
#pragma once

#include "api/protocols/translation.h"

namespace lamina {

std::optional<ApiError> TranslateResponses(ForeignBody body, const ServedModel& model,
                                           Translation& out);

}  // namespace lamina
