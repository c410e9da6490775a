// What every fabric checks before it does what its caller asks for.
#pragma once

#include <span>

#include "base/status.h"
#include "transport/transport.h"

namespace lamina {

// kInvalidArgument if the hello or the window is larger than the fabric takes.
Status CheckOptions(const EndpointOptions& options, const Limits& limits);

// kPeerLost if EndpointOptions::may_join says no to a peer with this hello.
Status CheckMayJoin(const EndpointOptions& options, const std::string& peer_hello);

// kInvalidArgument if there are too many ops or one of them lies outside the peer's window.
// `device_window_bytes`: of the peer's, 0 where posts do not reach it.
Status CheckOps(std::span<const WriteOp> ops, const Limits& limits, uint64_t peer_window_bytes,
                uint64_t device_window_bytes = 0);

}  // namespace lamina
