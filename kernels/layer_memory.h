// Where the K and V of layers are while they are used, if not all of them are in memory at a time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/elastic_layers.h"

namespace lamina {

// Thread: one owner.
class LayerMemory {
 public:
  virtual ~LayerMemory() = default;

  // The bytes of a layer, which stay there until another one is asked for. Waits for them.
  // `writes`: the caller changes them. There is no error: a cache that has lost a layer is of no
  // use, and its process ends.
  virtual std::byte* Use(int layer, bool writes) = 0;

  // In a layer, what belongs to a kv_head, of K or of V, lies so many token slots behind what
  // belongs to the one before. At least as many as are ever used.
  virtual int64_t pitch_tokens() const = 0;

  // Null: always as many layers have a place.
  virtual ElasticLayers* elastic() { return nullptr; }
};

}  // namespace lamina
