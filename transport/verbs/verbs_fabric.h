// RDMA through libibverbs: InfiniBand and RoCE v2. One-sided writes, no copy and no receiver CPU.
#pragma once

#include <memory>

#include "transport/transport.h"

namespace lamina {

// kNotFound if this machine has no RDMA device that this process may use.
Result<std::unique_ptr<Fabric>> OpenVerbsFabric();

}  // namespace lamina
