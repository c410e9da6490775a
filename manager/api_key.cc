#include "manager/api_key.h"

#include <algorithm>
#include <cstdlib>

#include "transport/private_file.h"

namespace lamina {
namespace {

constexpr size_t kMaxKeyBytes = 4096;

bool IsKeyCharacter(char c) { return c > ' ' && c <= '~'; }

Result<std::string> ReadApiKeyFile(const std::string& path) {
  const std::string remedy = "make a key with `(umask 077 && openssl rand -hex 32 > " + path + ")`";
  // Up to one byte more than a key and its newline may have.
  LAMINA_ASSIGN_OR_RETURN(std::string key,
                          ReadPrivateFile({path, "API key file", remedy, kMaxKeyBytes + 2}));
  if (key.ends_with('\n')) key.pop_back();
  if (key.empty() || key.size() > kMaxKeyBytes || !std::ranges::all_of(key, IsKeyCharacter)) {
    return InvalidArgument("API key file " + path + " holds no key: expected one line of 1 to " +
                           std::to_string(kMaxKeyBytes) + " printable characters without spaces; " +
                           remedy);
  }
  return key;
}

}  // namespace

Result<std::string> FindApiKey(const std::string& key, const std::string& file) {
  if (file.empty()) return key;
  if (!key.empty())
    return InvalidArgument(std::string("there are two API keys: use --api-key-file (") +
                           kApiKeyFileVariable + ") or --api-key (" + kApiKeyVariable +
                           "), not both");
  return ReadApiKeyFile(file);
}

Result<std::string> FindApiKey(const std::vector<std::pair<std::string, std::string>>& env) {
  const auto find = [&](const char* name) {
    for (const auto& [given, value] : env) {
      if (given == name) return value;
    }
    const char* value = std::getenv(name);
    return std::string(value != nullptr ? value : "");
  };
  return FindApiKey(find(kApiKeyVariable), find(kApiKeyFileVariable));
}

}  // namespace lamina
