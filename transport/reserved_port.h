// A port for a process that does not listen yet.
#pragma once

#include "base/status.h"
#include "transport/posix.h"

namespace lamina {

// A port of 127.0.0.1 that stays free for a process as long as the socket lives: the kernel gives
// it to nobody who does not ask for it by number, and a process whose socket reuses addresses too
// can listen on it meanwhile.
struct ReservedPort {
  UniqueFd socket;
  int port = 0;
};

// kInternal if there is none.
Result<ReservedPort> ReservePort();

}  // namespace lamina
