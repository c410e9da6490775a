// Framed writes over TCP: works everywhere, needs the receiver's CPU.
#pragma once

#include <memory>

#include "transport/transport.h"

namespace lamina {

// kOutOfSpace if the process is out of descriptors.
Result<std::unique_ptr<Fabric>> OpenTcpFabric();

}  // namespace lamina
