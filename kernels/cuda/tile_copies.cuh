// Two ways to copy tiles of rows from global to shared memory, which has room for several of them
// (stages): LaneCopies by 16 bytes per lane, and BulkCopies by whole rows (bulk_copies.cuh) where
// the GPU can. The same bytes arrive.
//
// Bytes in flight are what keeps memory busy. With LaneCopies a lane can wait for its own copies
// only and a barrier tells the others, so a stage is filled again only after the next tile has
// arrived: all stages but one are in flight. With BulkCopies every thread can wait for rows itself,
// so the barrier comes first, and all stages are in flight while threads wait. The number of stages
// is the same for both; more would leave room for fewer blocks on a multiprocessor.
#pragma once

#include "base/ids.h"
#include "kernels/cuda/bulk_copies.cuh"
#include "kernels/cuda/platform.cuh"
#include "kernels/cuda/vectors.cuh"

namespace lamina::cuda {

// The rows of a tile: row t is copied from `from` + slots[t] * slot_stride to `to` + t * pitch. All
// addresses and sizes are multiples of 16 bytes.
template <typename T>
struct TileRows {
  T* to;                   // [num_rows, pitch], shared memory
  int pitch;               // elements
  const T* from;           // [slots, slot_stride], global memory
  int64_t slot_stride;     // elements
  const TokenSlot* slots;  // [num_rows], shared memory; not read if there are no rows
  int num_rows, row_elements;

  __device__ T* To(int row) const { return to + row * pitch; }
  __device__ const T* From(int row) const {
    return from + static_cast<int64_t>(slots[row]) * slot_stride;
  }
};

// The part of a tile that a lane copies: the `vector`-th kCopied elements of rows group, group +
// num_groups, and so on. has_vector: a row has these elements.
struct TilePart {
  int num_groups, group, vector;
  bool has_vector;
};

// Copies tiles by 16 bytes per lane.
//
// LaneCopies and BulkCopies have the same functions, which all threads of a block call together:
// HandOver, then Start for the first kNumStages - 1 tiles, then Next for each tile in turn, whose
// `start` calls Start for the tile kNumStages - 1 further on. Tile i uses stage i % kNumStages.
// Behind the last tile, tiles without rows are started; Next is not called for these.
template <int kNumStages>
class LaneCopies {
 public:
  __device__ explicit LaneCopies(Mbarrier* /*barriers*/) {}

  // Gives the stages to copies: all threads have used what was in them. Also makes the slots in
  // shared memory visible to all threads.
  __device__ void HandOver() { __syncthreads(); }

  // Starts to copy a tile into a stage.
  template <typename T>
  __device__ void Start(int /*stage*/, const TileRows<T>& rows, const TilePart& part) {
    for (int row = part.group; part.has_vector && row < rows.num_rows; row += part.num_groups) {
      CopyVectorAsync(rows.To(row) + part.vector * kCopied<T>,
                      rows.From(row) + part.vector * kCopied<T>);
    }
    CommitCopies();
  }

  // Waits until the tile in `stage` is there for all threads, and no thread uses the tile before it
  // any more, whose stage `start` then fills.
  template <class StartTile>
  __device__ void Next(int /*stage*/, const StartTile& start) {
    WaitForCopies<kNumStages - 2>();
    __syncthreads();
    start();
  }
};

#if LAMINA_HAS_BULK_COPIES

// Copies tiles by whole rows: each warp copies every kWarps-th row, a row per lane. What a row
// costs is to compute its address, and so all lanes of all warps share that.
template <int kNumStages, int kThreads>
class BulkCopies {
 public:
  // Initialises `barriers`, [kNumStages] in shared memory, which are in use as long as the block
  // runs.
  __device__ explicit BulkCopies(Mbarrier* barriers) : barriers_(barriers) {
    if (threadIdx.x != 0) return;
    for (int stage = 0; stage < kNumStages; ++stage) InitMbarrier(&barriers_[stage], kWarps);
  }

  // Copies overwrite what threads of the block have read by loads (the tile before) or written by
  // stores (sums, in the place of tiles). So each thread fences before the barrier behind which
  // some of them start copies. This also makes `barriers` visible to copies.
  __device__ void HandOver() {
    FenceBulkCopies();
    __syncthreads();
  }

  // REQUIRES: rows.num_rows <= kThreads.
  template <typename T>
  __device__ void Start(int stage, const TileRows<T>& rows, const TilePart& /*part*/) {
    if (rows.num_rows == 0) return;
    const int num_bytes = rows.row_elements * static_cast<int>(sizeof(T));
    const int warp = static_cast<int>(threadIdx.x) / kWarpSize,
              lane = static_cast<int>(threadIdx.x) % kWarpSize;
    const int of_warp = (rows.num_rows - warp + kWarps - 1) / kWarps, row = warp + lane * kWarps;
    if (lane == 0) ArriveExpecting(&barriers_[stage], of_warp * num_bytes);
    __syncwarp();  // no lane may start a copy before lane 0 has said that its bytes are expected
    if (row < rows.num_rows)
      CopyBulkAsync(rows.To(row), rows.From(row), num_bytes, &barriers_[stage]);
  }

  template <class StartTile>
  __device__ void Next(int stage, const StartTile& start) {
    HandOver();
    start();
    WaitForPhase(&barriers_[stage], parities_ >> stage & 1);
    parities_ ^= 1u << stage;
  }

 private:
  static constexpr int kWarps = kThreads / kWarpSize;

  Mbarrier* const barriers_;
  // A bit for each stage: the parity of its barrier's phase in which the next tile arrives. Kept
  // over all rows that the block computes, as phases go on.
  unsigned parities_ = 0;
};

#endif

}  // namespace lamina::cuda
