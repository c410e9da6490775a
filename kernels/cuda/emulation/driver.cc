#include "kernels/cuda/emulation/driver.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <string_view>

using lamina::cuda::emulation::AddDeviceMemory;
using lamina::cuda::emulation::ForgetDeviceMemory;

namespace {

constexpr size_t kGranularity = 64 << 10;

// A handle is its memfd's descriptor.
int FdOf(CUmemGenericAllocationHandle handle) { return static_cast<int>(handle); }

void* At(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

size_t SizeOf(int fd) {
  struct stat info {};
  return fstat(fd, &info) == 0 ? static_cast<size_t>(info.st_size) : 0;
}

}  // namespace

CUresult cuGetErrorString(CUresult error, const char** text) {
  switch (error) {
    case CUDA_SUCCESS: *text = "no error"; break;
    case CUDA_ERROR_INVALID_VALUE: *text = "invalid argument"; break;
    case CUDA_ERROR_OUT_OF_MEMORY: *text = "out of memory"; break;
    case CUDA_ERROR_INVALID_DEVICE: *text = "invalid device ordinal"; break;
    case CUDA_ERROR_NOT_SUPPORTED: *text = "operation not supported"; break;
  }
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice /*device*/) {
  *value = 0;
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
      *value = lamina::cuda::emulation::StreamsRunAhead() ? 1 : 0;
      break;
    case CU_DEVICE_ATTRIBUTE_MPS_ENABLED:  // kernels of several processes do run at the same time
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED: *value = 1; break;
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING:
      *value = CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER;
      break;
    case CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT: break;
  }
  return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationGranularity(size_t* granularity,
                                       const CUmemAllocationProp* /*properties*/,
                                       CUmemAllocationGranularity_flags /*option*/) {
  *granularity = kGranularity;
  return CUDA_SUCCESS;
}

// Fresh memory is full of NaN, like that of cudaMalloc.
CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes,
                     const CUmemAllocationProp* /*properties*/, unsigned long long /*flags*/) {
  if (bytes == 0 || bytes % kGranularity != 0) return CUDA_ERROR_INVALID_VALUE;
  const int fd = memfd_create("emulated-gpu", MFD_CLOEXEC);
  if (fd < 0) return CUDA_ERROR_OUT_OF_MEMORY;
  void* const mapped = ftruncate(fd, static_cast<off_t>(bytes)) == 0
                           ? mmap(nullptr, bytes, PROT_WRITE, MAP_SHARED, fd, 0)
                           : MAP_FAILED;
  if (mapped == MAP_FAILED) {
    close(fd);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  std::memset(mapped, 0xff, bytes);
  munmap(mapped, bytes);  // mapped only to be filled
  *handle = static_cast<CUmemGenericAllocationHandle>(fd);
  return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  return close(FdOf(handle)) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemExportToShareableHandle(void* shareable, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType /*type*/,
                                      unsigned long long /*flags*/) {
  // A descriptor of its own, so that the caller may release the handle and keep this one.
  const int fd = fcntl(FdOf(handle), F_DUPFD_CLOEXEC, 0);
  if (fd < 0) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(shareable, &fd, sizeof(fd));
  return CUDA_SUCCESS;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* shareable,
                                        CUmemAllocationHandleType /*type*/) {
  const int fd = fcntl(static_cast<int>(reinterpret_cast<intptr_t>(shareable)), F_DUPFD_CLOEXEC, 0);
  if (fd < 0 || SizeOf(fd) == 0) {
    if (fd >= 0) close(fd);
    return CUDA_ERROR_INVALID_VALUE;
  }
  *handle = static_cast<CUmemGenericAllocationHandle>(fd);
  return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr* address, size_t bytes, size_t /*alignment*/,
                             CUdeviceptr /*wanted*/, unsigned long long /*flags*/) {
  void* const reserved =
      mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  *address = reinterpret_cast<CUdeviceptr>(reserved);
  return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes) {
  return munmap(At(address), bytes) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// The mapping can be accessed only after cuMemSetAccess.
CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long /*flags*/) {
  if (offset + bytes > SizeOf(FdOf(handle))) return CUDA_ERROR_INVALID_VALUE;
  const void* const mapped = mmap(At(address), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED,
                                  FdOf(handle), static_cast<off_t>(offset));
  return mapped == MAP_FAILED ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
  ForgetDeviceMemory(At(address));
  // The range stays reserved until cuMemAddressFree.
  const void* const empty = mmap(At(address), bytes, PROT_NONE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  return empty == MAP_FAILED ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc* /*access*/,
                        size_t /*count*/) {
  if (mprotect(At(address), bytes, PROT_READ | PROT_WRITE) != 0) return CUDA_ERROR_INVALID_VALUE;
  AddDeviceMemory(At(address), bytes);
  return CUDA_SUCCESS;
}

CUresult cuMemGetHandleForAddressRange(void* /*handle*/, CUdeviceptr /*address*/, size_t /*bytes*/,
                                       CUmemRangeHandleType /*type*/,
                                       unsigned long long /*flags*/) {
  return CUDA_ERROR_NOT_SUPPORTED;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function,
                                             unsigned /*cuda_version*/,
                                             unsigned long long /*flags*/,
                                             cudaDriverEntryPointQueryResult* result) {
  static const std::map<std::string_view, void*> functions = {
      {"cuGetErrorString", reinterpret_cast<void*>(&cuGetErrorString)},
      {"cuDeviceGetAttribute", reinterpret_cast<void*>(&cuDeviceGetAttribute)},
      {"cuMemGetAllocationGranularity", reinterpret_cast<void*>(&cuMemGetAllocationGranularity)},
      {"cuMemCreate", reinterpret_cast<void*>(&cuMemCreate)},
      {"cuMemRelease", reinterpret_cast<void*>(&cuMemRelease)},
      {"cuMemExportToShareableHandle", reinterpret_cast<void*>(&cuMemExportToShareableHandle)},
      {"cuMemImportFromShareableHandle", reinterpret_cast<void*>(&cuMemImportFromShareableHandle)},
      {"cuMemAddressReserve", reinterpret_cast<void*>(&cuMemAddressReserve)},
      {"cuMemAddressFree", reinterpret_cast<void*>(&cuMemAddressFree)},
      {"cuMemMap", reinterpret_cast<void*>(&cuMemMap)},
      {"cuMemUnmap", reinterpret_cast<void*>(&cuMemUnmap)},
      {"cuMemSetAccess", reinterpret_cast<void*>(&cuMemSetAccess)},
      {"cuMemGetHandleForAddressRange", reinterpret_cast<void*>(&cuMemGetHandleForAddressRange)},
  };
  const auto found = functions.find(symbol);
  *function = found == functions.end() ? nullptr : found->second;
  *result =
      found == functions.end() ? cudaDriverEntryPointSymbolNotFound : cudaDriverEntryPointSuccess;
  return cudaSuccess;
}
