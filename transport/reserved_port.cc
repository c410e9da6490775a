#include "transport/reserved_port.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace lamina {

Result<ReservedPort> ReservePort() {
  ReservedPort reserved{UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0))};
  const int fd = reserved.socket.get(), reuse = 1;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof(reuse)) != 0 ||
      bind(fd, generic, length) != 0 || getsockname(fd, generic, &length) != 0)
    return InternalError(std::string("no free port on 127.0.0.1: ") + std::strerror(errno));
  reserved.port = ntohs(address.sin_port);
  return reserved;
}

}  // namespace lamina
