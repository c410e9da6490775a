#include "kernels/cuda/shared_buffer.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "kernels/cuda/device.h"
#include "kernels/cuda/driver.h"
#include "kernels/cuda/runtime_status.h"

namespace lamina::cuda {
namespace {

// The version of the CUDA driver API, 12.0, whose functions are asked for.
constexpr unsigned kDriverVersion = 12000;

// The driver's functions that are needed here.
struct Driver {
  decltype(&cuGetErrorString) error_string = nullptr;
  decltype(&cuDeviceGetAttribute) attribute = nullptr;
  decltype(&cuMemGetAllocationGranularity) granularity = nullptr;
  decltype(&cuMemCreate) create = nullptr;
  decltype(&cuMemRelease) release = nullptr;
  decltype(&cuMemExportToShareableHandle) to_descriptor = nullptr;
  decltype(&cuMemImportFromShareableHandle) from_descriptor = nullptr;
  decltype(&cuMemAddressReserve) reserve = nullptr;
  decltype(&cuMemAddressFree) free_addresses = nullptr;
  decltype(&cuMemMap) map = nullptr;
  decltype(&cuMemUnmap) unmap = nullptr;
  decltype(&cuMemSetAccess) set_access = nullptr;
  decltype(&cuMemGetHandleForAddressRange) to_range_handle = nullptr;
};

// Sets `function` to the driver's function of that name; false if there is none.
template <typename Function>
bool Find(const char* name, Function& function) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  if (cudaGetDriverEntryPointByVersion(name, &found, kDriverVersion, cudaEnableDefault, &result) !=
      cudaSuccess)
    cudaGetLastError();
  function = reinterpret_cast<Function>(found);
  return found != nullptr && result == cudaDriverEntryPointSuccess;
}

// Nothing if the driver lacks one of the functions.
std::optional<Driver> FindDriver() {
  Driver driver;
  const bool found = Find("cuGetErrorString", driver.error_string) &&
                     Find("cuDeviceGetAttribute", driver.attribute) &&
                     Find("cuMemGetAllocationGranularity", driver.granularity) &&
                     Find("cuMemCreate", driver.create) && Find("cuMemRelease", driver.release) &&
                     Find("cuMemExportToShareableHandle", driver.to_descriptor) &&
                     Find("cuMemImportFromShareableHandle", driver.from_descriptor) &&
                     Find("cuMemAddressReserve", driver.reserve) &&
                     Find("cuMemAddressFree", driver.free_addresses) &&
                     Find("cuMemMap", driver.map) && Find("cuMemUnmap", driver.unmap) &&
                     Find("cuMemSetAccess", driver.set_access) &&
                     Find("cuMemGetHandleForAddressRange", driver.to_range_handle);
  return found ? std::optional(driver) : std::nullopt;
}

Result<const Driver*> TheDriver() {
  static const std::optional<Driver> driver = FindDriver();
  if (driver) return &*driver;
  return Unimplemented("the CUDA driver has no virtual memory management");
}

std::string Text(const Driver& driver, CUresult error) {
  const char* text = nullptr;
  return driver.error_string(error, &text) == CUDA_SUCCESS && text != nullptr
             ? text
             : "error " + std::to_string(error);
}

Result<int> CurrentDevice() {
  int device = 0;
  LAMINA_RETURN_IF_ERROR(AsStatus(cudaGetDevice(&device), "cudaGetDevice"));
  return device;
}

Result<int> Attribute(const Driver& driver, CUdevice_attribute attribute, int device) {
  int value = 0;
  if (const CUresult error = driver.attribute(&value, attribute, device); error != CUDA_SUCCESS)
    return InternalError("cuDeviceGetAttribute: " + Text(driver, error));
  return value;
}

Result<bool> Has(const Driver& driver, CUdevice_attribute attribute, int device) {
  LAMINA_ASSIGN_OR_RETURN(const int value, Attribute(driver, attribute, device));
  return value != 0;
}

// kUnimplemented if kernels that wait for flags (flags.h) cannot run on the device: its driver
// would end them, or a launch would wait for a kernel that waits for what the host does next.
Status CheckWaits(const Driver& driver, int device) {
  LAMINA_ASSIGN_OR_RETURN(const bool ends_kernels,
                          Has(driver, CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT, device));
  if (ends_kernels)
    return Unimplemented("the device has a display, and its driver ends kernels that take long");
  const char* const blocking = std::getenv("CUDA_LAUNCH_BLOCKING");
  if (blocking != nullptr && std::string_view(blocking) == "1")
    return Unimplemented("CUDA_LAUNCH_BLOCKING is set");
  return OkStatus();
}

// Releases the handle of an allocation at the end of a scope. Mappings and descriptors keep the
// memory.
struct Releases {
  const Driver& driver;
  CUmemGenericAllocationHandle handle;
  ~Releases() { driver.release(handle); }
};

}  // namespace

Result<DeviceId> IdOfDevice(int device) {
  cudaDeviceProp properties;
  LAMINA_RETURN_IF_ERROR(
      AsStatus(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties"));
  DeviceId id;
  static_assert(sizeof(properties.uuid.bytes) == sizeof(id));
  std::memcpy(id.data(), properties.uuid.bytes, sizeof(id));
  return id;
}

Result<bool> ProcessesShareDevice(int device) {
  LAMINA_ASSIGN_OR_RETURN(const Driver* const driver, TheDriver());
  return Has(*driver, CU_DEVICE_ATTRIBUTE_MPS_ENABLED, device);
}

Result<std::unique_ptr<SharedBuffer>> SharedBuffer::Create(size_t size_bytes) {
  LAMINA_ASSIGN_OR_RETURN(const Driver* const driver, TheDriver());
  LAMINA_ASSIGN_OR_RETURN(const int device, CurrentDevice());
  LAMINA_ASSIGN_OR_RETURN(
      const bool has_descriptors,
      Has(*driver, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, device));
  if (!has_descriptors)
    return Unimplemented("the device cannot share its memory with other processes");
  LAMINA_RETURN_IF_ERROR(CheckWaits(*driver, device));
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  LAMINA_ASSIGN_OR_RETURN(
      const bool for_nics,
      Has(*driver, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, device));
  // NICs can be given only memory that was allocated for that.
  properties.allocFlags.gpuDirectRDMACapable = for_nics ? 1 : 0;
  size_t granularity = 0;
  CUresult error = driver->granularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  if (error != CUDA_SUCCESS)
    return Unimplemented("cuMemGetAllocationGranularity: " + Text(*driver, error));
  const size_t bytes = (size_bytes + granularity - 1) / granularity * granularity;
  CUmemGenericAllocationHandle handle = 0;
  error = driver->create(&handle, bytes, &properties, 0);
  if (error == CUDA_ERROR_OUT_OF_MEMORY)
    return OutOfSpace("the device has no " + std::to_string(bytes) +
                      " bytes of memory left to share");
  if (error != CUDA_SUCCESS) return Unimplemented("cuMemCreate: " + Text(*driver, error));
  const Releases released{*driver, handle};
  std::unique_ptr<SharedBuffer> buffer(new SharedBuffer);
  error = driver->to_descriptor(&buffer->descriptor_, handle,
                                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  if (error != CUDA_SUCCESS)
    return Unimplemented("cuMemExportToShareableHandle: " + Text(*driver, error));
  fcntl(buffer->descriptor_, F_SETFD, FD_CLOEXEC);  // a child process would keep the memory
  LAMINA_RETURN_IF_ERROR(buffer->MapHandle(handle, bytes, device));
  if (for_nics) buffer->OpenToNics(device);
  return buffer;
}

Result<std::unique_ptr<SharedBuffer>> SharedBuffer::Map(int descriptor, size_t size_bytes) {
  LAMINA_ASSIGN_OR_RETURN(const Driver* const driver, TheDriver());
  LAMINA_ASSIGN_OR_RETURN(const int device, CurrentDevice());
  CUmemGenericAllocationHandle handle = 0;
  // The driver takes the descriptor in the place of a pointer.
  const CUresult error =
      driver->from_descriptor(&handle, reinterpret_cast<void*>(static_cast<intptr_t>(descriptor)),
                              CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  if (error != CUDA_SUCCESS)
    return InvalidArgument("cuMemImportFromShareableHandle: " + Text(*driver, error));
  const Releases released{*driver, handle};
  std::unique_ptr<SharedBuffer> buffer(new SharedBuffer);
  LAMINA_RETURN_IF_ERROR(buffer->MapHandle(handle, size_bytes, device));
  return buffer;
}

Status SharedBuffer::MapHandle(uint64_t handle, size_t size_bytes, int device) {
  const Driver& driver = **TheDriver();
  const auto failed = [&](const char* what, CUresult error) {
    return InvalidArgument(std::string(what) + " of " + std::to_string(size_bytes) +
                           " bytes of shared device memory: " + Text(driver, error));
  };
  CUdeviceptr address = 0;
  if (const CUresult error = driver.reserve(&address, size_bytes, 0, 0, 0); error != CUDA_SUCCESS)
    return failed("cuMemAddressReserve", error);
  // Noted at once, so that the destructor frees the range if a later step fails.
  data_ = reinterpret_cast<std::byte*>(address);
  size_bytes_ = size_bytes;
  if (const CUresult error = driver.map(address, size_bytes, 0, handle, 0); error != CUDA_SUCCESS)
    return failed("cuMemMap", error);
  mapped_ = true;
  CUmemAccessDesc access = {};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = device;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  if (const CUresult error = driver.set_access(address, size_bytes, &access, 1);
      error != CUDA_SUCCESS)
    return failed("cuMemSetAccess", error);
  return OkStatus();
}

void SharedBuffer::OpenToNics(int device) {
  const Driver& driver = **TheDriver();
  const auto attribute = [&](CUdevice_attribute which) {
    const Result<int> value = Attribute(driver, which, device);
    return value.ok() ? *value : 0;
  };
  // OWNER: the device that owns the memory consumes a NIC's writes consistently; others may not.
  reached_by_nics_ = attribute(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED) != 0 &&
                     attribute(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING) >=
                         CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER;
  if (!reached_by_nics_ || attribute(CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED) == 0) return;
  const CUresult error =
      driver.to_range_handle(&dma_buf_, reinterpret_cast<CUdeviceptr>(data_), size_bytes_,
                             CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
  // Some systems have the attribute and still no DMA-BUF. NICs then get the address.
  if (error != CUDA_SUCCESS) dma_buf_ = -1;
  if (dma_buf_ >= 0) fcntl(dma_buf_, F_SETFD, FD_CLOEXEC);
}

SharedBuffer::~SharedBuffer() {
  const auto address = reinterpret_cast<CUdeviceptr>(data_);
  if (mapped_) (*TheDriver())->unmap(address, size_bytes_);
  if (data_ != nullptr) (*TheDriver())->free_addresses(address, size_bytes_);
  if (descriptor_ >= 0) close(descriptor_);
  if (dma_buf_ >= 0) close(dma_buf_);
}

}  // namespace lamina::cuda
