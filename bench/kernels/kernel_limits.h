// Measures what the machine can do at most, beside the kernels that are compared with it:
// multiply-adds, and reads of memory.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "base/worker_team.h"
#include "kernels/cpu_features.h"

namespace lamina {

// The K or V of one head of a sequence: row i is at base + slots[i] * row_bytes.
struct SlotRows {
  const std::byte* base = nullptr;
  int64_t row_bytes = 0;  // a multiple of 16
  std::span<const TokenSlot> slots;
};

// kUnimplemented for an instruction set whose limit is not known here, which is the scalar one.
Status CheckLimitsOf(CpuIsa isa);

// GFLOP/s of all workers together: fused multiply-adds, of two operations each, in vectors of the
// active instruction set and on registers alone. Runs for about `seconds`, which should be as long
// as what it is compared with takes, so that on a busy machine both lose the same share of the
// cores. REQUIRES, as do the functions below: CheckLimitsOf(ActiveCpuIsa()) is OK.
double MeasureFmaPeak(double seconds, WorkerTeam& team);

// How a worker reads a range: as several streams side by side, each prefetched by software so far
// ahead. 0: by the hardware alone.
struct StreamRead {
  int streams = 1;
  int64_t ahead_bytes = 0;
};

// GB/s of all workers together, for reading all of `ranges` once.
double MeasureStreamRead(std::span<const std::span<const std::byte>> ranges, const StreamRead& how,
                         WorkerTeam& team);

// The way of reading that is fastest on this machine, which is its limit.
StreamRead FastestStreamRead(std::span<const std::span<const std::byte>> ranges, WorkerTeam& team);

// GB/s of all workers together, for reading the rows once in the order of their slots; each row is
// prefetched `ahead` rows before it is read.
double MeasureRowRead(std::span<const SlotRows> rows, int ahead, WorkerTeam& team);

// The `ahead` that is fastest on this machine.
int FastestRowPrefetch(std::span<const SlotRows> rows, WorkerTeam& team);

}  // namespace lamina
