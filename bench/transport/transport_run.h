// One transport case over a fabric of ours, between two processes: the one that measures and its
// peer.
#pragma once

#include <functional>
#include <string>

#include "base/status.h"
#include "bench/transport/transport_case.h"
#include "manager/process.h"
#include "transport/transport.h"

namespace lamina {

// Starts the peer's process of a case, which connects to `address`.
using SpawnPeer =
    std::function<Result<ChildProcess>(const TransportCase& test, const std::string& address)>;

// Listens at `address`, lets the peer connect, measures, and checks what has arrived. Errors name
// the fabric and what failed.
Result<TransportSample> RunOverFabric(Fabric& fabric, const TransportCase& test,
                                      const std::string& address, const SpawnPeer& spawn);

// The peer: connects to `address`, answers until the measuring end is done.
Status ServeOverFabric(const TransportCase& test, const std::string& address);

}  // namespace lamina
