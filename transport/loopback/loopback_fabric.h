// Both ends in this process: the reference of the conformance tests and the transport of the
// single-process mode. Addresses are any text that is unique in the process. Fabrics may live on
// different threads.
#pragma once

#include <memory>

#include "transport/transport.h"

namespace lamina {

std::unique_ptr<Fabric> OpenLoopbackFabric();

}  // namespace lamina
