// What a node says of the layers of its KV cache, where not all of them have a place in memory at a
// time.
#pragma once

#include <chrono>

namespace lamina {

// Value type.
struct LayersInside {
  // So many have a place, and each has room for as many tokens as that allows. While the number
  // changes, the larger one of the two.
  int num_layers = 0;
  // How long steps have waited for layers to come, since the cache was made.
  std::chrono::nanoseconds waited{};
  // What a layer takes to come or to go, whichever is slower, as lately seen; 0: none has.
  std::chrono::nanoseconds copy{};

  friend bool operator==(const LayersInside&, const LayersInside&) = default;
};

}  // namespace lamina
