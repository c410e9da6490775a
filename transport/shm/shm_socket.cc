#include "transport/shm/shm_socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "transport/sealed_memory.h"

namespace lamina {
namespace {

// Before every name, so that it meets no abstract name of another program.
constexpr std::string_view kPrefix = "lamina-shm/";
// Descriptors in a greeting: segment, eventfd and, if there is one, the device window.
constexpr size_t kNumFds = 2, kNumFdsWithDevice = 3;

struct UnixAddress {
  sockaddr_un address{};
  socklen_t size = 0;
};

Result<UnixAddress> MakeAddress(const std::string& name) {
  UnixAddress result;
  // The first byte is 0, which makes the name an abstract one.
  const size_t room = sizeof(result.address.sun_path) - 1 - kPrefix.size();
  if (name.empty() || name.size() > room) {
    return InvalidArgument("shm name \"" + name + "\" has " + std::to_string(name.size()) +
                           " bytes; expected 1 to " + std::to_string(room));
  }
  const std::string text = std::string(kPrefix) + name;
  result.address.sun_family = AF_UNIX;
  std::memcpy(result.address.sun_path + 1, text.data(), text.size());
  result.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  return result;
}

Result<UniqueFd> OpenSocket() {
  // SEQPACKET keeps a greeting one message, which comes as a whole or not at all.
  UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return OutOfSpace(ErrnoText("socket"));
  return fd;
}

// Takes every descriptor that came with a message, also unexpected ones: they are closed then.
std::vector<UniqueFd> TakeDescriptors(msghdr& message) {
  std::vector<UniqueFd> fds;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    for (size_t at = 0; at + sizeof(int) <= part->cmsg_len - CMSG_LEN(0); at += sizeof(int)) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(part) + at, sizeof(fd));
      fds.emplace_back(fd);
    }
  }
  return fds;
}

bool IsEventFd(int fd) {
  char target[64];
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t size = readlink(link.c_str(), target, sizeof(target));
  return size > 0 && std::string_view(target, static_cast<size_t>(size)) == "anon_inode:[eventfd]";
}

Status CheckDescriptors(int segment, int wake, uint64_t window_bytes) {
  LAMINA_RETURN_IF_ERROR(CheckSealedMemory(segment, kShmControlBytes, window_bytes));
  if (!IsEventFd(wake)) return PeerLost("the peer's wake-up descriptor is no eventfd");
  // Writing to one that is full must not block. The flag is the peer's too, which could take it
  // away again; but it is a process of this user, which can stop this one by a signal as well.
  const int flags = fcntl(wake, F_GETFL);
  if (flags < 0 || fcntl(wake, F_SETFL, flags | O_NONBLOCK) != 0)
    return PeerLost(ErrnoText("O_NONBLOCK for the peer's eventfd"));
  return OkStatus();
}

Status CheckGreeting(const ShmGreeting& greeting, size_t message_bytes) {
  if (message_bytes < sizeof(greeting) || greeting.magic != kShmMagic)
    return PeerLost("the peer does not speak lamina's shm transport");
  if (greeting.version != kShmVersion) {
    return PeerLost("the peer speaks version " + std::to_string(greeting.version) +
                    " of the shm transport, this end version " + std::to_string(kShmVersion));
  }
  if (greeting.hello_bytes > kMaxHelloBytes ||
      message_bytes != sizeof(greeting) + greeting.hello_bytes) {
    return PeerLost("the peer's greeting is malformed");
  }
  return OkStatus();
}

}  // namespace

Result<UniqueFd> ListenShm(const std::string& name) {
  LAMINA_ASSIGN_OR_RETURN(const UnixAddress address, MakeAddress(name));
  LAMINA_ASSIGN_OR_RETURN(UniqueFd fd, OpenSocket());
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address.address), address.size) != 0) {
    if (errno == EADDRINUSE) return OutOfSpace("shm name in use: " + name);
    return OutOfSpace(ErrnoText("bind to shm name " + name));
  }
  if (listen(fd.get(), SOMAXCONN) != 0) return OutOfSpace(ErrnoText("listen on shm name " + name));
  return fd;
}

Result<UniqueFd> TryConnectShm(const std::string& name) {
  LAMINA_ASSIGN_OR_RETURN(const UnixAddress address, MakeAddress(name));
  LAMINA_ASSIGN_OR_RETURN(UniqueFd fd, OpenSocket());
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address.address), address.size) == 0)
    return fd;
  return TryAgain("shm " + name + ": " + ErrnoText("connect"));
}

Status SendShmGreeting(int socket, const EndpointOptions& options, int segment, int wake) {
  ShmGreeting greeting;
  greeting.hello_bytes = static_cast<uint16_t>(options.hello.size());
  greeting.window_bytes = options.window_bytes;
  const bool has_device = options.device_window.descriptor >= 0;
  greeting.device_window_bytes = has_device ? options.device_window.bytes : 0;
  greeting.device = options.device_window.device;
  const size_t num_fds = has_device ? kNumFdsWithDevice : kNumFds;
  iovec parts[2] = {{&greeting, sizeof(greeting)},
                    {const_cast<char*>(options.hello.data()), options.hello.size()}};
  alignas(cmsghdr) char control[CMSG_SPACE(kNumFdsWithDevice * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  message.msg_control = control;
  message.msg_controllen = CMSG_SPACE(num_fds * sizeof(int));
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(num_fds * sizeof(int));
  const int fds[kNumFdsWithDevice] = {segment, wake, options.device_window.descriptor};
  std::memcpy(CMSG_DATA(header), fds, num_fds * sizeof(int));
  if (sendmsg(socket, &message, MSG_NOSIGNAL) < 0)
    return PeerLost(ErrnoText("sending the greeting"));
  return OkStatus();
}

Result<ShmPeer> ReceiveShmGreeting(int socket) {
  ShmGreeting greeting;
  std::string hello(kMaxHelloBytes, '\0');
  iovec parts[2] = {{&greeting, sizeof(greeting)}, {hello.data(), hello.size()}};
  // Room for more descriptors than are expected. The kernel closes those that do not fit and sets
  // MSG_CTRUNC.
  alignas(cmsghdr) char control[CMSG_SPACE(8 * sizeof(int))];
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return TryAgain("no greeting came");
  if (got < 0) return PeerLost(ErrnoText("reading the greeting"));
  if (got == 0) return PeerLost("the peer broke off the handshake");
  std::vector<UniqueFd> fds = TakeDescriptors(message);
  LAMINA_RETURN_IF_ERROR(CheckGreeting(greeting, static_cast<size_t>(got)));
  const bool has_device = greeting.device_window_bytes > 0;
  if (fds.size() != (has_device ? kNumFdsWithDevice : kNumFds) ||
      (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0)
    return PeerLost("the peer's greeting is malformed");
  LAMINA_RETURN_IF_ERROR(CheckDescriptors(fds[0].get(), fds[1].get(), greeting.window_bytes));
  hello.resize(greeting.hello_bytes);
  ShmPeer peer{
      "", std::move(hello), greeting.window_bytes, std::move(fds[0]), std::move(fds[1]), UniqueFd(),
      {}};
  if (has_device) peer.device_window = std::move(fds[2]);
  peer.described_window = {peer.device_window.get(), greeting.device_window_bytes, greeting.device};
  return peer;
}

Status CheckShmCredentials(int socket, int& peer_pid) {
  ucred credentials{};
  socklen_t size = sizeof(credentials);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0)
    return PeerLost(ErrnoText("SO_PEERCRED"));
  peer_pid = credentials.pid;
  if (credentials.uid == geteuid() || credentials.uid == 0) return OkStatus();
  return PeerLost("process " + std::to_string(credentials.pid) + " belongs to another user, " +
                  std::to_string(credentials.uid));
}

}  // namespace lamina
