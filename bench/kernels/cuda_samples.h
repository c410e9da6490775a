// What the cases on a GPU share: values on the device, and how launches are timed.
#pragma once

#include <functional>
#include <vector>

#include "base/dtype.h"
#include "base/status.h"
#include "kernels/cuda/device.h"

namespace lamina {

template <typename T>
Result<cuda::DeviceBuffer> Uploaded(const std::vector<T>& values, cuda::Stream& stream) {
  LAMINA_ASSIGN_OR_RETURN(cuda::DeviceBuffer buffer,
                          cuda::DeviceBuffer::Create(values.size() * sizeof(T)));
  cuda::CopyToDevice(buffer.data(), values.data(), buffer.size_bytes(), stream);
  LAMINA_RETURN_IF_ERROR(stream.Synchronize());
  return buffer;
}

// n values of `dtype` on the device: a few thousand random ones, again and again.
Result<cuda::DeviceBuffer> Filled(size_t n, DType dtype, cuda::Stream& stream);

// Seconds of one `launch`: of as many as make up a sample, back to back.
class TimedLaunches {
 public:
  // Warms up. Borrows the stream.
  TimedLaunches(std::function<void()> launch, cuda::Stream& stream);

  double Seconds();
  const Status& failure() const { return failure_; }

 private:
  std::function<void()> launch_;
  cuda::Stream& stream_;
  int times_ = 1;
  Status failure_;
};

}  // namespace lamina
