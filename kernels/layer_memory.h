// Where the K and V of layers are while they are used, if not all of them are in memory at a time.
#pragma once

#include <cstddef>

namespace lamina {

// Thread: one owner.
class LayerMemory {
 public:
  virtual ~LayerMemory() = default;

  // The bytes of a layer, which stay there until another one is asked for. Waits for them.
  // `writes`: the caller changes them. There is no error: a cache that has lost a layer is of no
  // use, and its process ends.
  virtual std::byte* Use(int layer, bool writes) = 0;
};

}  // namespace lamina
