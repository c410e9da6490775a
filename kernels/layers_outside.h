// Which layers of a KV cache lie outside of a device's memory, where that does not change.
#pragma once

#include <vector>

namespace lamina {

struct LayersOutside {
  std::vector<bool> outside = {};  // [layers]; empty: none
  int num_buffers = 0;             // in memory, in which they take turns
  bool poison = false;             // what a layer has left behind is overwritten, for tests

  bool any() const { return !outside.empty(); }
};

}  // namespace lamina
