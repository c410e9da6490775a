#include "manager/kv_content.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <string>

#include "base/text_file.h"
#include "model/model_files.h"

namespace lamina {
uint64_t KvContent(const ClusterConfig& config, const Member& node) {
  std::string text =
      fmt::format("{} {} {} {} {}\n", config.model_path, static_cast<int>(config.load_format),
                  node.first_kv_head, node.num_kv_heads, node.rank);
  for (const std::string& file : DescribeModelFiles(config.model_path)) text += file + '\n';
  if (const Result<std::string> model = ReadTextFile(config.model_path + "/config.json");
      model.ok())
    text += *model;
  return std::max<uint64_t>(XXH3_64bits(text.data(), text.size()), 1);
}

}  // namespace lamina
