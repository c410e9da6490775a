// A KV cache of which not all layers have a place in memory at a time, as many as the manager says:
// the fewer, the more tokens find room in each.
#pragma once

#include <chrono>
#include <cstdint>

namespace lamina {

// What may be. Value type.
struct ElasticKv {
  int num_layers = 0;
  int least_inside = 0;      // layers that have a place
  int64_t token_layers = 0;  // so many tokens of one layer find room, or of several together

  int64_t Tokens(int inside) const { return token_layers / inside; }

  friend bool operator==(const ElasticKv&, const ElasticKv&) = default;
};

// What a node says of its layers. Value type.
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
