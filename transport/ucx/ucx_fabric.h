// UCX: one-sided writes in memory that two processes of one machine and one user share and, over
// RDMA devices whose network is trusted (UcxTrustedDevices), between machines.
//
// UCX itself knows no strangers. Its transports for TCP and UD copy what a message holds to the
// address that the message names, and what it calls an id in messages over any transport may be an
// address in its own process. So it gets only transports by which no stranger can send: the files
// behind its shared memory are its user's alone.
#pragma once

#include <memory>

#include "transport/transport.h"

namespace lamina {

// kInternal with UCX's reason if it does not start, kOutOfSpace if the process is out of
// descriptors.
Result<std::unique_ptr<Fabric>> OpenUcxFabric();

}  // namespace lamina
