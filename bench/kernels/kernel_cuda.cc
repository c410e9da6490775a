#include "bench/kernels/kernel_cuda.h"

#include "kernels/cuda/device.h"

#if LAMINA_HAS_CUDA
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "bench/kernels/cuda_samples.h"
#include "bench/kernels/kernel_cuda_quantized.h"
#include "bench/kernels/kernel_cuda_slice.h"
#include "bench/kernels/kernel_samples.h"
#include "bench/kernels/random_values.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/linear.h"
#include "kernels/reference/reference.h"
#endif

namespace lamina {

#if LAMINA_HAS_CUDA
namespace {

constexpr int kCudaKvHeads = 8;
struct CudaAttentionSizes {
  DType dtype;
  int head_dim, group;
  int64_t context, sequences;
};

// The largest code then stands for a number between 0.5 and 1.5.
std::vector<float> RandomScales(size_t n, DType dtype) {
  const float largest_code = dtype == DType::kI8Scaled ? 127.0f : kMaxF8;
  std::vector<float> scales = RandomValues(n, 7);
  for (float& scale : scales) scale = (1 + scale / 2) / largest_code;
  return scales;
}

// The slab has exactly the tokens of all sequences, each in random slots.
Result<Measurement> MeasureCudaAttention(const CudaAttentionSizes& sizes, int repeats,
                                         cuda::Stream& stream) {
  const int64_t capacity = sizes.context * sizes.sequences;
  const int num_heads = kCudaKvHeads * sizes.group;
  const AttentionShape shape = {num_heads, kCudaKvHeads, sizes.head_dim,
                                1.0f / std::sqrt(static_cast<float>(sizes.head_dim)), 0};
  const auto slab_elements = static_cast<size_t>(kCudaKvHeads * capacity * sizes.head_dim),
             width = static_cast<size_t>(num_heads * sizes.head_dim);
  LAMINA_ASSIGN_OR_RETURN(const cuda::DeviceBuffer k, Filled(slab_elements, sizes.dtype, stream));
  LAMINA_ASSIGN_OR_RETURN(const cuda::DeviceBuffer v, Filled(slab_elements, sizes.dtype, stream));
  // As cuda::KvCache lays them out.
  std::vector<float> host_scales;
  cuda::DeviceBuffer scales;
  if (HasScales(sizes.dtype)) {
    host_scales = RandomScales(static_cast<size_t>(2 * kCudaKvHeads * capacity), sizes.dtype);
    LAMINA_ASSIGN_OR_RETURN(scales, Uploaded(host_scales, stream));
  }
  KvView kv = {.k = k.data(),
               .v = v.data(),
               .head_stride = capacity * sizes.head_dim,
               .slot_stride = sizes.head_dim,
               .dtype = sizes.dtype,
               .scale_head_stride = 2 * capacity,
               .scale_slot_stride = 2};
  if (!host_scales.empty()) kv.v_scales = (kv.k_scales = scales.as<float>()) + 1;
  LAMINA_RETURN_IF_ERROR(cuda::CheckAttention(shape, kv));

  std::vector<TokenSlot> slots(static_cast<size_t>(capacity));
  std::iota(slots.begin(), slots.end(), TokenSlot{0});
  std::shuffle(slots.begin(), slots.end(), std::mt19937(11));
  std::vector<cuda::RowTokens> rows;
  for (int64_t i = 0; i < sizes.sequences; ++i) rows.push_back({i * sizes.context, sizes.context});
  const std::vector<float> q = RandomValues(rows.size() * width, 5);
  LAMINA_ASSIGN_OR_RETURN(const cuda::DeviceBuffer device_q, Uploaded(q, stream));
  LAMINA_ASSIGN_OR_RETURN(const cuda::DeviceBuffer device_slots, Uploaded(slots, stream));
  LAMINA_ASSIGN_OR_RETURN(const cuda::DeviceBuffer device_rows, Uploaded(rows, stream));
  LAMINA_ASSIGN_OR_RETURN(const cuda::DeviceBuffer out,
                          cuda::DeviceBuffer::Create(q.size() * sizeof(float)));
  LAMINA_ASSIGN_OR_RETURN(const cuda::DeviceBuffer scratch,
                          cuda::DeviceBuffer::Create(
                              cuda::AttentionScratchBytes(shape, sizes.sequences, sizes.context)));
  cuda::AttentionBatch batch;
  batch.q = device_q.data();
  batch.slots = device_slots.as<TokenSlot>();
  batch.rows = device_rows.as<cuda::RowTokens>();
  batch.num_rows = sizes.sequences;
  batch.max_tokens = sizes.context;
  batch.out = out.data();

  LAMINA_ASSIGN_OR_RETURN(const cuda::DeviceBuffer copy,
                          cuda::DeviceBuffer::Create(k.size_bytes()));
  TimedLaunches ours([&] { cuda::Attention(shape, kv, batch, scratch, stream); }, stream);
  TimedLaunches other([&] { cuda::CopyOnDevice(copy.data(), k.data(), k.size_bytes(), stream); },
                      stream);
  const auto bytes = static_cast<double>(k.size_bytes() + v.size_bytes() + scales.size_bytes());
  const Measurement m = MeasureRatePair(
      "attention",
      {{"kv", DTypeName(sizes.dtype)},
       {"head_dim", sizes.head_dim},
       {"group", sizes.group},
       {"context", sizes.context},
       {"slots", "random"},
       {"kv_heads", kCudaKvHeads},
       {"sequences", sizes.sequences},
       {"repeats", repeats}},
      repeats,
      {"GB/s", "copy on the device, reads and writes", "",
       [&] { return bytes / ours.Seconds() / 1e9; },
       [&] { return 2 * static_cast<double>(k.size_bytes()) / other.Seconds() / 1e9; }});
  LAMINA_RETURN_IF_ERROR(ours.failure());
  LAMINA_RETURN_IF_ERROR(other.failure());

  // The first row is compared with the reference.
  std::vector<std::byte> host_k(k.size_bytes()), host_v(v.size_bytes());
  std::vector<float> got(width), expected(width);
  cuda::CopyToHost(host_k.data(), k.data(), host_k.size(), stream);
  cuda::CopyToHost(host_v.data(), v.data(), host_v.size(), stream);
  cuda::CopyToHost(got.data(), out.data(), width * sizeof(float), stream);
  LAMINA_RETURN_IF_ERROR(stream.Synchronize());
  const AttentionRow row = {q.data(), slots.data(), sizes.context, expected.data(), nullptr};
  kv.k = host_k.data();
  kv.v = host_v.data();
  if (!host_scales.empty()) kv.v_scales = (kv.k_scales = host_scales.data()) + 1;
  reference::Attention(shape, kv, {&row, 1});
  for (size_t i = 0; i < width; ++i) {
    if (!(std::abs(got[i] - expected[i]) <= 1e-4))
      return InternalError(fmt::format("attention: {} for {}", got[i], expected[i]));
  }
  return m;
}

struct CudaLinearSizes {
  int64_t rows, out_features, in_features;
  cuda::LinearPrecision precision;
};

Result<Measurement> MeasureCudaLinear(const CudaLinearSizes& sizes, int repeats,
                                      cuda::Stream& stream) {
  const int64_t rows = sizes.rows, out_features = sizes.out_features,
                in_features = sizes.in_features;
  const cuda::LinearPrecision precision = sizes.precision;
  const auto x_size = static_cast<size_t>(rows * in_features),
             y_size = static_cast<size_t>(rows * out_features);
  LAMINA_ASSIGN_OR_RETURN(
      const cuda::DeviceBuffer weights,
      Filled(static_cast<size_t>(out_features * in_features), DType::kBF16, stream));
  LAMINA_ASSIGN_OR_RETURN(const cuda::DeviceBuffer x, Filled(x_size, DType::kF32, stream));
  LAMINA_ASSIGN_OR_RETURN(const cuda::DeviceBuffer rounded, Filled(x_size, DType::kBF16, stream));
  LAMINA_ASSIGN_OR_RETURN(const cuda::DeviceBuffer y,
                          cuda::DeviceBuffer::Create(y_size * sizeof(float)));
  LAMINA_ASSIGN_OR_RETURN(const cuda::DeviceBuffer other_y,
                          cuda::DeviceBuffer::Create(y_size * sizeof(float)));
  LAMINA_ASSIGN_OR_RETURN(const auto linear, cuda::Linear::Create({rows, in_features, out_features},
                                                                  precision, stream));
  LAMINA_ASSIGN_OR_RETURN(const auto gemm, cuda::Gemm::Create(stream));
  TimedLaunches ours(
      [&] {
        linear->Run({weights.data(), DType::kBF16, out_features, in_features}, x.as<float>(), rows,
                    nullptr, y.as<float>());
      },
      stream);
  TimedLaunches other(
      [&] {
        gemm->Run({rounded.data(), weights.data(), DType::kBF16, rows, in_features, out_features,
                   other_y.as<float>(), false});
      },
      stream);
  const double operations = 2.0 * static_cast<double>(rows * out_features * in_features);
  const char* const x_is = precision == cuda::LinearPrecision::kSplit ? "split" : "rounded";
  const Measurement m =
      MeasureRatePair("linear",
                      {{"rows", rows},
                       {"out", out_features},
                       {"in", in_features},
                       {"dtype", "bf16"},
                       {"x", x_is},
                       {"repeats", repeats}},
                      repeats,
                      {"GFLOP/s", "cuBLAS alone on rounded rows", fmt::format("x {}", x_is),
                       [&] { return operations / ours.Seconds() / 1e9; },
                       [&] { return operations / other.Seconds() / 1e9; }});
  LAMINA_RETURN_IF_ERROR(ours.failure());
  LAMINA_RETURN_IF_ERROR(other.failure());

  // Both are results of the same rows, but for rounding.
  std::vector<float> got(y_size), expected(y_size);
  cuda::CopyToHost(got.data(), y.data(), y.size_bytes(), stream);
  cuda::CopyToHost(expected.data(), other_y.data(), other_y.size_bytes(), stream);
  LAMINA_RETURN_IF_ERROR(stream.Synchronize());
  const double tolerance = 0x1p-8 * static_cast<double>(in_features);
  for (size_t i = 0; i < y_size; ++i) {
    if (!(std::abs(got[i] - expected[i]) <= tolerance))
      return InternalError(fmt::format("linear: {} for {}", got[i], expected[i]));
  }
  return m;
}

Status MeasureAllQuantized(int device, const CudaCases& cases,
                           const std::function<void(Measurement)>& print) {
  LAMINA_ASSIGN_OR_RETURN(const auto staged, cuda::StagedStream::Create(device));
  for (const CudaCases::Matrix& matrix : cases.matrices) {
    for (const std::string& format : cases.formats) {
      for (const int64_t rows : cases.rows) {
        LAMINA_ASSIGN_OR_RETURN(std::vector<Measurement> measured,
                                MeasureCudaQuantized({format, rows, matrix.out_features,
                                                      matrix.in_features, cases.copies_bytes},
                                                     cases.repeats, *staged));
        for (Measurement& m : measured) print(std::move(m));
      }
    }
  }
  return OkStatus();
}

}  // namespace

Status MeasureCudaKernels(int device, const CudaCases& cases,
                          const std::function<void(const Measurement&)>& print) {
  LAMINA_ASSIGN_OR_RETURN(const cuda::DeviceInfo info, cuda::DescribeDevice(device));
  LAMINA_RETURN_IF_ERROR(cuda::UseDevice(device));
  LAMINA_ASSIGN_OR_RETURN(const auto stream, cuda::Stream::Create());
  const auto named = [&](Measurement m) {
    m.sizes["device"] = info.name;
    print(m);
  };
  for (const DType dtype : cases.attention ? cases.kv_dtypes : std::vector<DType>()) {
    for (const int head_dim : cases.head_dims) {
      for (const int64_t context : cases.contexts) {
        for (const int group : cases.groups) {
          const int64_t sequences = std::max<int64_t>(1, cases.tokens / context);
          LAMINA_ASSIGN_OR_RETURN(Measurement m,
                                  MeasureCudaAttention({dtype, head_dim, group, context, sequences},
                                                       cases.repeats, *stream));
          named(std::move(m));
        }
      }
    }
  }
  for (const CudaCases::Matrix& matrix :
       cases.linear ? cases.matrices : std::vector<CudaCases::Matrix>()) {
    for (const int64_t rows : cases.rows) {
      for (const cuda::LinearPrecision precision :
           {cuda::LinearPrecision::kSplit, cuda::LinearPrecision::kRounded}) {
        LAMINA_ASSIGN_OR_RETURN(Measurement m, MeasureCudaLinear({rows, matrix.out_features,
                                                                  matrix.in_features, precision},
                                                                 cases.repeats, *stream));
        named(std::move(m));
      }
    }
  }
  if (cases.quantized) LAMINA_RETURN_IF_ERROR(MeasureAllQuantized(device, cases, named));
  for (const std::string& model : cases.slices ? cases.models : std::vector<std::string>()) {
    LAMINA_RETURN_IF_ERROR(MeasureCudaSlice(device, model, cases.rows, cases.repeats, named));
  }
  for (const int64_t context : cases.round_trips ? cases.contexts : std::vector<int64_t>()) {
    RoundTripCase round_trip = cases.round_trip;
    round_trip.context = context;
    LAMINA_ASSIGN_OR_RETURN(Measurement m, MeasureRoundTrip(device, round_trip));
    named(std::move(m));
  }
  return OkStatus();
}
#else
Status MeasureCudaKernels(int device, const CudaCases& /*cases*/,
                          const std::function<void(const Measurement&)>& /*print*/) {
  return cuda::DescribeDevice(device).status();
}
#endif

}  // namespace lamina
