// Runs one transport case over a fabric between two processes: the one that measures, and its peer.
#pragma once

#include <functional>
#include <string>

#include "base/status.h"
#include "bench/transport/transport_case.h"
#include "manager/process.h"
#include "transport/transport.h"

namespace lamina {

// Starts the process of a case's peer, which connects to `address`.
using SpawnPeer =
    std::function<Result<ChildProcess>(const TransportCase& test, const std::string& address)>;

// Listens at `address`, lets `spawn` start the peer, measures, and checks what has arrived. Errors
// name the fabric and what failed: kTimeout if the peer does not connect, kPeerLost if it ends
// early, kCorrupt if other bytes arrived than were sent.
Result<TransportSample> RunOverFabric(Fabric& fabric, const TransportCase& test,
                                      const std::string& address, const SpawnPeer& spawn);

// The peer: connects to `address` and answers until the measuring end is done.
Status ServeOverFabric(const TransportCase& test, const std::string& address);

}  // namespace lamina
