#include "transport/verbs/verbs_memory.h"

#include <algorithm>
#include <cerrno>

#include "base/log.h"
#include "transport/posix.h"
#include "transport/rdma_host.h"

namespace lamina {
namespace {

constexpr int kBufferAccess = IBV_ACCESS_LOCAL_WRITE;
constexpr int kWindowAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

}  // namespace

Result<VerbsRegistration> RegisterWith(const VerbsDevice& device, std::span<std::byte> bytes,
                                       int access) {
  VerbsRegistration registration(ibv_reg_mr(device.domain(), bytes.data(), bytes.size(), access));
  if (registration) return registration;
  const int error = errno;
  std::string message = "registering " + std::to_string(bytes.size()) + " bytes with " +
                        device.name() + ": " + ErrnoText("ibv_reg_mr", error);
  const std::string advice = error == ENOMEM ? LockedMemoryAdvice() : "";
  if (!advice.empty()) message += "; " + advice;
  return OutOfSpace(message);
}

std::unique_ptr<VerbsDeviceWindow> VerbsDeviceWindow::Register(const VerbsDevice& device,
                                                               const DeviceWindow& window) {
  if (window.data == nullptr || window.bytes == 0) return nullptr;
  const auto address = reinterpret_cast<uintptr_t>(window.data);
  VerbsRegistration registration;
  std::string why;
  if (window.dma_buf >= 0) {
    registration.reset(ibv_reg_dmabuf_mr(device.domain(), 0, window.bytes, address, window.dma_buf,
                                         kWindowAccess));
    if (!registration) why = ErrnoText("ibv_reg_dmabuf_mr", errno) + "; ";
  }
  // Without a DMA-BUF the address itself must do. A kernel module (nvidia_peermem) can tell the
  // RDMA driver which memory of a GPU it stands for.
  if (!registration) {
    registration.reset(ibv_reg_mr(device.domain(), window.data, window.bytes, kWindowAccess));
    if (!registration) why += ErrnoText("ibv_reg_mr", errno) + "; is nvidia_peermem loaded?";
  }
  if (registration)
    return std::unique_ptr<VerbsDeviceWindow>(
        new VerbsDeviceWindow(window, std::move(registration)));
  LAMINA_LOG_WARN("{} cannot reach {} bytes of a GPU's memory: {}", device.name(), window.bytes,
                  why);
  return nullptr;
}

std::optional<uint32_t> VerbsDeviceWindow::FindKey(std::span<const std::byte> source) const {
  const auto begin = reinterpret_cast<uintptr_t>(source.data());
  if (begin < address() || begin - address() > bytes() ||
      source.size() > bytes() - (begin - address()))
    return std::nullopt;
  return registration_->lkey;
}

VerbsRegions::Memory::~Memory() {
  if (!bytes().empty()) regions_.memory_.erase(bytes().data() + bytes().size());
}

uint32_t VerbsRegions::Memory::remote_key(const VerbsDevice& device) const {
  return device.index() < registrations_.size() && registrations_[device.index()]
             ? registrations_[device.index()]->rkey
             : 0;
}

Status VerbsRegions::Memory::Register(const VerbsDevice& device) {
  if (bytes().empty()) return OkStatus();
  registrations_.resize(std::max(registrations_.size(), device.index() + 1));
  LAMINA_ASSIGN_OR_RETURN(registrations_[device.index()], RegisterWith(device, bytes(), access_));
  return OkStatus();
}

Result<std::unique_ptr<VerbsRegions::Memory>> VerbsRegions::NewMemory(
    size_t bytes, int access, std::span<const VerbsDevice* const> devices) {
  LAMINA_ASSIGN_OR_RETURN(Mapping mapping, Mapping::Anonymous(bytes));
  std::unique_ptr<Memory> memory(new Memory(*this, std::move(mapping)));
  memory->access_ = access;
  // Entered before it is registered: if that fails the destructor takes it out again.
  if (bytes > 0) memory_[memory->bytes().data() + bytes] = memory.get();
  for (const VerbsDevice* device : devices) LAMINA_RETURN_IF_ERROR(memory->Register(*device));
  return memory;
}

Result<std::unique_ptr<VerbsRegions::Memory>> VerbsRegions::NewBuffer(size_t bytes) {
  return NewMemory(bytes, kBufferAccess, in_use_);
}

Result<std::unique_ptr<VerbsRegions::Memory>> VerbsRegions::NewWindow(const VerbsDevice& device,
                                                                      size_t bytes) {
  const VerbsDevice* const only = &device;
  return NewMemory(bytes, kWindowAccess, {&only, 1});
}

Status VerbsRegions::Use(const VerbsDevice& device) {
  if (std::find(in_use_.begin(), in_use_.end(), &device) != in_use_.end()) return OkStatus();
  for (const auto& [end, memory] : memory_) {
    if (memory->access_ == kBufferAccess) LAMINA_RETURN_IF_ERROR(memory->Register(device));
  }
  in_use_.push_back(&device);
  return OkStatus();
}

std::optional<uint32_t> VerbsRegions::FindKey(std::span<const std::byte> source,
                                              const VerbsDevice& device) const {
  // The first piece that ends behind the source's first byte is the only one that can hold it.
  const auto found = memory_.upper_bound(source.data());
  if (found == memory_.end()) return std::nullopt;
  const Memory& memory = *found->second;
  const auto* const begin = memory.bytes().data();
  if (source.data() < begin || source.size() > static_cast<size_t>(found->first - source.data()))
    return std::nullopt;
  if (device.index() >= memory.registrations_.size() || !memory.registrations_[device.index()])
    return std::nullopt;
  return memory.registrations_[device.index()]->lkey;
}

}  // namespace lamina
