// The linear layers of `lamina bench kernels`.
#pragma once

#include <optional>
#include <vector>

#include "base/status.h"
#include "base/worker_team.h"
#include "bench/kernels/kernel_samples.h"
#include "bench/kernels/openblas.h"
#include "kernels/linear.h"

namespace lamina {

// One shape, with so many copies of the weights that no cache holds them: a model's layers take
// turns like that. Thread: one owner.
class LinearBench {
 public:
  // kOutOfSpace if that and `rows` rows of inputs and outputs are more than half of the machine's
  // memory.
  static Status CheckFits(int64_t out_features, int64_t in_features, int64_t rows, bool has_blas);

  // REQUIRES: CheckFits, and features >= 1. Copies of bf16 weights, and of fp32 weights if `blas`
  // is not null, which is borrowed; about `copies_bytes` of each.
  LinearBench(int64_t out_features, int64_t in_features, int64_t copies_bytes, const OpenBlas* blas,
              WorkerTeam& team);

  // GFLOP/s against the smaller of streaming read of the weights and multiply-adds; then, if there
  // is one, against OpenBLAS. kInternal if a result is wrong.
  Result<std::vector<Measurement>> Measure(int64_t rows, int repeats, WorkerTeam& team);

 private:
  double Operations(int64_t rows, size_t calls) const;
  double Run(int64_t rows, size_t calls, WorkerTeam& team);
  double RunPeer(int64_t rows, size_t calls);
  Status Check(int64_t rows) const;

  const int64_t out_features_, in_features_;
  const OpenBlas* blas_;
  std::vector<uint16_t> source_;                 // [out_features, in_features] bf16
  std::vector<PackedWeights> copies_;            // of source_
  std::vector<std::vector<float>> peer_copies_;  // of source_, fp32
  std::vector<float> x_, y_, peer_y_;            // of the largest number of rows so far
  size_t next_ = 0, next_peer_ = 0;              // whose turn it is
  double seconds_ = 0;                           // of the last Run
};

}  // namespace lamina
