#include "cli/model_facts.h"

#include <fmt/format.h>

#include <filesystem>
#include <set>

#include "base/json_keys.h"
#include "base/text_file.h"
#include "base/units.h"
#include "cost/cost_model.h"
#include "gguf/gguf_model.h"
#include "hub/hub_name.h"
#include "model/model_files.h"
#include "splitter/slices.h"

namespace lamina {
namespace {

namespace fs = std::filesystem;

// The files that the index names, or the only one.
Result<std::set<std::string>> WeightFiles(const std::string& folder) {
  const std::string single = "model.safetensors",
                    index_path = folder + "/" + single + ".index.json";
  std::error_code error;
  if (fs::exists(folder + "/" + single, error)) return std::set{single};
  if (!fs::exists(index_path, error)) return std::set<std::string>();
  LAMINA_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(index_path));
  LAMINA_ASSIGN_OR_RETURN(const nlohmann::json index, ParseJsonObject(text, index_path));
  const auto map = index.find("weight_map");
  if (map == index.end() || !map->is_object())
    return Corrupt(index_path + ": expected \"weight_map\", an object from tensor to file");
  std::set<std::string> files;
  for (const nlohmann::json& file : *map) {
    if (!file.is_string() || !IsPlainPath(file.get<std::string>()))
      return Corrupt(index_path + ": \"weight_map\" names a file that is not in the folder");
    files.insert(file.get<std::string>());
  }
  return files;
}

Result<int64_t> WeightFileBytes(const std::string& path) {
  std::vector<std::string> paths;
  if (IsGgufPath(path)) {
    paths = GgufShardPaths(path);
  } else {
    LAMINA_ASSIGN_OR_RETURN(const std::set<std::string> files, WeightFiles(path));
    for (const std::string& file : files) paths.push_back((fs::path(path) / file).string());
  }
  int64_t bytes = 0;
  std::vector<std::string> missing;
  for (const std::string& file : paths) {
    std::error_code error;
    const uintmax_t size = fs::file_size(file, error);
    if (error) missing.push_back(file);
    bytes += error ? 0 : static_cast<int64_t>(size);
  }
  if (missing.empty()) return bytes;
  return NotFound(
      fmt::format("{} of {} files with weights are missing, such as {}; if the model was "
                  "pulled, run lamina pull {} again",
                  missing.size(), paths.size(), missing.front(), ModelName(path)));
}

}  // namespace

Result<ModelFacts> FactsOf(const ModelConfig& config, const std::string& path) {
  ModelFacts facts;
  facts.architecture = config.architecture;
  LAMINA_ASSIGN_OR_RETURN(const Graph graph, TraceModel(config));
  facts.num_parameters = WeightBytes(graph, DType::kF8);  // of a byte each
  const Result<int64_t> bytes = WeightFileBytes(path);
  if (bytes.ok()) facts.weight_bytes = *bytes;
  facts.weights = bytes.status();
  return facts;
}

std::string FormatParameters(int64_t count) {
  const auto number = static_cast<double>(count);
  if (number >= 1e9) return fmt::format("{:.1f} B", number / 1e9);
  return number >= 1e6 ? fmt::format("{:.0f} M", number / 1e6)
                       : fmt::format("{:.0f} k", number / 1e3);
}

std::string FormatFileBytes(int64_t bytes) {
  return bytes < 1'000'000'000 ? fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6)
                               : FormatGigabytes(bytes);
}

}  // namespace lamina
