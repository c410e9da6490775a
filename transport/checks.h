// Arguments that every fabric checks in the same way before it acts on them.
#pragma once

#include <span>

#include "base/status.h"
#include "transport/transport.h"

namespace lamina {

// kInvalidArgument if the hello has more than kMaxHelloBytes or the window more than
// Limits::max_window_bytes.
Status CheckOptions(const EndpointOptions& options, const Limits& limits);

// kPeerLost if EndpointOptions::may_join refuses a peer with this hello.
Status CheckMayJoin(const EndpointOptions& options, const std::string& peer_hello);

// kInvalidArgument if there are more than Limits::max_ops ops or one of them lies outside the
// peer's window. `device_window_bytes` is the size of the peer's device window, 0 where posts do
// not reach one: then every op with WriteOp::to_device is refused, unless it is empty.
Status CheckOps(std::span<const WriteOp> ops, const Limits& limits, uint64_t peer_window_bytes,
                uint64_t device_window_bytes = 0);

}  // namespace lamina
