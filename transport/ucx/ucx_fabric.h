// UCX: one-sided writes over whatever two processes have in common: shared memory, InfiniBand, RoCE, EFA, Slingshot, TCP.
#pragma once

#include <memory>

#include "transport/transport.h"

namespace lamina {

// kInternal with UCX's reason if it does not start, kOutOfSpace if the process is out of descriptors.
Result<std::unique_ptr<Fabric>> OpenUcxFabric();

}  // namespace lamina
