// One way over which blocks of bytes come into memory: from a disk, or across a bus.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.h"

namespace lamina {

// The bytes of a block that are of use: so many runs of so many bytes, the first of which begins
// with the block and each other one `stride` bytes behind the one before. Value type.
struct BlockRuns {
  int64_t run_bytes = 0;
  int64_t num_runs = 1;
  int64_t stride = 0;

  int64_t bytes() const { return num_runs * run_bytes; }
  // From the first byte to the last, with room for the longest runs.
  int64_t span() const { return num_runs == 1 ? run_bytes : num_runs * stride; }
};

// Copies blocks one after the other, in the order in which they were begun. Thread: one owner.
class CopyEngine {
 public:
  virtual ~CopyEngine() = default;

  // Of each block only these bytes are copied from now on; at first all are. REQUIRES: runs and
  // stride are as the blocks' place wants them: for a disk, multiples of its sectors.
  virtual void SetRuns(const BlockRuns& runs) = 0;

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

  // What a byte took of the last copy that was waited for; 0: there was none.
  virtual double seconds_per_byte() const = 0;
};

}  // namespace lamina
