#include "compute_node/make_compute_device.h"

#include "compute_node/modelled_device.h"

namespace lamina {

Result<std::unique_ptr<ComputeDevice>> MakeComputeDevice(const NodeDevice& device, WorkerTeam& team) {
  if (const auto* const spec = std::get_if<DeviceSpec>(&device)) return std::unique_ptr<ComputeDevice>(std::make_unique<ModelledDevice>(*spec));
  if (const auto* const gpu = std::get_if<CudaGpu>(&device)) return Unimplemented("cuda:" + std::to_string(gpu->index) + ": this program was built without CUDA");
  return std::unique_ptr<ComputeDevice>(std::make_unique<CpuDevice>(team));
}

}  // namespace lamina
