// lamina_graph.json comes with a model from anywhere: importing it never crashes, refusals name the
// file, and a graph that comes out can be split.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "model/model_config.h"
#include "splitter/slices.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  if (text.empty()) return 0;
  const auto config = lamina::ModelConfig::Parse(
      {.config = R"({"architectures": ["Exported"]})", .graph = text}, "/m");
  if (!config.ok()) {
    if (config.status().message().rfind("/m/", 0) != 0) std::abort();
    return 0;
  }
  if (config->num_layers < 1 || config->num_kv_heads < 1 ||
      config->num_heads % config->num_kv_heads != 0)
    std::abort();
  if (!lamina::SplitGraph(*config->imported).ok()) std::abort();
  return 0;
}
