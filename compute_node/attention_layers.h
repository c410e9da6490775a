// What differs between the layers of a model's attention, which all have the same heads.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/attention_window.h"
#include "base/status.h"
#include "compute_node/weight_reader.h"
#include "splitter/slices.h"

namespace lamina {

// [layers][num_heads] The score of each head's sink (OpKind::kAttention).
using AttentionSinks = std::vector<std::vector<float>>;

struct AttentionLayers {
  // [layers] Empty: rows attend to all tokens in every layer.
  std::vector<AttentionWindow> windows = {};
  // Empty: there are none.
  AttentionSinks sinks = {};

  AttentionWindow WindowOf(int layer) const {
    return windows.empty() ? AttentionWindow{} : windows[static_cast<size_t>(layer)];
  }
  // Empty if there are none.
  std::span<const float> SinksOf(int layer) const {
    return sinks.empty() ? std::span<const float>() : sinks[static_cast<size_t>(layer)];
  }
  // The layers from `first` on.
  AttentionLayers From(int first) const;
};

// The sinks of the model's heads, or of this rank's. Empty if it has none, and then nothing is
// read. Errors are those of WeightReader.
Result<AttentionSinks> ReadSinks(const SlicedModel& model, const ModelConfig& config,
                                 const WeightOptions& options);

}  // namespace lamina
