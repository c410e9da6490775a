// Whether a compute node's weights lie outside its memory in part.
#pragma once

#include <string>

namespace lamina {

// Value type.
struct OffloadOptions {
  // Of every so many slices in a row the weights of the last lie outside; 0: none do.
  int interval = 0;
  // Where the file is that they lie in, a folder on a disk.
  std::string folder;
  // Slices that lie outside have so many places in memory, in which they take turns.
  int buffers = 2;
  // What may be read of the disk in a second, in 10^9 bytes; 0: what it can.
  double gb_per_s = 0;

  bool any() const { return interval > 0; }
};

}  // namespace lamina
