// From the body of a request of another protocol to what is to be generated, or to an answer.
#pragma once

#include <string>

#include "api/protocols/translation.h"

namespace lamina {

// By way of the chat request that `translate` makes of it: what RequestReader::Chat says of that
// holds here. Thread: any.
ReadRequest ReadForeign(Translate translate, const RequestReader& reader, const ServedModel& model,
                        const std::string& body, int64_t max_model_len);

// The same, answered with {"input_tokens": the tokens of the prompt}.
ReadRequest CountForeignTokens(Translate translate, const RequestReader& reader,
                               const ServedModel& model, const std::string& body,
                               int64_t max_model_len);

}  // namespace lamina
