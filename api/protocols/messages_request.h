// Requests to POST /v1/messages and /v1/messages/count_tokens, Anthropic's Messages API.
#pragma once

#include "api/protocols/translation.h"

namespace lamina {

std::optional<ApiError> TranslateMessages(ForeignBody body, const ServedModel& model,
                                          Translation& out);

// For the number of its tokens only: nothing is said of the answer, and there is no form.
std::optional<ApiError> TranslateCountTokens(ForeignBody body, const ServedModel& model,
                                             Translation& out);

}  // namespace lamina
