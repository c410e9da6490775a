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
  // REQUIRES: `to` has room for them, and nobody touches it until the copy has ended, except copies
  // that were begun before.
  virtual void Start(int block, std::byte* to) = 0;

  // Likewise, back to where the block lies. REQUIRES: nobody writes there until the copy has ended,
  // except copies that are begun later.
  virtual void StartBack(int block, const std::byte* from) = 0;

  // Whether the copy that was begun first of those that were not waited for yet has ended.
  // REQUIRES: there is one.
  virtual bool OldestIsDone() = 0;

  // Waits for the end of the copy that was begun first of those that were not waited for yet.
  // REQUIRES: there is one. The error is that of reading or writing the block; then what is at its
  // destination is of no use.
  virtual Status FinishOldest() = 0;
};

}  // namespace lamina
