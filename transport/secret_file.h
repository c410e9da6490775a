// The cluster's secret: one text that every process of a cluster reads from a file, and that nobody
// else may read.
#pragma once

#include <cstddef>
#include <string>

#include "base/status.h"

namespace lamina {

inline constexpr size_t kMinSecretBytes = 16;
inline constexpr size_t kMaxSecretBytes = 4096;

// The secret in the file at `path`: its bytes without one newline at the end. The path "" stands
// for no file and gives "", which means no secret. kNotFound if there is no such file;
// kInvalidArgument if it is not a regular file that only this user or root can read and write, or
// does not hold kMinSecretBytes to kMaxSecretBytes bytes.
Result<std::string> ReadSecretFile(const std::string& path);

// The shell command that makes a secret: "(umask 077 && openssl rand -hex 32 > FILE)".
std::string MakeSecretCommand(const std::string& path);

}  // namespace lamina
