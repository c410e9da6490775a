// What a process listens on, as somebody finds who looks at it from outside.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace lamina::testing {

struct ListeningSocket {
  std::string protocol;  // "tcp", "tcp6", "udp", "udp6"
  std::string host;      // "127.0.0.1"; of IPv6 the 32 hex digits of /proc
  int port = 0;

  bool is_loopback() const { return host == "127.0.0.1" || host == kLoopback6; }
  bool operator==(const ListeningSocket&) const = default;

  static constexpr const char* kLoopback6 = "00000000000000000000000001000000";
};

std::string ToText(const ListeningSocket& socket);

// TCP sockets that take connections and UDP sockets that take datagrams from anybody. Of a process
// of this user.
std::vector<ListeningSocket> SocketsOf(pid_t pid);

// Identifiers of System V segments that `pid` has created and that others than their owner may
// open.
std::vector<int> SharedSystemVSegmentsOf(pid_t pid);

// Files, memory without a name included, that `pid` has open, lie in memory and may be opened by
// others than their owner.
std::vector<std::string> SharedMemoryFilesOf(pid_t pid);

}  // namespace lamina::testing
