// A bus that weights come over.
#pragma once

#include <map>

namespace lamina {

// Of several nodes, of which each runs the steps of a batch. Value type.
struct OffloadBus {
  double bytes_per_s = 0;
  std::map<int, double> bytes_outside;  // of one node's weights, by the interval
};

}  // namespace lamina
