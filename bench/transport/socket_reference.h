// What a program would do that uses plain TCP sockets and nothing else: the reference of the tcp
// fabric. Two processes, TCP_NODELAY, both ends poll without sleeping as they do over the fabric.
// No framing, no window: the receiver reads into one buffer.
#pragma once

#include "base/status.h"
#include "bench/transport/transport_case.h"
#include "bench/transport/transport_run.h"

namespace lamina {

// Listens at `address` ("host:port", port 0: any), lets the peer connect, measures.
Result<TransportSample> RunOverSocket(const TransportCase& test, const std::string& address,
                                      const SpawnPeer& spawn);

// The peer.
Status ServeOverSocket(const TransportCase& test, const std::string& address);

}  // namespace lamina
