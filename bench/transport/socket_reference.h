// What a program would do that uses plain TCP sockets and nothing else: the reference of the tcp
// fabric. Two processes with TCP_NODELAY poll without sleeping, as they do over the fabric. There
// is no framing and no window: the receiver reads everything into one buffer.
#pragma once

#include "base/status.h"
#include "bench/transport/transport_case.h"
#include "bench/transport/transport_run.h"

namespace lamina {

// Listens at `address` ("host:port"; port 0: any), lets `spawn` start the peer, and measures.
// kPeerLost if the connection breaks, kTimeout if the peer does not connect.
Result<TransportSample> RunOverSocket(const TransportCase& test, const std::string& address,
                                      const SpawnPeer& spawn);

// The peer: connects to `address` and answers until the measuring end is done.
Status ServeOverSocket(const TransportCase& test, const std::string& address);

}  // namespace lamina
