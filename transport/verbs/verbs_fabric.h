// The fabric for machines with RDMA NICs, through libibverbs: InfiniBand and RoCE v2. The NIC
// writes into the peer's window, without a copy and without the receiver's CPU.
#pragma once

#include <memory>

#include "transport/transport.h"

namespace lamina {

// Addresses are "host:port", where the host is the address of an RDMA port. kNotFound if this
// machine has no RDMA device that this process can use, or one is too small; kOutOfSpace if the
// process is out of descriptors.
Result<std::unique_ptr<Fabric>> OpenVerbsFabric();

}  // namespace lamina
