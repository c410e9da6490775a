// The fabric for processes of one machine and one user: shared memory that each end writes into
// directly, without a copy by the kernel.
#pragma once

#include <memory>

#include "transport/transport.h"

namespace lamina {

// Addresses are names in the abstract socket namespace. Peers must belong to this user or to root.
std::unique_ptr<Fabric> OpenShmFabric();

}  // namespace lamina
