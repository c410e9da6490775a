#include "compute_node/make_compute_device.h"

#include <string>

#include "compute_node/modelled_device.h"
#include "kernels/cuda/device.h"
#include "node/outside_gpu.h"
#if LAMINA_HAS_CUDA
#include "compute_node/cuda/cuda_device.h"
#endif

namespace lamina {
namespace {

Result<std::unique_ptr<ComputeDevice>> MakeCudaDevice(
    const CudaGpu& gpu, [[maybe_unused]] WorkerTeam& team,
    [[maybe_unused]] const ComputeOffload& offload) {
  for (const OffloadOptions* part : {&offload.weights, &offload.kv})
    LAMINA_RETURN_IF_ERROR(CheckOutsideGpu(*part));
  const std::string name = "cuda:" + std::to_string(gpu.index);
  if (const Result<int> count = cuda::DeviceCount(); !count.ok())
    return count.status().WithContext(name);
#if LAMINA_HAS_CUDA
  Result<std::unique_ptr<ComputeDevice>> device = CudaDevice::Create(gpu.index, team, offload);
  if (device.ok()) return device;
  return device.status().WithContext(name);
#else
  return Unimplemented(name + ": this program was built without CUDA");
#endif
}

}  // namespace

Result<std::unique_ptr<ComputeDevice>> MakeComputeDevice(const NodeDevice& device, WorkerTeam& team,
                                                         const ComputeOffload& offload) {
  if (const auto* const spec = std::get_if<DeviceSpec>(&device))
    return std::unique_ptr<ComputeDevice>(std::make_unique<ModelledDevice>(*spec, offload));
  if (const auto* const gpu = std::get_if<CudaGpu>(&device))
    return MakeCudaDevice(*gpu, team, offload);
  return std::unique_ptr<ComputeDevice>(std::make_unique<CpuDevice>(team, offload));
}

}  // namespace lamina
