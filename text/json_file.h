// Reads the small JSON files beside a checkpoint's weights: tokenizer.json, tokenizer_config.json
// and the like. Thread: any.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/status.h"

namespace lamina {

// Parses the file as one JSON object. kNotFound: the file does not exist or cannot be read;
// kInvalidArgument: it is too large (base/text_file.h), or it is not JSON, or not an object. The
// message names the file.
Result<nlohmann::json> ReadJsonFile(const std::string& path);

// Returns the text of a special token as tokenizer_config.json writes it: either a string, or an
// object whose "content" is the string. Returns "" for anything else.
std::string SpecialTokenText(const nlohmann::json& value);

}  // namespace lamina
