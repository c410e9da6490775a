// Stands for device.cc in a build without CUDA.
#include "kernels/cuda/device.h"

namespace lamina::cuda {
namespace {

Status WithoutCuda() {
  return Unimplemented(
      "this program was built without CUDA; build it where nvcc is installed, or with "
      "-DLAMINA_CUDA=ON to see what is missing");
}

}  // namespace

std::string_view BuiltWith() { return ""; }
Result<int> DeviceCount() { return WithoutCuda(); }
Result<DeviceInfo> DescribeDevice(int /*device*/) { return WithoutCuda(); }

}  // namespace lamina::cuda
