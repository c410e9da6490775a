#include "hub/hub_answers.h"

#include <algorithm>
#include <string_view>
#include <unordered_set>

#include "base/json_keys.h"
#include "base/printable.h"
#include "hub/hub_name.h"

namespace lamina {
namespace {

constexpr size_t kSha256Digits = 64;

bool IsHash(const std::string& text, size_t digits) {
  return text.size() == digits && std::ranges::all_of(text, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

Status AsCorrupt(const Status& status) { return status.ok() ? status : Corrupt(status.message()); }

Result<HubFile> ParseFile(const nlohmann::json& entry, const std::string& where) {
  const IntRange sizes{0, kMaxHubFileBytes};
  JsonKeys keys(entry, where);
  HubFile file;
  file.path = keys.OptionalString("path").value_or("");
  file.size = keys.Int("size", sizes);
  file.git_sha1 = keys.OptionalString("oid").value_or("");
  if (!IsPlainPath(file.path))
    return Corrupt(where + ": '" + Briefly(file.path, 200) +
                   "' is not the path of a file in a repository");
  if (const nlohmann::json* const lfs = keys.Find("lfs"); lfs != nullptr) {
    if (!lfs->is_object()) return Corrupt(where + ": \"lfs\" of " + file.path + " is no object");
    JsonKeys large(*lfs, where + ": lfs");
    file.sha256 = large.OptionalString("oid").value_or("");
    file.size = large.Int("size", sizes);
    if (!IsHash(file.sha256, kSha256Digits))
      return Corrupt(where + ": " + file.path + " has no SHA-256");
    keys.Keep(large.status());
  }
  if (!IsCommit(file.git_sha1)) return Corrupt(where + ": " + file.path + " has no SHA-1");
  LAMINA_RETURN_IF_ERROR(AsCorrupt(keys.status()));
  return file;
}

}  // namespace

Result<std::string> ParseCommit(const std::string& json, const std::string& where) {
  const Result<nlohmann::json> object = ParseJsonObject(json, where);
  if (!object.ok()) return AsCorrupt(object.status());
  JsonKeys keys(*object, where);
  std::string commit = keys.OptionalString("sha").value_or("");
  if (IsCommit(commit)) return commit;
  return Corrupt(where + ": \"sha\" is not a commit of 40 hexadecimal digits; is this a hub?");
}

Status ParseTree(const std::string& json, const std::string& where, std::vector<HubFile>& files) {
  // The list becomes a member of an object, which is what ParseJsonObject bounds and checks.
  const Result<nlohmann::json> object = ParseJsonObject("{\"files\":" + json + "}", where);
  if (!object.ok()) return AsCorrupt(object.status());
  const nlohmann::json& list = object->at("files");
  if (!list.is_array()) return Corrupt(where + ": expected a list of files; is this a hub?");
  std::unordered_set<std::string> seen;
  for (const HubFile& file : files) seen.insert(file.path);
  for (const nlohmann::json& entry : list) {
    if (!entry.is_object()) return Corrupt(where + ": an entry is no object");
    JsonKeys keys(entry, where);
    if (keys.OptionalString("type").value_or("") != "file") continue;  // a folder
    LAMINA_ASSIGN_OR_RETURN(HubFile file, ParseFile(entry, where));
    if (!seen.insert(file.path).second)
      return Corrupt(where + ": " + Printable(file.path) + " is there twice");
    if (files.size() >= kMaxHubFiles)
      return Corrupt(where + ": more than " + std::to_string(kMaxHubFiles) + " files");
    files.push_back(std::move(file));
  }
  return OkStatus();
}

std::optional<std::string> NextPage(const std::string& link_header) {
  std::string_view rest = link_header;
  while (true) {
    const size_t begin = rest.find('<');
    if (begin == std::string_view::npos) return std::nullopt;
    const size_t end = rest.find('>', begin);
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view url = rest.substr(begin + 1, end - begin - 1);
    rest.remove_prefix(end + 1);
    const std::string_view parameters = rest.substr(0, rest.find('<'));
    if (parameters.find("rel=\"next\"") != std::string_view::npos ||
        parameters.find("rel=next") != std::string_view::npos)
      return std::string(url);
  }
}

}  // namespace lamina
