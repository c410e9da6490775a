// JSON for files and stdout.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace lamina {

// On one line, or with so many spaces to a level. Servers, files and command lines give text that
// may not be UTF-8: U+FFFD stands for it.
inline std::string JsonText(const nlohmann::ordered_json& json, int indent = -1) {
  return json.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace lamina
