#include "model/model_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "gguf/gguf_model.h"

namespace lamina {
namespace {

namespace fs = std::filesystem;

std::string DescribeFile(const fs::path& path) {
  std::error_code no_size, no_time;
  const uintmax_t size = fs::file_size(path, no_size);
  const auto time = fs::last_write_time(path, no_time).time_since_epoch().count();
  return fmt::format("{} {} {}", path.filename().string(), no_size ? 0 : size, no_time ? 0 : time);
}

}  // namespace

std::string ModelName(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return IsGgufPath(path) ? GgufModelName(path) : path.substr(path.rfind('/') + 1);
}

std::vector<std::string> DescribeModelFiles(const std::string& path) {
  std::vector<std::string> files;
  if (IsGgufPath(path)) {
    for (const std::string& shard : GgufShardPaths(path)) files.push_back(DescribeFile(shard));
    return files;
  }
  std::error_code error;
  for (fs::directory_iterator file(path, error), end; !error && file != end; file.increment(error))
    files.push_back(DescribeFile(file->path()));
  std::ranges::sort(files);
  return files;
}

}  // namespace lamina
