// Memory that RDMA devices may access: windows and buffers, with which devices they are registered,
// and the keys of these registrations.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "transport/mapping.h"
#include "transport/transport.h"
#include "transport/verbs/verbs_device.h"

namespace lamina {

using VerbsRegistration = std::unique_ptr<ibv_mr, VerbsFree<ibv_dereg_mr>>;

// Registers `bytes` with `device`, which pins them. `access` has the IBV_ACCESS_ flags: whether the
// device may write the bytes for this end and for peers. kOutOfSpace if the device refuses; if the
// limit on locked memory is the cause, the message says how to raise it.
Result<VerbsRegistration> RegisterWith(const VerbsDevice& device, std::span<std::byte> bytes,
                                       int access);

// The device window (DeviceWindow) of one connection, registered with the NIC `device`: the peer
// writes into it, and it is the source of posts to the peer's device window. Thread: owner.
class VerbsDeviceWindow {
 public:
  // Null if `window` has no address for NICs, or if the NIC cannot reach it, which is logged with
  // the cause. Borrows the memory; the DMA-BUF may be closed afterwards.
  static std::unique_ptr<VerbsDeviceWindow> Register(const VerbsDevice& device,
                                                     const DeviceWindow& window);

  uint64_t bytes() const { return window_.bytes; }
  const std::array<std::byte, 16>& device() const { return window_.device; }
  uint64_t address() const { return reinterpret_cast<uintptr_t>(window_.data); }
  uint32_t remote_key() const { return registration_->rkey; }

  // The local key for reading `source`, if all of it lies in the window.
  std::optional<uint32_t> FindKey(std::span<const std::byte> source) const;

 private:
  VerbsDeviceWindow(const DeviceWindow& window, VerbsRegistration registration)
      : window_(window), registration_(std::move(registration)) {}

  const DeviceWindow window_;
  const VerbsRegistration registration_;
};

// Finds the keys of all registered host memory of a fabric. Does not own the memory, and outlives
// it. Thread: owner.
class VerbsRegions {
 public:
  // A piece of memory, zeroed and page-aligned, that is registered with some of the devices. Owns
  // the mapping and the registrations. The destructor takes it out of the regions.
  class Memory {
   public:
    ~Memory();

    std::span<std::byte> bytes() const { return mapping_.bytes(); }
    // The key by which a peer writes here through `device`; 0 if the memory is empty or not
    // registered with it.
    uint32_t remote_key(const VerbsDevice& device) const;

   private:
    friend class VerbsRegions;
    Memory(VerbsRegions& regions, Mapping mapping)
        : regions_(regions), mapping_(std::move(mapping)) {}
    Status Register(const VerbsDevice& device);

    VerbsRegions& regions_;
    const Mapping mapping_;
    int access_ = 0;  // IBV_ACCESS_ flags
    // By VerbsDevice::index; null for a device with which it is not registered.
    std::vector<VerbsRegistration> registrations_;
  };

  // Memory that is a source for posts through any device for which Use was or will be called.
  // kOutOfSpace.
  Result<std::unique_ptr<Memory>> NewBuffer(size_t bytes);

  // Memory that a peer writes into through `device`, and a source for posts through it.
  // kOutOfSpace.
  Result<std::unique_ptr<Memory>> NewWindow(const VerbsDevice& device, size_t bytes);

  // Registers all buffers, present and future, with `device`. kOutOfSpace if that fails.
  Status Use(const VerbsDevice& device);

  // The local key for reading `source` through `device`, if all of it lies in one piece of memory
  // that is registered with it. Does not allocate. REQUIRES: !source.empty().
  std::optional<uint32_t> FindKey(std::span<const std::byte> source,
                                  const VerbsDevice& device) const;

 private:
  Result<std::unique_ptr<Memory>> NewMemory(size_t bytes, int access,
                                            std::span<const VerbsDevice* const> devices);

  std::map<const std::byte*, Memory*> memory_;  // by the end of each piece; pieces do not overlap
  std::vector<const VerbsDevice*> in_use_;      // Use was called for these
};

}  // namespace lamina
