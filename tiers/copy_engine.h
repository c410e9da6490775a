// One way over which blocks of bytes come into memory: from a disk, or across a bus.
#pragma once

#include <cstddef>

#include "base/status.h"

namespace lamina {

// Copies blocks one after the other, in the order in which they were begun. Thread: one owner.
class CopyEngine {
 public:
  virtual ~CopyEngine() = default;

  // Begins to copy all bytes of a block to `to`, behind what was begun before. Does not wait.
  // REQUIRES: `to` has room for them, and nobody touches it until the copy has ended.
  virtual void Start(int block, std::byte* to) = 0;

  // Waits for the end of the copy that was begun first of those that were not waited for yet.
  // REQUIRES: there is one. The error is that of reading the block; then what is at `to` is of no
  // use.
  virtual Status FinishOldest() = 0;
};

}  // namespace lamina
