#include "model/families/qwen.h"

#include "model/families/config_readers.h"
#include "model/families/llama.h"

namespace lamina {
namespace {

// If any layers slide, those from max_window_layers on do. A sliding_window in the file counts only
// with use_sliding_window.
void ReadQwenWindows(JsonKeys& keys, ModelConfig& config) {
  const int64_t first = keys.OptionalInt("max_window_layers", {0, 1 << 20}).value_or(28);
  if (!keys.OptionalBool("use_sliding_window").value_or(false)) return;
  ReadWindows(
      keys, 4096, [first](int layer) { return layer >= first; }, config);
}

}  // namespace

void ReadQwen2(JsonKeys& keys, ModelConfig& config) {
  ReadLlamaLayout(keys, config);
  config.qkv_bias = true;
  ReadQwenWindows(keys, config);
}

void ReadQwen3(JsonKeys& keys, ModelConfig& config) {
  ReadLlamaLayout(keys, config);
  if (!keys.Has("head_dim")) keys.Reject("head_dim", "the elements of a head");
  config.qkv_bias = config.o_bias = keys.OptionalBool("attention_bias").value_or(false);
  config.head_norm = true;
  ReadQwenWindows(keys, config);
}

}  // namespace lamina
