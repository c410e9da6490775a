// Files that nobody but their owner may read: the cluster's secret, the key of a certificate.
#pragma once

#include <cstddef>
#include <string>

#include "base/status.h"

namespace lamina {

struct PrivateFile {
  std::string path;
  std::string what;        // what messages call it: "secret file"
  std::string remedy;      // what to do if it is not there: "make one with `...`"
  size_t limit_bytes = 0;  // no more is read
};

// The file's first limit_bytes bytes. It must be a regular file of this user or root to which
// nobody else has any right; a symbolic link to one will do. kNotFound: no such file.
// kInvalidArgument: any other refusal. Each message names the file and what puts it right; none
// contains a part of what is in it.
Result<std::string> ReadPrivateFile(const PrivateFile& file);

}  // namespace lamina
