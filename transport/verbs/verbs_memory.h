// Memory that the RDMA devices may access: where it is registered, and under which keys.
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

// Lets `device` read and write `bytes`, and peers write them if `access` says so. kOutOfSpace; if
// the limit on locked memory is the cause, names it and the fix.
Result<VerbsRegistration> RegisterWith(const VerbsDevice& device, std::span<std::byte> bytes,
                                       int access);

// A device's window for one connection: what the peer writes into through `device`, and the source
// of posts to the peer's.
class VerbsDeviceWindow {
 public:
  // Null if there is none that NICs shall reach, or the NIC cannot: then the log says why.
  static std::unique_ptr<VerbsDeviceWindow> Register(const VerbsDevice& device,
                                                     const DeviceWindow& window);

  uint64_t bytes() const { return window_.bytes; }
  const std::array<std::byte, 16>& device() const { return window_.device; }
  uint64_t address() const { return reinterpret_cast<uintptr_t>(window_.data); }
  uint32_t remote_key() const { return registration_->rkey; }

  // The local key of `source`, if all of it lies in the window.
  std::optional<uint32_t> FindKey(std::span<const std::byte> source) const;

 private:
  VerbsDeviceWindow(const DeviceWindow& window, VerbsRegistration registration)
      : window_(window), registration_(std::move(registration)) {}

  const DeviceWindow window_;
  const VerbsRegistration registration_;
};

// All registered memory of a fabric. Lookups do not allocate. Thread: owner.
class VerbsRegions {
 public:
  // Memory registered with some devices: mapped, zeroed, page-aligned. The destructor takes it out
  // of the regions.
  class Memory {
   public:
    ~Memory();

    std::span<std::byte> bytes() const { return mapping_.bytes(); }
    uint32_t remote_key(const VerbsDevice& device) const;  // 0 if it is empty

   private:
    friend class VerbsRegions;
    Memory(VerbsRegions& regions, Mapping mapping)
        : regions_(regions), mapping_(std::move(mapping)) {}
    Status Register(const VerbsDevice& device);

    VerbsRegions& regions_;
    const Mapping mapping_;
    int access_ = 0;
    // By index of the device; null where there is none.
    std::vector<VerbsRegistration> registrations_;
  };

  // A source for posts over any device in use, now or later.
  Result<std::unique_ptr<Memory>> NewBuffer(size_t bytes);

  // What a peer writes into through `device`; also a source for posts through it.
  Result<std::unique_ptr<Memory>> NewWindow(const VerbsDevice& device, size_t bytes);

  // From now on all buffers are registered with `device` too.
  Status Use(const VerbsDevice& device);

  // The local key of `source` on a device, if all of it lies in one piece of registered memory.
  // REQUIRES: !source.empty().
  std::optional<uint32_t> FindKey(std::span<const std::byte> source,
                                  const VerbsDevice& device) const;

 private:
  Result<std::unique_ptr<Memory>> NewMemory(size_t bytes, int access,
                                            std::span<const VerbsDevice* const> devices);

  std::map<const std::byte*, Memory*> memory_;  // by its end; pieces do not overlap
  std::vector<const VerbsDevice*> in_use_;
};

}  // namespace lamina
