// Memory that two processes of one machine share through a descriptor: a memfd of a fixed size. It
// has no name, so nothing is left behind however a process ends.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "transport/posix.h"

namespace lamina {

// Zeroed, and sealed: neither its size nor its seals can change. kOutOfSpace if there is no
// descriptor or no memory.
Result<UniqueFd> CreateSealedMemory(uint64_t bytes);

// Ok if `fd` is memory that cannot shrink, with room for `control_bytes` and, behind them, a
// window; else kPeerLost with the reason. Who maps a file that could shrink hands its owner a way
// to kill the process (SIGBUS).
Status CheckSealedMemory(int fd, uint64_t control_bytes, uint64_t window_bytes);

// Opens what process `pid` has as `descriptor`, if CheckSealedMemory allows it. Neither number need
// be true: kPeerLost if there is no such process of this user any more, or no such memory.
Result<UniqueFd> OpenSealedMemory(int pid, int descriptor, uint64_t control_bytes,
                                  uint64_t window_bytes);

}  // namespace lamina
