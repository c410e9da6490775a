// Page-aligned memory mapped from the kernel, which buffers and windows are made of.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include "base/status.h"
#include "transport/transport.h"

namespace lamina {

// Owns a mapping; the destructor unmaps it. Can be moved: the memory stays where it is. Thread:
// owner.
class Mapping {
 public:
  Mapping() = default;
  ~Mapping();
  Mapping(Mapping&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  // Zeroed private memory. The kernel provides each page when it is first touched, and reserves
  // nothing before that. kOutOfSpace if the address space or the memory limit is exhausted. 0 bytes
  // make an empty mapping, here and in Shared.
  static Result<Mapping> Anonymous(size_t bytes);

  // The first `bytes` bytes of the file `fd`, shared with everybody who maps it; `fd` may be closed
  // afterwards. kOutOfSpace if the file cannot be mapped.
  static Result<Mapping> Shared(int fd, size_t bytes);

  std::span<std::byte> bytes() const { return bytes_; }

 private:
  explicit Mapping(std::span<std::byte> bytes) : bytes_(bytes) {}

  std::span<std::byte> bytes_;
};

// Implements Fabric::Allocate for fabrics without Limits::registered_sources. kOutOfSpace.
Result<std::unique_ptr<Buffer>> AllocateMappedBuffer(size_t bytes);

}  // namespace lamina
