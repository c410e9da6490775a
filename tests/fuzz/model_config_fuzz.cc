// config.json comes with a model from anywhere: reading it never crashes, refusals name the file,
// and what is accepted can be relied on.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "model/model_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto config = lamina::ModelConfig::Parse({.config = text}, "/m");
  if (!config.ok()) {
    if (config.status().message().rfind("/m/config.json", 0) != 0) std::abort();
    return 0;
  }
  if (config->num_layers < 1 || config->num_kv_heads < 1 ||
      config->num_heads % config->num_kv_heads != 0)
    std::abort();
  if (!config->windows.empty() && config->windows.size() != static_cast<size_t>(config->num_layers))
    std::abort();
  if (config->experts_per_token > config->num_experts || !(config->AttentionScale() > 0))
    std::abort();
  if (config->rotary_dim() < 2 || config->rotary_dim() > config->head_dim) std::abort();
  for (const float frequency :
       lamina::InverseFrequencies(config->rope_theta, config->rotary_dim(), config->rope_scaling)) {
    if (!std::isfinite(frequency)) std::abort();
  }
  return 0;
}
