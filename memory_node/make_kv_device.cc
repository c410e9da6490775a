#include "memory_node/make_kv_device.h"

#include <utility>

#include "base/units.h"
#include "memory_node/cpu_kv_device.h"
#include "memory_node/modelled_kv_device.h"

namespace lamina {

Status CheckKvDevice(const NodeDevice& device, int64_t memory_bytes) {
  if (const auto* const spec = std::get_if<DeviceSpec>(&device); spec != nullptr && memory_bytes > spec->memory_bytes) {
    return InvalidArgument("--memory " + FormatGigabytes(memory_bytes) + " is more than the " + FormatGigabytes(spec->memory_bytes) +
                           " of device " + spec->name);
  }
  if (const auto* const gpu = std::get_if<CudaGpu>(&device)) return Unimplemented("cuda:" + std::to_string(gpu->index) + ": this program was built without CUDA");
  return OkStatus();
}

Result<std::unique_ptr<KvDevice>> MakeKvDevice(const NodeDevice& device, const KvShape& shape, int64_t capacity_tokens, WorkerTeam& team) {
  if (const auto* const spec = std::get_if<DeviceSpec>(&device))
    return std::unique_ptr<KvDevice>(std::make_unique<ModelledKvDevice>(*spec, shape.dtype, capacity_tokens));
  LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<KvStore> store, KvStore::Create(shape, capacity_tokens));
  return std::unique_ptr<KvDevice>(std::make_unique<CpuKvDevice>(std::move(store), team));
}

}  // namespace lamina
