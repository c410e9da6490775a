#include "kernels/cuda/device.h"

#if LAMINA_HAS_CUDA
#include <fmt/format.h>

#include <algorithm>

#include "bench/kernels/cuda_samples.h"
#include "bench/kernels/kernel_cuda_quantized.h"
#include "bench/kernels/kernel_quantized.h"
#include "bench/kernels/kernel_samples.h"
#include "bench/kernels/random_values.h"
#include "kernels/cuda/host/upload_quantized.h"
#include "kernels/cuda/linear.h"

namespace lamina {
namespace {

// Copies of one layer's weights, used in turn.
class Copies {
 public:
  static Result<Copies> Create(size_t bytes, int64_t all_bytes) {
    Copies copies;
    copies.bytes_ = bytes;
    copies.count_ = static_cast<size_t>(all_bytes) / bytes + 2;
    LAMINA_ASSIGN_OR_RETURN(copies.memory_, cuda::DeviceBuffer::Create(bytes * copies.count_));
    return copies;
  }
  // Makes all of them the first one.
  void Fill(cuda::Stream& stream) {
    for (size_t i = 1; i < count_; ++i) cuda::CopyOnDevice(At(i), At(0), bytes_, stream);
  }
  std::byte* At(size_t i) const { return memory_.as<std::byte>() + i % count_ * bytes_; }

 private:
  cuda::DeviceBuffer memory_;
  size_t bytes_ = 0, count_ = 0;
};

}  // namespace

Result<std::vector<Measurement>> MeasureCudaQuantized(const CudaQuantizedCase& sizes, int repeats,
                                                      cuda::StagedStream& staged) {
  cuda::Stream& stream = staged.stream();
  const int64_t rows = sizes.rows, out = sizes.out_features, in = sizes.in_features;
  const QuantizedMatrix matrix = MakeQuantizedMatrix(*QuantizedFormatNamed(sizes.format), out, in);
  const cuda::QuantizedLayout layout(matrix.format, out, in);
  const auto bf16_bytes = static_cast<size_t>(out * in) * sizeof(BF16);
  LAMINA_ASSIGN_OR_RETURN(Copies codes, Copies::Create(layout.size_bytes, sizes.copies_bytes));
  LAMINA_ASSIGN_OR_RETURN(Copies bf16, Copies::Create(bf16_bytes, sizes.copies_bytes));
  cuda::DeviceBuffer scratch;
  cuda::LinearWeights weights = cuda::UploadQuantized(matrix, codes.At(0), scratch, staged);
  codes.Fill(stream);
  LAMINA_ASSIGN_OR_RETURN(const cuda::DeviceBuffer plain,
                          Filled(static_cast<size_t>(out * in), DType::kBF16, stream));
  cuda::CopyOnDevice(bf16.At(0), plain.data(), bf16_bytes, stream);
  bf16.Fill(stream);
  const std::vector<float> x = RandomValues(static_cast<size_t>(rows * in), 5);
  LAMINA_ASSIGN_OR_RETURN(const cuda::DeviceBuffer device_x, Uploaded(x, stream));
  LAMINA_ASSIGN_OR_RETURN(
      const cuda::DeviceBuffer y,
      cuda::DeviceBuffer::Create(static_cast<size_t>(rows * out) * sizeof(float)));
  LAMINA_ASSIGN_OR_RETURN(const auto linear,
                          cuda::Linear::Create({rows, std::max(in, weights.num_places()), out},
                                               cuda::LinearPrecision::kSplit, stream));

  size_t next = 0;
  TimedLaunches of_bf16(
      [&] {
        linear->Run({bf16.At(next++), DType::kBF16, out, in}, device_x.as<float>(), rows, nullptr,
                    y.as<float>());
      },
      stream);
  TimedLaunches of_copy(
      [&] {
        cuda::CopyOnDevice(codes.At(next), codes.At(next + 1), layout.size_bytes, stream);
        next += 2;
      },
      stream);
  TimedLaunches ours(
      [&] {
        weights.quantized = layout.At(codes.At(next++), matrix.format);
        linear->Run(weights, device_x.as<float>(), rows, nullptr, y.as<float>());
      },
      stream);
  const double operations = 2.0 * static_cast<double>(rows * out * in);
  const nlohmann::json names = {
      {"rows", rows}, {"out", out}, {"in", in}, {"weights", sizes.format}, {"repeats", repeats}};
  std::vector<Measurement> measured;
  measured.push_back(MeasureRatePair(
      "quantized_linear", names, repeats,
      {"GFLOP/s", "reading the weights as fast as a copy on the device reads and writes", "",
       [&] { return operations / ours.Seconds() / 1e9; },
       [&] { return operations / (of_copy.Seconds() / 2) / 1e9; }}));
  measured.back().note += fmt::format(
      "; {:.1f} GB/s", measured.back().value / operations * static_cast<double>(layout.size_bytes));
  std::vector<float> got(static_cast<size_t>(rows * out));
  ours.Seconds();  // y is then of codes again
  cuda::CopyToHost(got.data(), y.data(), y.size_bytes(), stream);
  LAMINA_RETURN_IF_ERROR(stream.Synchronize());
  LAMINA_RETURN_IF_ERROR(CheckLastRow(sizes.format, matrix, x, got));
  measured.push_back(MeasureRatePair("quantized_against_bf16", names, repeats,
                                     {"GFLOP/s", "the same layer with bf16 weights", "",
                                      [&] { return operations / ours.Seconds() / 1e9; },
                                      [&] { return operations / of_bf16.Seconds() / 1e9; }}));
  for (const TimedLaunches* timed : {&ours, &of_bf16, &of_copy})
    LAMINA_RETURN_IF_ERROR(timed->failure());
  return measured;
}

}  // namespace lamina
#endif
