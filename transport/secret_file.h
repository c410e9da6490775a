// The cluster's secret: one text that every process of a cluster reads from a file, and that nobody else may read.
#pragma once

#include <cstddef>
#include <string>

#include "base/status.h"

namespace lamina {

inline constexpr size_t kMinSecretBytes = 16;
inline constexpr size_t kMaxSecretBytes = 4096;

// The file's bytes without one newline at their end. A regular file of this user or root that nobody else has any right to, with
// kMinSecretBytes to kMaxSecretBytes bytes; a symbolic link to one will do. kNotFound: no such file. kInvalidArgument: any other refusal.
// Each message names the file and the command that puts it right; none contains a part of the secret. The path "" stands for no file and
// gives "", no secret.
Result<std::string> ReadSecretFile(const std::string& path);

// The command that makes a secret: "(umask 077 && openssl rand -hex 32 > FILE)".
std::string MakeSecretCommand(const std::string& path);

}  // namespace lamina
