// Blocks of bytes that are used one after the other, again and again, in less memory than they
// have. block_ring.h and fifo_ring.h differ in which of them are in memory when.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.h"

namespace lamina {

// Since the ring was made.
struct RingStats {
  int64_t num_entered = 0;   // blocks that were not certain to be in memory
  int64_t num_waits = 0;     // of these, for which somebody had to wait
  int64_t bytes_copied = 0;  // into memory, also of blocks that stay there
  int64_t bytes_copied_back = 0;
  // Blocks that were not the next ones in the order: what had come for nothing was given up.
  int64_t num_out_of_order = 0;
  // Blocks that should have stayed in memory, for which there was none.
  int64_t num_without_memory = 0;
};

// Thread: one owner.
class Ring {
 public:
  virtual ~Ring() = default;

  // The bytes of a block, aligned to a page, which stay there until as many calls of Leave. Waits
  // for them. Blocks may be entered in any order, and several at a time, but only the one after the
  // last that was entered comes without a wait. kOutOfSpace if there is no memory but what others
  // use; an error of the copies.
  virtual Result<std::byte*> Enter(int block) = 0;
  // `changed`: its bytes have been written to, and go back before the memory is used again.
  virtual void Leave(int block, bool changed) = 0;

  virtual const RingStats& stats() const = 0;
};

}  // namespace lamina
