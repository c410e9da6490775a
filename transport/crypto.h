// The primitives that proofs of the cluster's secret are made of: nonces, HMAC, comparison.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/status.h"

namespace lamina {

inline constexpr size_t kMacBytes = 32;

// `count` bytes from the operating system's random generator, fit for nonces and tokens. kInternal
// if it has none. REQUIRES: count <= 256.
Result<std::string> RandomBytes(size_t count);

// HMAC-SHA256 (RFC 2104) of `message`, kMacBytes bytes. kInternal if libcrypto cannot compute it.
Result<std::string> HmacSha256(std::string_view key, std::string_view message);

// Whether a == b. The time taken depends only on the lengths, so it does not tell an attacker how
// many bytes of a guess are right.
bool EqualInConstantTime(std::string_view a, std::string_view b);

}  // namespace lamina
