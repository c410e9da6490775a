#include "base/input_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

namespace lamina {

Result<std::string> ReadInput(const std::string& path, size_t max_bytes) {
  constexpr size_t kPieceBytes = 1 << 20;
  std::ifstream file(path, std::ios::binary);
  if (!file) return NotFound(path + ": cannot be opened: " + std::strerror(errno));
  if (file.peek() == '\0')
    return InvalidArgument(path + ": it begins with a zero byte: this is no text");
  file.clear(file.rdstate() & ~std::ios::eofbit);  // peek() sets it if the file is empty
  std::string text;
  while (file) {
    // Up to one byte more than is allowed, to notice a file that is too long.
    const size_t before = text.size(), wanted = std::min(kPieceBytes, max_bytes + 1 - before);
    text.resize(before + wanted);
    file.read(text.data() + before, static_cast<std::streamsize>(wanted));
    text.resize(before + static_cast<size_t>(file.gcount()));
    if (text.size() > max_bytes)
      return InvalidArgument(
          fmt::format("{}: it has more than the {} bytes that are read", path, max_bytes));
  }
  if (file.bad()) return InvalidArgument(path + ": cannot be read: " + std::strerror(errno));
  return text;
}

}  // namespace lamina
