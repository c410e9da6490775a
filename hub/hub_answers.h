// Decodes what a hub says of a repository. Nothing of it is trusted: what comes out is safe to make
// paths and URLs of.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace lamina {

inline constexpr size_t kMaxHubFiles = 100'000;                 // of a repository
inline constexpr int64_t kMaxHubFileBytes = int64_t{16} << 40;  // of a file

struct HubFile {
  std::string path;  // plain (IsPlainPath)
  int64_t size = 0;
  // Hexadecimal. Of the content, for large files; "": it is not known.
  std::string sha256;
  // Of the content as a git blob; of large files it is that of the pointer to them.
  std::string git_sha1;

  // The name of its blob in the cache, and what the content is checked against.
  const std::string& hash() const { return sha256.empty() ? git_sha1 : sha256; }
};

// The commit that a revision is, from the answer about it ({"sha": "..."}). kCorrupt if that is no
// such answer; `where` stands in front of messages.
Result<std::string> ParseCommit(const std::string& json, const std::string& where);

// Appends the files of one page of a repository's tree. kCorrupt if it is no such list, if a path
// leads out of the repository or is there twice, or if there are more than kMaxHubFiles in all.
Status ParseTree(const std::string& json, const std::string& where, std::vector<HubFile>& files);

// The URL behind rel="next" of a Link header; nullopt on the last page.
std::optional<std::string> NextPage(const std::string& link_header);

}  // namespace lamina
