// The quantized linear layers of `lamina bench kernels`.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/worker_team.h"
#include "bench/kernels/kernel_samples.h"
#include "kernels/linear.h"

namespace lamina {

// "w4g64" and the like; null if it is none of QuantizedFormatNames.
std::optional<WeightFormat> QuantizedFormatNamed(const std::string& name);
std::vector<std::string> QuantizedFormatNames();

// Random codes around 0, with scales of powers of two, so that sums stay small.
QuantizedMatrix MakeQuantizedMatrix(const WeightFormat& format, int64_t out_features,
                                    int64_t in_features);

// Compares some outputs of the last row with sums in double precision. kInternal, beginning with
// `name`, if one is wrong. x: [rows, in_features]; y: [rows, out_features].
Status CheckLastRow(const std::string& name, const QuantizedMatrix& matrix,
                    std::span<const float> x, std::span<const float> y);

// One shape of matrix in one format, with so many copies that no cache holds them, and as many of
// bf16. Thread: owner.
class QuantizedLinearBench {
 public:
  // As LinearBench's.
  static Status CheckFits(int64_t out_features, int64_t in_features, int64_t rows);

  // REQUIRES: CheckFits is OK; features >= 1; the name is one of QuantizedFormatNames.
  QuantizedLinearBench(const std::string& format, int64_t out_features, int64_t in_features,
                       int64_t copies_bytes, WorkerTeam& team);

  // GFLOP/s against the smaller of streaming read of the codes and scales and multiply-adds; then
  // against the same layer with bf16 weights. kInternal if a result is wrong.
  Result<std::vector<Measurement>> Measure(int64_t rows, int repeats, WorkerTeam& team);

 private:
  double Operations(int64_t rows, size_t calls) const;
  double Run(const std::vector<PackedWeights>& copies, int64_t rows, size_t calls,
             WorkerTeam& team);

  const std::string name_;
  QuantizedMatrix matrix_;
  std::vector<PackedWeights> copies_, bf16_copies_;
  std::vector<float> x_, y_;  // [rows, in_features], [rows, out_features]
  size_t next_ = 0;
  double seconds_ = 0;  // of the last Run
};

}  // namespace lamina
