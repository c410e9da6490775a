// The unix socket beside a shared memory connection: hands over descriptors at the beginning,
// closes at the end.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "transport/posix.h"
#include "transport/shm/shm_segment.h"
#include "transport/transport.h"

namespace lamina {

// A listening, non-blocking socket at `name` in the abstract namespace. kInvalidArgument for an
// empty or too long name, kOutOfSpace if it is in use.
Result<UniqueFd> ListenShm(const std::string& name);

// A connected, non-blocking socket. Retries until `deadline` while nobody listens. kTimeout or
// kInvalidArgument.
Result<UniqueFd> ConnectShm(const std::string& name, Deadline deadline);

// Memory that an end offers: sealed, so that it cannot shrink under the one who maps it.
Result<UniqueFd> CreateShmSegment(uint64_t window_bytes);

// What a peer has said and handed over, checked: the segment is as large as it says and stays so,
// the eventfd is one.
struct ShmPeer {
  std::string name;
  std::string hello;
  uint64_t window_bytes = 0;
  UniqueFd segment;
  UniqueFd wake;
  // Its descriptor; not checked, as only the device's driver knows it.
  UniqueFd device_window;
  DeviceWindow described_window;  // the rest of it
};

Status SendShmGreeting(int socket, const EndpointOptions& options, int segment, int wake);

// kTryAgain if nothing has come yet, kPeerLost with the cause if the peer is gone or none of ours.
Result<ShmPeer> ReceiveShmGreeting(int socket);

// Ok if the process at the other end belongs to this user or to root, else kPeerLost: whoever
// writes into a window is trusted with it. `peer_pid` is set to its process id.
Status CheckShmCredentials(int socket, int& peer_pid);

}  // namespace lamina
