#include "tests/support/free_port.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <stdexcept>
#include <string>

namespace lamina {
namespace {

constexpr int kFirstPort = 20'000;
constexpr int kNumPorts = 12'000;

// Byte p of this file is locked by the process that reserved port p; the kernel lets go of it when
// the process ends.
int LockFile() {
  static const int fd = [] {
    const std::string path =
        (std::filesystem::temp_directory_path() / "lamina-test-ports").string();
    const int opened = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (opened < 0) throw std::runtime_error("cannot open " + path);
    return opened;
  }();
  return fd;
}

// Per-process locks, not those of the open file description: a daemon that a test forks must not
// keep the reservation.
bool Reserve(int port) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = port;
  lock.l_len = 1;
  return fcntl(LockFile(), F_SETLK, &lock) == 0;
}

bool CanListen(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  address.sin_port = htons(static_cast<uint16_t>(port));
  const bool bound = bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  close(fd);
  return bound;
}

}  // namespace

int FreePort() {
  // Processes begin at different places, and each port is tried once: the file lock says nothing
  // about this process's own earlier ports.
  static int tried = 0;
  static const int first = static_cast<int>(getpid() * 37L % kNumPorts);
  while (tried < kNumPorts) {
    const int port = kFirstPort + (first + tried++) % kNumPorts;
    if (Reserve(port) && CanListen(port)) return port;
  }
  throw std::runtime_error("no free port between " + std::to_string(kFirstPort) + " and " +
                           std::to_string(kFirstPort + kNumPorts - 1));
}

}  // namespace lamina
