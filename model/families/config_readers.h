// Reads what several families say in the same way in config.json. What is wrong is kept in the
// status of `keys`: kInvalidArgument, or kUnimplemented for a value that would change the result
// and that lamina does not know.
#pragma once

#include <functional>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include "base/json_keys.h"
#include "model/model_config.h"

namespace lamina {

// Beyond any published model, and small enough that products of two fit in 64 bits.
inline constexpr IntRange kWidthRange = {1, 1 << 20};
// Positions are int32 throughout.
inline constexpr IntRange kPositionRange = {1, std::numeric_limits<int32_t>::max()};
// The range of numbers that something is divided by or multiplied with.
inline constexpr RealRange kPositiveRange = {1e-12, 1e12};

// Reads vocab_size, hidden_size, num_hidden_layers, the numbers of heads, head_dim and
// max_position_embeddings. `intermediate` is the family's key for intermediate_size.
void ReadSizes(JsonKeys& keys, std::string_view intermediate, ModelConfig& config);

// Reads rope_theta and rope_scaling of older files, and rope_parameters, which has both, of newer
// ones, and partial_rotary_factor; `part_if_absent` is that of a file without the key. In families
// without one all of a head is rotated, and another factor is refused. REQUIRES: the sizes are
// read.
void ReadRotary(JsonKeys& keys, ModelConfig& config,
                std::optional<double> part_if_absent = std::nullopt);

// The newest files have the rotation of each type of layer in rope_parameters. That of layers that
// slide must be plain; its theta becomes config.local_rope_theta. Thetas that are absent stay as
// they are. false: the file has none by type, and nothing was read. REQUIRES: the sizes are read.
bool ReadRotaryByType(JsonKeys& keys, ModelConfig& config);

// Reads which layers are rotated: those for which no_rope_layers has 1, or without the key, or with
// an empty list, all but each no_rope_layer_interval-th. REQUIRES: the sizes are read.
void ReadRotatedLayers(JsonKeys& keys, ModelConfig& config);

// Reads num_experts, whose key is `count`, and num_experts_per_tok. REQUIRES: config.num_layers is
// read.
void ReadExperts(JsonKeys& keys, std::string_view count, ModelConfig& config);

// Refuses any other value of `key` than the known ones; the key may be absent.
void RequireOneOf(JsonKeys& keys, std::string_view key,
                  std::initializer_list<std::string_view> known);

// Refuses any other value of `key` than `value`; the key may be absent.
void RequireBool(JsonKeys& keys, std::string_view key, bool value);

// [num_layers] For each layer whether `layer_types` says this type for it, and not
// "full_attention". Empty with a mistake. REQUIRES: the key is there.
std::vector<bool> ReadLayerTypes(JsonKeys& keys, int num_layers, std::string_view type);

// Reads sliding_window into config.windows, for the layers that slide: those that layer_types
// lists, or without that key those for which `slides` is true. `absent` is the family's window if
// the key is missing; a null means no window. REQUIRES: config.num_layers is read.
void ReadWindows(JsonKeys& keys, int64_t absent, const std::function<bool(int layer)>& slides,
                 ModelConfig& config);

}  // namespace lamina
