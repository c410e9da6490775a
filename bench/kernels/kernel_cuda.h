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

// Which kernels are measured, at every combination of their sizes.
struct CudaCases {
  bool attention = true, linear = true, quantized = true, slices = true, round_trips = true;
  std::vector<int64_t> contexts;
  std::vector<int> groups, head_dims;
  std::vector<DType> kv_dtypes;
  std::vector<int64_t> rows;
  struct Matrix {
    int64_t out_features = 0, in_features = 0;
  };
  std::vector<Matrix> matrices;
  std::vector<std::string> formats;  // of quantized matrices
  // Copies of a quantized matrix, which are used in turn: more than the device caches.
  int64_t copies_bytes = 512 << 20;
  // Folders with a config.json.
  std::vector<std::string> models;
  // Tokens of all sequences of an attention case together: more than the device caches.
  int64_t tokens = 1 << 16;
  int repeats = 7;
  RoundTripCase round_trip;  // at each of `contexts`
};

// Calls `print` for each case. The references, which are measured in turn with ours: for decode
// attention a copy on the device whose reads and writes both count, as it moves as many bytes over
// the same memory; for linear layers cuBLAS alone, on rows that are in the weights' type already;
// for quantized ones, slices and round trips see MeasureCudaQuantized, MeasureCudaSlice and
// MeasureRoundTrip. kNotFound or kUnimplemented if there is no such device, kInternal if a result
// is wrong.
Status MeasureCudaKernels(int device, const CudaCases& cases,
                          const std::function<void(const Measurement&)>& print);

}  // namespace lamina
