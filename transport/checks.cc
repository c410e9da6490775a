#include "transport/checks.h"

#include <string>

namespace lamina {
namespace {

using std::to_string;

Status OutsideWindow(const WriteOp& op, uint64_t window_bytes) {
  return InvalidArgument("write of " + to_string(op.source.size()) + " bytes at " +
                         to_string(op.peer_offset) + " lies outside the peer's " +
                         (op.to_device ? "device window of " : "window of ") +
                         to_string(window_bytes) + " bytes");
}

}  // namespace

Status CheckOptions(const EndpointOptions& options, const Limits& limits) {
  if (options.hello.size() > kMaxHelloBytes) {
    return InvalidArgument("hello of " + to_string(options.hello.size()) + " bytes; at most " +
                           to_string(kMaxHelloBytes));
  }
  if (options.window_bytes > limits.max_window_bytes) {
    return InvalidArgument("window of " + to_string(options.window_bytes) + " bytes; at most " +
                           to_string(limits.max_window_bytes));
  }
  return OkStatus();
}

Status CheckMayJoin(const EndpointOptions& options, const std::string& peer_hello) {
  if (!options.may_join || options.may_join(peer_hello)) return OkStatus();
  return PeerLost("it does not belong to this session, by what it says of itself");
}

Status CheckOps(std::span<const WriteOp> ops, const Limits& limits, uint64_t peer_window_bytes,
                uint64_t device_window_bytes) {
  if (ops.size() > limits.max_ops) {
    return InvalidArgument("post of " + to_string(ops.size()) + " writes; at most " +
                           to_string(limits.max_ops));
  }
  for (const WriteOp& op : ops) {
    const uint64_t bytes = op.to_device ? device_window_bytes : peer_window_bytes;
    // Subtracted, as an offset plus a size could overflow.
    if (op.peer_offset > bytes || op.source.size() > bytes - op.peer_offset)
      return OutsideWindow(op, bytes);
  }
  return OkStatus();
}

}  // namespace lamina
