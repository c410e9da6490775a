// The fabric with both ends in this process: the reference that the other fabrics are compared with
// by the conformance tests, and the transport of tests that run nodes in one process. Fabrics on
// different threads may be connected.
#pragma once

#include <memory>

#include "transport/transport.h"

namespace lamina {

// Addresses are any text that is unique in the process.
std::unique_ptr<Fabric> OpenLoopbackFabric();

}  // namespace lamina
