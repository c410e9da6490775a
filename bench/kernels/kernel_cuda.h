// The cases of `lamina bench kernels --device cuda:N`.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/status.h"
#include "bench/kernels/cuda_round_trip.h"
#include "bench/report.h"

namespace lamina {

struct CudaCases {
  bool attention = true, linear = true, slices = true, round_trips = true;
  std::vector<int64_t> contexts;
  std::vector<int> groups, head_dims;
  std::vector<DType> kv_dtypes;
  std::vector<int64_t> rows;
  struct Matrix {
    int64_t out_features = 0, in_features = 0;
  };
  std::vector<Matrix> matrices;
  std::vector<std::string> models;  // folders with a config.json
  // Of all sequences of an attention case: more than the device caches.
  int64_t tokens = 1 << 16;
  int repeats = 7;
  RoundTripCase round_trip;  // at each of `contexts`
};

// Decode attention against a copy on the device, whose reads and writes both count: it moves as
// many bytes over the same memory. Linear layers against cuBLAS alone on rows that are in the
// weights' type already. Slices as MeasureCudaSlice, round trips as MeasureRoundTrip. References
// are measured in turn with ours. Calls `print` for each case. kNotFound, kUnimplemented: no such
// device. kInternal: a result is wrong.
Status MeasureCudaKernels(int device, const CudaCases& cases,
                          const std::function<void(const Measurement&)>& print);

}  // namespace lamina
