// The API key of the HTTP server: what clients send as a bearer token. A key is on no command line
// that lamina writes, and in no environment but the API server's.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace lamina {

// The variables of the options --api-key and --api-key-file.
inline constexpr char kApiKeyVariable[] = "LAMINA_API_KEY";
inline constexpr char kApiKeyFileVariable[] = "LAMINA_API_KEY_FILE";

// The key as it was given, or the first line of the file, which nobody but its owner may have a
// right to (transport/private_file.h); "" if there is neither. kInvalidArgument if both are given,
// or the file holds no key: printable characters without a space, in one line. Errors else as
// ReadPrivateFile.
Result<std::string> FindApiKey(const std::string& key, const std::string& file);

// The same by the variables in `env`, or for those that are not there in this process's
// environment.
Result<std::string> FindApiKey(const std::vector<std::pair<std::string, std::string>>& env);

}  // namespace lamina
