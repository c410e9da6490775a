// Reading what several families say in the same way in config.json. What is wrong is kept in the
// keys' status; a value that would change the result and that lamina does not know is refused by
// name (kUnimplemented).
#pragma once

#include <functional>
#include <initializer_list>
#include <string_view>

#include "base/json_keys.h"
#include "model/model_config.h"

namespace lamina {

// Beyond any published model, and small enough that products of them fit in 64 bits.
inline constexpr IntRange kWidthRange = {1, 1 << 20};
inline constexpr RealRange kPositiveRange = {1e-12, 1e12};

// vocab_size, hidden_size, layers, heads, head_dim, max_position_embeddings; `intermediate` is what
// the family calls intermediate_size.
void ReadSizes(JsonKeys& keys, std::string_view intermediate, ModelConfig& config);

// rope_theta and rope_scaling of older files, rope_parameters with both of newer ones.
void ReadRotary(JsonKeys& keys, ModelConfig& config);

// `key` must be absent or one of `known`.
void RequireOneOf(JsonKeys& keys, std::string_view key,
                  std::initializer_list<std::string_view> known);

// `key` must be absent or `value`.
void RequireBool(JsonKeys& keys, std::string_view key, bool value);

// sliding_window, for the layers that slide: those that layer_types says, else those for which
// `slides` is true. `absent`: the family's window if the key is missing; null stands for none.
void ReadWindows(JsonKeys& keys, int64_t absent, const std::function<bool(int layer)>& slides,
                 ModelConfig& config);

}  // namespace lamina
