#include "memory_node/make_kv_device.h"

#include <string>
#include <utility>

#include "base/units.h"
#include "kernels/cuda/device.h"
#include "memory_node/cpu_kv_device.h"
#include "memory_node/modelled_kv_device.h"
#include "node/kv_ring.h"
#include "node/outside_gpu.h"
#if LAMINA_HAS_CUDA
#include "memory_node/cuda/cuda_kv_device.h"
#endif

namespace lamina {
namespace {

std::string NameOf(const CudaGpu& gpu) { return "cuda:" + std::to_string(gpu.index); }

Result<std::unique_ptr<KvDevice>> MakeCudaKvDevice(
    const CudaGpu& gpu, [[maybe_unused]] const KvShape& shape,
    [[maybe_unused]] int64_t capacity_tokens, [[maybe_unused]] const MemoryNodeOptions& options) {
#if LAMINA_HAS_CUDA
  cuda::KvOutside outside{.host_bytes = options.host_memory_bytes};
  LAMINA_ASSIGN_OR_RETURN(outside.in_turns, LayersOutsideOf(options.offload, shape.num_layers));
  return CudaKvDevice::Create(gpu.index, shape, capacity_tokens, outside);
#else
  return Unimplemented(NameOf(gpu) + ": this program was built without CUDA");
#endif
}

}  // namespace

Status CheckKvDevice(const MemoryNodeOptions& options) {
  const NodeDevice& device = options.device;
  const int64_t memory_bytes = options.memory_bytes, host_memory_bytes = options.host_memory_bytes;
  if (options.offload.any() && std::holds_alternative<DeviceSpec>(device))
    return Unimplemented("layers of a modelled memory node's KV cache cannot lie outside yet");
  if (options.offload.any() && std::holds_alternative<CudaGpu>(device)) {
    LAMINA_RETURN_IF_ERROR(CheckOutsideGpu(options.offload));
    if (host_memory_bytes > 0)
      return InvalidArgument(
          "layers outside take turns, or kernels read them with --host-memory: give one of both");
  }
  if (const auto* const spec = std::get_if<DeviceSpec>(&device);
      spec != nullptr && memory_bytes > spec->memory_bytes) {
    return InvalidArgument("--memory " + FormatGigabytes(memory_bytes) + " is more than the " +
                           FormatGigabytes(spec->memory_bytes) + " of device " + spec->name);
  }
  // The memory of a CPU is not checked here: KvStore says so when it cannot be had.
  const auto* const gpu = std::get_if<CudaGpu>(&device);
  if (gpu == nullptr && host_memory_bytes > 0)
    return InvalidArgument("--host-memory is for the KV of a GPU: --device cuda:N");
  if (gpu == nullptr) return OkStatus();
  if (host_memory_bytes > memory_bytes) {
    return InvalidArgument("--host-memory " + FormatGigabytes(host_memory_bytes) +
                           " is a part of --memory, which is " + FormatGigabytes(memory_bytes));
  }
  const Result<cuda::DeviceInfo> info = cuda::DescribeDevice(gpu->index);
  if (!info.ok()) return info.status().WithContext(NameOf(*gpu));
  if (memory_bytes - host_memory_bytes > info->free_bytes) {
    const std::string less_host =
        host_memory_bytes > 0 ? " less --host-memory " + FormatGigabytes(host_memory_bytes) : "";
    return OutOfSpace(
        "--memory " + FormatGigabytes(memory_bytes) + less_host + " is more than the " +
        FormatGigabytes(info->free_bytes) + " that " + NameOf(*gpu) + " (" + info->name +
        ") has free of " + FormatGigabytes(info->memory_bytes) +
        (host_memory_bytes > 0 ? "" : "; --host-memory puts a part of it into the host's memory"));
  }
  return OkStatus();
}

Result<int64_t> KvCapacityTokens(const MemoryNodeOptions& options, const KvShape& shape) {
  return TokensInMemory(shape.num_layers, shape.bytes_per_token() / shape.num_layers,
                        options.offload, options.memory_bytes);
}

Result<std::unique_ptr<KvDevice>> MakeKvDevice(const MemoryNodeOptions& options,
                                               const KvShape& shape, int64_t capacity_tokens,
                                               WorkerTeam& team) {
  if (const auto* const spec = std::get_if<DeviceSpec>(&options.device))
    return std::unique_ptr<KvDevice>(
        std::make_unique<ModelledKvDevice>(*spec, shape.dtype, capacity_tokens));
  if (const auto* const gpu = std::get_if<CudaGpu>(&options.device))
    return MakeCudaKvDevice(*gpu, shape, capacity_tokens, options);
  std::unique_ptr<KvStore> store;
  if (options.offload.any()) {
    LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<KvRing> ring,
                            KvRing::Create(shape, options.offload, capacity_tokens));
    LAMINA_ASSIGN_OR_RETURN(store, KvStore::CreateIn(std::move(ring), shape, capacity_tokens));
  } else {
    LAMINA_ASSIGN_OR_RETURN(store, KvStore::Create(shape, capacity_tokens));
  }
  return std::unique_ptr<KvDevice>(std::make_unique<CpuKvDevice>(std::move(store), team));
}

}  // namespace lamina
