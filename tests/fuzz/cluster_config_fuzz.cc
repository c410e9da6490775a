// A cluster YAML is written by people, so anything may stand in it: reading never crashes, and
// every refusal names file and line.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "manager/cluster_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto config = lamina::ClusterConfig::Parse(text, "/f.yaml");
  if (!config.ok()) {
    if (config.status().message().rfind("/f.yaml:", 0) != 0) std::abort();
    return 0;
  }
  for (const lamina::NodeConfig& node : config->nodes) {
    if (node.name.empty() || node.host.empty() || node.port < 1 || node.port > 65535) std::abort();
    if (node.role == lamina::NodeRole::kMemory &&
        lamina::ParseSize(lamina::FormatSize(node.memory_bytes)).value() != node.memory_bytes)
      std::abort();
  }
  return 0;
}
