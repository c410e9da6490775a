// The primitives that proofs of membership are made of.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/status.h"

namespace lamina {

inline constexpr size_t kMacBytes = 32;

// `count` bytes from the operating system's generator, fit for nonces and tokens. REQUIRES: count
// <= 256.
Result<std::string> RandomBytes(size_t count);

// HMAC-SHA256 (RFC 2104), kMacBytes bytes. kInternal if libcrypto cannot.
Result<std::string> HmacSha256(std::string_view key, std::string_view message);

// The time it takes depends on the lengths only.
bool EqualInConstantTime(std::string_view a, std::string_view b);

}  // namespace lamina
