#include "kernels/cuda/device.h"

#if LAMINA_HAS_CUDA
#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "bench/kernels/cuda_samples.h"
#include "bench/kernels/random_values.h"
#include "kernels/elementwise.h"
#include "kernels/kv_rows.h"

namespace lamina {
namespace {

// A sample is so long that a launch and the wait at its end are lost in it.
constexpr double kSampleSeconds = 0.02;

}  // namespace

Result<cuda::DeviceBuffer> Filled(size_t n, DType dtype, cuda::Stream& stream) {
  constexpr size_t kDifferent = 65521;  // a prime, so that rows begin at different values
  const std::vector<float> values = RandomValues(std::min(n, kDifferent), 3);
  std::vector<std::byte> elements(values.size() * ElementSize(dtype));
  const auto num_values = static_cast<int64_t>(values.size());
  if (HasScales(dtype)) {
    RoundWithScale(values.data(), num_values, dtype, elements.data());
  } else {
    ConvertFromFloat(values.data(), num_values, dtype, elements.data());
  }
  LAMINA_ASSIGN_OR_RETURN(const cuda::DeviceBuffer uploaded, Uploaded(elements, stream));
  LAMINA_ASSIGN_OR_RETURN(cuda::DeviceBuffer buffer,
                          cuda::DeviceBuffer::Create(n * ElementSize(dtype)));
  for (size_t at = 0; at < n; at += kDifferent) {
    cuda::CopyOnDevice(buffer.as<std::byte>() + at * ElementSize(dtype), uploaded.data(),
                       std::min(kDifferent, n - at) * ElementSize(dtype), stream);
  }
  LAMINA_RETURN_IF_ERROR(stream.Synchronize());
  return buffer;
}

TimedLaunches::TimedLaunches(std::function<void()> launch, cuda::Stream& stream)
    : launch_(std::move(launch)), stream_(stream) {
  // Slices are recorded as graphs the second time.
  for (int i = 0; i < 2; ++i) Seconds();
  times_ = static_cast<int>(std::clamp(kSampleSeconds / Seconds(), 1.0, 1000.0));
}

double TimedLaunches::Seconds() {
  const TimePoint start = Clock::now();
  for (int i = 0; i < times_; ++i) launch_();
  if (Status status = stream_.Synchronize(); failure_.ok()) failure_ = std::move(status);
  return SecondsSince(start) / times_;
}

}  // namespace lamina
#endif
