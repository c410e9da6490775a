// Shared memory between processes of one machine (and one user): one-sided, no copy by the kernel.
#pragma once

#include <memory>

#include "transport/transport.h"

namespace lamina {

std::unique_ptr<Fabric> OpenShmFabric();

}  // namespace lamina
