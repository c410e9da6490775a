#include "hub/hub_name.h"

#include <algorithm>

namespace lamina {
namespace {

constexpr size_t kMaxNameBytes = 96;   // the hub's own limit
constexpr size_t kMaxPartBytes = 255;  // NAME_MAX of Linux
constexpr size_t kMaxPathBytes = 1024;
constexpr size_t kCommitDigits = 40;

bool IsLetterOrDigit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

// "--" separates owner and name in the names of the cache's folders.
bool IsOwnerOrName(std::string_view text) {
  const auto is_allowed = [](char c) {
    return IsLetterOrDigit(c) || c == '_' || c == '-' || c == '.';
  };
  return !text.empty() && text.size() <= kMaxNameBytes &&
         (IsLetterOrDigit(text.front()) || text.front() == '_') &&
         std::ranges::all_of(text, is_allowed) && text.find("--") == std::string_view::npos &&
         text.find("..") == std::string_view::npos && text.back() != '.';
}

// Takes the part of `text` before the first of `ends` off its front.
std::string_view TakeUntil(std::string_view& text, std::string_view ends) {
  const size_t size = std::min(text.find_first_of(ends), text.size());
  const std::string_view part = text.substr(0, size);
  text.remove_prefix(size);
  return part;
}

}  // namespace

std::string HubName::text() const {
  return repository() + (revision == "main" ? "" : "@" + revision) +
         (file.empty() ? "" : ":" + file);
}

std::optional<HubName> HubName::Parse(std::string_view text) {
  HubName parsed;
  parsed.owner = TakeUntil(text, "/");
  if (text.empty()) return std::nullopt;
  text.remove_prefix(1);
  parsed.name = TakeUntil(text, "@:");
  if (text.starts_with('@')) {
    text.remove_prefix(1);
    parsed.revision = TakeUntil(text, ":");
  }
  if (text.starts_with(':')) {
    parsed.file = text.substr(1);
    if (!IsPlainPath(parsed.file)) return std::nullopt;
  }
  if (!IsOwnerOrName(parsed.owner) || !IsOwnerOrName(parsed.name) || !IsPlainPath(parsed.revision))
    return std::nullopt;
  return parsed;
}

bool IsPlainPath(std::string_view path) {
  const auto is_allowed = [](char c) {
    return static_cast<unsigned char>(c) >= ' ' && c != '\x7f' && c != '\\';
  };
  if (path.size() > kMaxPathBytes || !std::ranges::all_of(path, is_allowed)) return false;
  while (true) {
    const std::string_view part = TakeUntil(path, "/");
    if (part.empty() || part == "." || part == ".." || part.size() > kMaxPartBytes) return false;
    if (path.empty()) return true;
    path.remove_prefix(1);
  }
}

bool IsCommit(std::string_view text) {
  return text.size() == kCommitDigits && std::ranges::all_of(text, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

}  // namespace lamina
