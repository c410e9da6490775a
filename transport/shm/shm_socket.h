// The Unix socket beside a shared memory connection: it hands over the descriptors of the memory at
// the beginning, and its end tells that the peer's process is gone.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "transport/posix.h"
#include "transport/shm/shm_segment.h"
#include "transport/transport.h"

namespace lamina {

// A listening, non-blocking socket at `name` in the abstract namespace. kInvalidArgument for an
// empty or too long name; kOutOfSpace if the name is in use or no descriptor is left.
Result<UniqueFd> ListenShm(const std::string& name);

// A connected, non-blocking socket to the listener at `name`. kTryAgain, with the cause, if nobody
// listens there now or too many wait to be accepted; kInvalidArgument for an empty or too long
// name; kOutOfSpace if no descriptor is left.
Result<UniqueFd> TryConnectShm(const std::string& name);

// What a peer has said and handed over. It is checked that the segment is as large as the greeting
// says and cannot shrink, and that `wake` is an eventfd. Owns the descriptors.
struct ShmPeer {
  std::string name;
  std::string hello;
  uint64_t window_bytes = 0;
  UniqueFd segment;
  UniqueFd wake;  // the eventfd that wakes the peer
  // Not checked: only the device's driver can tell what it is. Invalid if there is none.
  UniqueFd device_window;
  DeviceWindow described_window;  // its `descriptor` is device_window's
};

// Sends this end's greeting with the descriptors `segment` and `wake`, which are borrowed.
// kPeerLost if it cannot be sent. REQUIRES: CheckOptions of `options` was ok.
Status SendShmGreeting(int socket, const EndpointOptions& options, int segment, int wake);

// The peer's greeting, without waiting. kTryAgain if nothing has come yet; kPeerLost with the cause
// if the peer is gone, breaks the protocol or hands over unfit descriptors. `name` is left empty.
Result<ShmPeer> ReceiveShmGreeting(int socket);

// Ok if the process at the other end belongs to this user or to root; else kPeerLost, as shared
// memory gives the peer more than the protocol does. Sets `peer_pid` to its process id.
Status CheckShmCredentials(int socket, int& peer_pid);

}  // namespace lamina
