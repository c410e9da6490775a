// The cluster's secret: one text that every process of a cluster reads from a file, and that nobody
// else may read.
#pragma once

#include <cstddef>
#include <string>

#include "base/status.h"

namespace lamina {

inline constexpr size_t kMinSecretBytes = 16;
inline constexpr size_t kMaxSecretBytes = 4096;

// The file's bytes without one newline at their end: kMinSecretBytes to kMaxSecretBytes. Who may
// have which rights to it, and the errors: private_file.h; kInvalidArgument for another length too.
// The path "" stands for no file and gives "", no secret.
Result<std::string> ReadSecretFile(const std::string& path);

// The command that makes a secret: "(umask 077 && openssl rand -hex 32 > FILE)".
std::string MakeSecretCommand(const std::string& path);

}  // namespace lamina
