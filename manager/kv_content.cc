#include "manager/kv_content.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "base/text_file.h"

namespace lamina {
namespace {

namespace fs = std::filesystem;

// A file that cannot be looked at has a name only.
std::vector<std::string> FilesOf(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code error;
  for (fs::directory_iterator file(folder, error), end; !error && file != end;
       file.increment(error)) {
    std::error_code no_size, no_time;
    const uintmax_t size = file->file_size(no_size);
    const auto time = file->last_write_time(no_time).time_since_epoch().count();
    files.push_back(fmt::format("{} {} {}", file->path().filename().string(), no_size ? 0 : size,
                                no_time ? 0 : time));
  }
  std::ranges::sort(files);
  return files;
}

}  // namespace

uint64_t KvContent(const ClusterConfig& config, const Member& node) {
  std::string text =
      fmt::format("{} {} {} {} {}\n", config.model_path, static_cast<int>(config.load_format),
                  node.first_kv_head, node.num_kv_heads, node.rank);
  for (const std::string& file : FilesOf(config.model_path)) text += file + '\n';
  if (const Result<std::string> model = ReadTextFile(config.model_path + "/config.json");
      model.ok())
    text += *model;
  return std::max<uint64_t>(XXH3_64bits(text.data(), text.size()), 1);
}

}  // namespace lamina
