// mbarriers and bulk asynchronous copies for the emulation. They do what
// kernels/cuda/bulk_copies.cuh promises, and are stricter than hardware.
//
// A launch fails, and says why, with: a barrier that was not initialised, was initialised twice, or
// was overwritten; copies that are misaligned, end outside of shared memory, bring more bytes than
// are expected by then, or overwrite bytes that copies brought and that some thread has not fenced
// since; more arrivals than a barrier was initialised for; a wait for a phase that cannot end; a
// block that ends before its copies have arrived. With late copies (SetOrder) nothing arrives while
// some thread can do anything else, so a thread that does not wait reads what was there before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "kernels/cuda/emulation/simt.h"

namespace lamina::cuda::emulation {

// What the functions of the same names in kernels/cuda/bulk_copies.cuh call. Only inside of a
// kernel. If something is wrong the launch fails, and they do not return.
void InitMbarrier(uint64_t* barrier, int num_arrivals, SourceLine where = Here());
void ArriveExpecting(uint64_t* barrier, int num_bytes, SourceLine where = Here());
void StartBulkCopy(void* shared, const void* global, int num_bytes, uint64_t* barrier,
                   SourceLine where = Here());
void WaitForPhase(uint64_t* barrier, unsigned parity, SourceLine where = Here());
void FenceBulkCopies();

// The mbarriers of a block, and its copies in flight. Functions that return a string return what is
// wrong, or "". Thread: the one that runs the block.
class Mbarriers {
 public:
  // Borrows the block's shared memory. With eager_copies a copy arrives when it is started, else in
  // BringCopies.
  Mbarriers(std::byte* shared, size_t shared_bytes, bool eager_copies)
      : shared_(shared), shared_bytes_(shared_bytes), eager_copies_(eager_copies) {}

  // Initialises a barrier.
  std::string Init(uint64_t* barrier, int num_arrivals);
  // One thread arrives, and expects so many bytes.
  std::string Arrive(uint64_t* barrier, int num_bytes);

  // Starts a copy. `fenced`: the earliest of all threads' latest fences, as Tick returned it.
  std::string StartCopy(void* to, const void* from, int num_bytes, uint64_t* barrier,
                        uint64_t fenced);

  // Checks that the barrier was initialised and not overwritten.
  std::string Check(const uint64_t* barrier) const;
  // Whether the phase of this parity is over. REQUIRES: Check is "".
  bool IsOver(const uint64_t* barrier, unsigned parity) const {
    return barriers_.at(barrier).phase % 2 != parity;
  }

  // Lets the copies of the current phase arrive if it lacks nothing else, which ends it. Returns
  // false if it lacks something.
  bool BringCopies(const uint64_t* barrier);

  // In words, what the current phase lacks.
  std::string WhatIsMissing(const uint64_t* barrier) const;
  // Checks, when the block has ended, that no phase is incomplete.
  std::string AtEnd() const;

  // Returns the time of a fence: a number greater than those of copies that have arrived.
  uint64_t Tick() { return ++time_; }

 private:
  struct Copy {
    std::byte* to;
    const std::byte* from;
    size_t bytes;
  };
  struct Mbarrier {
    int num_arrivals = 0;  // per phase
    uint64_t phase = 0;    // the number of the current phase
    // Of the current phase: threads that have arrived, bytes that are expected, bytes of copies
    // that were started, and copies that have not arrived.
    int arrived = 0;
    size_t expected = 0, started = 0;
    std::vector<Copy> late;
  };

  std::string NameOf(const void* shared) const;
  void Bring(const Copy& copy);
  static void EndPhaseIfComplete(Mbarrier& barrier);

  std::byte* const shared_;
  const size_t shared_bytes_;
  const bool eager_copies_;
  uint64_t time_ = 0;
  std::map<const uint64_t*, Mbarrier> barriers_;
  std::map<const std::byte*, uint64_t> brought_;  // by destination: when the latest copy arrived
};

}  // namespace lamina::cuda::emulation
