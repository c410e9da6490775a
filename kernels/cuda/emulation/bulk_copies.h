// mbarriers and bulk asynchronous copies for the emulation: what kernels/cuda/bulk_copies.cuh
// promises, and is stricter than hardware.
//
// A launch fails with: a barrier that was not made, twice made or overwritten; copies that are
// misaligned, end outside of shared memory, bring more than is expected by then, or overwrite what
// some thread has not fenced since copies brought it; more arrivals than a barrier was made for; a
// wait for a phase that cannot end, for which reason; a block that ends before its copies have
// come. With copies late (SetOrder) nothing arrives while some thread can do anything else, so
// whoever does not wait reads what was there before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "kernels/cuda/emulation/simt.h"

namespace lamina::cuda::emulation {

// Only inside of a kernel.
void InitMbarrier(uint64_t* barrier, int num_arrivals, SourceLine where = Here());
void ArriveExpecting(uint64_t* barrier, int num_bytes, SourceLine where = Here());
void StartBulkCopy(void* shared, const void* global, int num_bytes, uint64_t* barrier,
                   SourceLine where = Here());
void WaitForPhase(uint64_t* barrier, unsigned parity, SourceLine where = Here());
void FenceBulkCopies();

// The mbarriers of a block, and the copies on their way to it. Functions that return a string say
// what is wrong, or "".
class Mbarriers {
 public:
  Mbarriers(std::byte* shared, size_t shared_bytes, bool eager_copies)
      : shared_(shared), shared_bytes_(shared_bytes), eager_copies_(eager_copies) {}

  std::string Init(uint64_t* barrier, int num_arrivals);
  std::string Arrive(uint64_t* barrier, int num_bytes);

  // `fenced`: when the thread fenced last that has waited longest to do so.
  std::string StartCopy(void* to, const void* from, int num_bytes, uint64_t* barrier,
                        uint64_t fenced);

  std::string Check(const uint64_t* barrier) const;  // that there is one
  bool IsOver(const uint64_t* barrier, unsigned parity) const {
    return barriers_.at(barrier).phase % 2 != parity;
  }

  // Brings the copies of a phase that lacks nothing else; false if it lacks something.
  bool BringCopies(const uint64_t* barrier);

  std::string WhatIsMissing(const uint64_t* barrier) const;
  std::string AtEnd() const;

  // Now, for fences: copies that came before it came earlier.
  uint64_t Tick() { return ++time_; }

 private:
  struct Copy {
    std::byte* to;
    const std::byte* from;
    size_t bytes;
  };
  struct Mbarrier {
    int num_arrivals = 0;
    uint64_t phase = 0;  // under way
    int arrived = 0;     // in this phase, as all below
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
  std::map<const std::byte*, uint64_t> brought_;  // when the copy to there came
};

}  // namespace lamina::cuda::emulation
