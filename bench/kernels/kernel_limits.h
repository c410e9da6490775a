// What the machine can do at most, measured beside the kernels that are held against it:
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

// Rows base + slots[i] * row_bytes: the K or V of one head of a sequence.
struct SlotRows {
  const std::byte* base = nullptr;
  int64_t row_bytes = 0;  // multiple of 16
  std::span<const TokenSlot> slots;
};

// kUnimplemented for an instruction set whose limit is not known here: scalar.
Status CheckLimitsOf(CpuIsa isa);

// GFLOP/s of all workers together: fused multiply-adds (two operations each) of the active
// instruction set's vectors, on registers alone. For about `seconds`: as long as what it is
// compared with, so that on a busy machine both lose the same share of the cores. REQUIRES:
// CheckLimitsOf(ActiveCpuIsa()) is OK; so do the others.
double MeasureFmaPeak(double seconds, WorkerTeam& team);

// How a worker reads a range: as so many streams side by side, each prefetched by software so far
// ahead (0: by hardware alone).
struct StreamRead {
  int streams = 1;
  int64_t ahead_bytes = 0;
};

// GB/s of all workers together over `ranges`, once.
double MeasureStreamRead(std::span<const std::span<const std::byte>> ranges, const StreamRead& how,
                         WorkerTeam& team);

// The way that is fastest here: that one is the limit.
StreamRead FastestStreamRead(std::span<const std::span<const std::byte>> ranges, WorkerTeam& team);

// GB/s of all workers together over the rows, once, in the order of their slots; each row is
// prefetched `ahead` rows before it is read.
double MeasureRowRead(std::span<const SlotRows> rows, int ahead, WorkerTeam& team);

// Likewise the distance.
int FastestRowPrefetch(std::span<const SlotRows> rows, WorkerTeam& team);

}  // namespace lamina
