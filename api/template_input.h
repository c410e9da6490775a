// From a request's conversation to what chat templates expect: they print tools and calls as they
// find them.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "api/api_error.h"
#include "text/chat_template.h"

namespace lamina {

// A JSON text whose objects keep the order of their keys; of keys that are there twice the last
// value stays, in the first one's place, as in Python. nullopt: it is no JSON, is nested more than
// 100 deep or has more than 2^17 lists and objects. Its time grows with the text only.
std::optional<nlohmann::ordered_json> ParseOrdered(std::string_view text);

// Gives what `input` has of the request `body` the order that the client wrote it in, and makes the
// arguments of calls in the history, which clients send as JSON in a string, objects. An error if
// they are none.
std::optional<ApiError> PrepareForTemplate(std::string_view body, ChatInput& input);

}  // namespace lamina
