// Names of models on a hub, and paths of the files in their repositories.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lamina {

// "OWNER/NAME", "OWNER/NAME@REVISION", and either with ":FILE" behind it. Value type.
struct HubName {
  std::string owner, name;
  std::string revision = "main";  // a branch, a tag, or a commit
  // Which GGUF file of the repository: its path, or its quantization such as "Q4_K_M". "": none is
  // named.
  std::string file;

  std::string repository() const { return owner + "/" + name; }
  // As a person types it: without the revision if that is main.
  std::string text() const;

  // nullopt if `text` is no such name. What it gives is safe as a part of paths and URLs.
  static std::optional<HubName> Parse(std::string_view text);
};

// Whether `path` is relative and stays within the folder that it is relative to, whoever wrote it:
// its parts are neither empty nor "." nor "..", and there are no control characters and no
// backslash in it.
bool IsPlainPath(std::string_view path);

// Whether `text` is a commit: 40 lower-case hexadecimal digits.
bool IsCommit(std::string_view text);

}  // namespace lamina
