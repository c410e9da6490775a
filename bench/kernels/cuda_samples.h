// What the cases on a GPU share: values on the device, and the timing of launches.
#pragma once

#include <functional>
#include <vector>

#include "base/dtype.h"
#include "base/status.h"
#include "kernels/cuda/device.h"

namespace lamina {

// A copy of the values on the device, complete on return.
template <typename T>
Result<cuda::DeviceBuffer> Uploaded(const std::vector<T>& values, cuda::Stream& stream) {
  LAMINA_ASSIGN_OR_RETURN(cuda::DeviceBuffer buffer,
                          cuda::DeviceBuffer::Create(values.size() * sizeof(T)));
  cuda::CopyToDevice(buffer.data(), values.data(), buffer.size_bytes(), stream);
  LAMINA_RETURN_IF_ERROR(stream.Synchronize());
  return buffer;
}

// n values of `dtype` on the device: random ones, which repeat after 65,521. If the type has
// scales: codes only, of all sizes.
Result<cuda::DeviceBuffer> Filled(size_t n, DType dtype, cuda::Stream& stream);

// Times a launch by running it many times back to back. Thread: owner.
class TimedLaunches {
 public:
  // Warms up, and finds out how many launches make up a sample. Borrows the stream.
  TimedLaunches(std::function<void()> launch, cuda::Stream& stream);

  // Seconds of one launch, as the mean over a sample.
  double Seconds();
  // The first error of any launch.
  const Status& failure() const { return failure_; }

 private:
  std::function<void()> launch_;
  cuda::Stream& stream_;
  int times_ = 1;
  Status failure_;
};

}  // namespace lamina
