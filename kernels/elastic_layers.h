// The layers of a KV cache of which as many have a place in memory as somebody says, see
// base/layers_inside.h.
#pragma once

#include "base/layers_inside.h"
#include "base/status.h"

namespace lamina {

// Thread: one owner.
class ElasticLayers {
 public:
  virtual ~ElasticLayers() = default;

  virtual const ElasticKv& kv() const = 0;
  virtual LayersInside inside() const = 0;

  // So many layers are to have a place. With more than before there is room for fewer tokens at
  // once, and what is in slots behind them is lost. With fewer there is room for more as soon as
  // layers have gone. kInvalidArgument if they are more than all or fewer than the least; errors of
  // the disk that they lie on.
  virtual Status SetInside(int num_layers) = 0;
};

}  // namespace lamina
