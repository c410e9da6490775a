// Numbers that nobody else has.
#pragma once

#include <cstdint>

namespace lamina {

// 64 random bits, never 0. No secret: who must not be guessed has RandomBytes of
// transport/crypto.h.
uint64_t RandomId();

}  // namespace lamina
