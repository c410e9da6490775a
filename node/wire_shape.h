// How an order to open a session lays out the messages between memory nodes and compute nodes.
#pragma once

#include "base/status.h"
#include "wire/session_messages.h"
#include "wire/wire_format.h"

namespace lamina {

// The layout for the heads of `request.attention`. Both ends have to find the same one for the
// heads of a memory node, so both ask here. kInvalidArgument if queries and outputs cannot travel
// in the wire dtype, or if the session token has another size than it must. REQUIRES: the heads and
// limits were checked.
Result<WireShape> WireShapeOf(const ConfigureNode& request);

}  // namespace lamina
