// The fabric that works between any two machines: framed writes over TCP, which the receiver's CPU
// copies into its window.
#pragma once

#include <memory>

#include "transport/transport.h"

namespace lamina {

// Addresses are "host:port". kOutOfSpace if the process is out of descriptors.
Result<std::unique_ptr<Fabric>> OpenTcpFabric();

}  // namespace lamina
