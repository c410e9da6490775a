// The formats of JSON Schema's strings that have a grammar here.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lamina {

// A regular expression of the format's strings, or of those among them that every validator takes:
// no leap seconds, no quoted parts of e-mail addresses. nullopt: the format is not supported.
std::optional<std::string> PatternOfFormat(std::string_view format);

// "'date', 'time', ...", for messages.
std::string SupportedFormats();

}  // namespace lamina
