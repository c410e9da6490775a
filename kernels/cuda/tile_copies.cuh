// Two ways to bring tiles of rows from global to shared memory, with several stages of them there:
// 16 bytes per lane, and whole rows at once (bulk_copies.cuh) where the GPU can. The same bytes
// arrive.
//
// Bytes on their way are what keeps memory busy. A lane waits for its own copies only and a barrier
// tells the others, so a stage is filled again once the next tile is there: all stages but one are
// on their way. Everybody can wait for rows, so there the barrier comes first and all stages are on
// their way while threads wait. That is enough with as many stages; more would cost blocks on a
// multiprocessor.
#pragma once

#include "base/ids.h"
#include "kernels/cuda/bulk_copies.cuh"
#include "kernels/cuda/platform.cuh"
#include "kernels/cuda/vectors.cuh"

namespace lamina::cuda {

// Row t < num_rows comes from `from` + slots[t] * slot_stride and goes to `to` + t * pitch; in
// elements, all of it multiples of 16 bytes. `slots` is not looked at where there are no rows.
template <typename T>
struct TileRows {
  T* to;
  int pitch;
  const T* from;
  int64_t slot_stride;
  const TokenSlot* slots;
  int num_rows, row_elements;

  __device__ T* To(int row) const { return to + row * pitch; }
  __device__ const T* From(int row) const {
    return from + static_cast<int64_t>(slots[row]) * slot_stride;
  }
};

// What of a tile a lane copies: kCopied elements of every num_groups-th row, if rows have these.
struct TilePart {
  int num_groups, group, vector;
  bool has_vector;
};

// All threads of a block call all functions. Tiles take the stages in turn; after the last one,
// tiles without rows are started, and never become the next one.
template <int kNumStages>
class LaneCopies {
 public:
  __device__ explicit LaneCopies(Mbarrier* /*barriers*/) {}

  // Before the first Start, and where the stages were used for something else: all threads are done
  // with that.
  __device__ void HandOver() { __syncthreads(); }

  template <typename T>
  __device__ void Start(int /*stage*/, const TileRows<T>& rows, const TilePart& part) {
    for (int row = part.group; part.has_vector && row < rows.num_rows; row += part.num_groups) {
      CopyVectorAsync(rows.To(row) + part.vector * kCopied<T>,
                      rows.From(row) + part.vector * kCopied<T>);
    }
    CommitCopies();
  }

  // The tile in `stage` becomes the next one: it is there for everybody, and nobody uses the one
  // before it any more, whose stage `start` fills.
  template <class StartTile>
  __device__ void Next(int /*stage*/, const StartTile& start) {
    WaitForCopies<kNumStages - 2>();
    __syncthreads();
    start();
  }
};

#if LAMINA_HAS_BULK_COPIES

// Each warp copies every kWarps-th row of a tile, a row per lane: what a row costs is its address,
// and that is shared out so.
template <int kNumStages, int kThreads>
class BulkCopies {
 public:
  // Makes `barriers`, one for each stage, which stay as long as the block runs.
  __device__ explicit BulkCopies(Mbarrier* barriers) : barriers_(barriers) {
    if (threadIdx.x != 0) return;
    for (int stage = 0; stage < kNumStages; ++stage) InitMbarrier(&barriers_[stage], kWarps);
  }

  // Copies overwrite what threads of the block have read by loads, the tile before, or written by
  // stores, sums where tiles stood. So each thread fences before the barrier behind which some of
  // them start copies. This is also what makes `barriers` visible to copies.
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
    __syncwarp();  // nothing may arrive before it is expected
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
  // Of each stage's next tile, a bit: goes on from pass to pass and from rows to rows.
  unsigned parities_ = 0;
};

#endif

}  // namespace lamina::cuda
