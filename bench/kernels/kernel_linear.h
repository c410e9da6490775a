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

// One shape of matrix, with so many copies of the weights that no cache holds them; they take
// turns, as the layers of a model do. Thread: owner.
class LinearBench {
 public:
  // kOutOfSpace if the weights, and inputs and outputs of `rows` rows, take more than half of the
  // machine's memory.
  static Status CheckFits(int64_t out_features, int64_t in_features, int64_t rows, bool has_blas);

  // Makes copies of bf16 weights, and copies of fp32 weights if `blas` is not null; about
  // `copies_bytes` of each. Borrows `blas`. REQUIRES: CheckFits is OK; features >= 1.
  LinearBench(int64_t out_features, int64_t in_features, int64_t copies_bytes, const OpenBlas* blas,
              WorkerTeam& team);

  // GFLOP/s against the smaller of streaming read of the weights and multiply-adds; then, if there
  // is `blas`, against OpenBLAS. kInternal if a result is wrong.
  Result<std::vector<Measurement>> Measure(int64_t rows, int repeats, WorkerTeam& team);

 private:
  double Operations(int64_t rows, size_t calls) const;
  double Run(int64_t rows, size_t calls, WorkerTeam& team);
  double RunPeer(int64_t rows, size_t calls);
  Status Check(int64_t rows) const;

  const int64_t out_features_, in_features_;
  const OpenBlas* blas_;
  // [out_features, in_features] bf16, of which all copies are made.
  std::vector<uint16_t> source_;
  std::vector<PackedWeights> copies_;
  std::vector<std::vector<float>> peer_copies_;  // fp32
  // [rows, in_features], [rows, out_features] of the rows that are being measured.
  std::vector<float> x_, y_, peer_y_;
  size_t next_ = 0, next_peer_ = 0;  // the copy that is read next
  double seconds_ = 0;               // of the last Run
};

}  // namespace lamina
