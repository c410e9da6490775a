// Formats JSON for files and stdout.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace lamina {

// The JSON on one line, or with `indent` spaces per level. Texts from servers, files and command
// lines need not be UTF-8; bytes that are not are replaced by U+FFFD.
inline std::string JsonText(const nlohmann::ordered_json& json, int indent = -1) {
  return json.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace lamina
