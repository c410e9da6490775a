// Reads files that nobody but their owner may read: the cluster's secret, the key of a certificate.
#pragma once

#include <cstddef>
#include <string>

#include "base/status.h"

namespace lamina {

// A file to read, and what messages say about it.
struct PrivateFile {
  std::string path;
  std::string what;        // "secret file"
  std::string remedy;      // what to do if it is not there: "make one with `...`"
  size_t limit_bytes = 0;  // at most so many bytes are read
};

// The first limit_bytes bytes of the file. It must be a regular file (or a symbolic link to one)
// that belongs to this user or root and gives no rights to anybody else. kNotFound if there is no
// such file; kInvalidArgument if it cannot be read or has the wrong kind, owner or mode. Each
// message names the file; none contains a part of its content.
Result<std::string> ReadPrivateFile(const PrivateFile& file);

}  // namespace lamina
