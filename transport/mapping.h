// Page-aligned memory from the kernel: buffers and windows.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include "base/status.h"
#include "transport/transport.h"

namespace lamina {

// Unmapped by the destructor. Value type that can be moved; bytes() stays where it is when it is.
class Mapping {
 public:
  Mapping() = default;
  ~Mapping();
  Mapping(Mapping&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  // Zeroed private memory; pages are taken when they are first touched. kOutOfSpace if the address
  // space or the memory limit is exhausted.
  static Result<Mapping> Anonymous(size_t bytes);

  // The first `bytes` bytes of the file `fd`, shared with everybody who maps it.
  static Result<Mapping> Shared(int fd, size_t bytes);

  std::span<std::byte> bytes() const { return bytes_; }

 private:
  explicit Mapping(std::span<std::byte> bytes) : bytes_(bytes) {}

  std::span<std::byte> bytes_;
};

// Fabric::Allocate for fabrics that take sources from anywhere.
Result<std::unique_ptr<Buffer>> AllocateMappedBuffer(size_t bytes);

}  // namespace lamina
