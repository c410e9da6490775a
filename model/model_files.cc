#include "model/model_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "gguf/gguf_model.h"

namespace lamina {
namespace {

namespace fs = std::filesystem;

// "OWNER/NAME" of a snapshot in a cache; "" if the path is none.
std::string NameOfSnapshot(const fs::path& path) {
  constexpr std::string_view kModels = "models--";
  std::string repository = path.parent_path().parent_path().filename().string();
  if (path.parent_path().filename() != "snapshots" || !repository.starts_with(kModels)) return "";
  repository.erase(0, kModels.size());
  const size_t separator = repository.find("--");
  return separator == std::string::npos ? repository : repository.replace(separator, 2, "/");
}

}  // namespace

std::string ModelName(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  if (IsGgufPath(path)) return GgufModelName(path);
  const std::string name = NameOfSnapshot(path);
  return name.empty() ? path.substr(path.rfind('/') + 1) : name;
}

std::string DescribeFile(const std::string& path) {
  std::error_code no_size, no_time;
  const uintmax_t size = fs::file_size(path, no_size);
  const auto time = fs::last_write_time(path, no_time).time_since_epoch().count();
  return fmt::format("{} {} {}", fs::path(path).filename().string(), no_size ? 0 : size,
                     no_time ? 0 : time);
}

std::vector<std::string> DescribeModelFiles(const std::string& path) {
  std::vector<std::string> files;
  if (IsGgufPath(path)) {
    for (const std::string& shard : GgufShardPaths(path)) files.push_back(DescribeFile(shard));
    return files;
  }
  std::error_code error;
  for (fs::directory_iterator file(path, error), end; !error && file != end;
       file.increment(error)) {
    const std::string name = file->path().filename().string();
    if (!name.ends_with(".packed") && !name.ends_with(".packed.part"))
      files.push_back(DescribeFile(file->path().string()));
  }
  std::ranges::sort(files);
  return files;
}

}  // namespace lamina
