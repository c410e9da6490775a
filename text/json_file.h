// Reading the small JSON files that stand beside a checkpoint.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/status.h"

namespace lamina {

// kNotFound: no such file; kInvalidArgument: not a JSON object.
Result<nlohmann::json> ReadJsonFile(const std::string& path);

// A special token as tokenizer_config.json writes it: a string, or an object with "content"; "" for
// anything else.
std::string SpecialTokenText(const nlohmann::json& value);

}  // namespace lamina
