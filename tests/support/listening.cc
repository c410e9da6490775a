#include "tests/support/listening.h"

#include <arpa/inet.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

namespace lamina::testing {

namespace fs = std::filesystem;

std::string ToText(const ListeningSocket& socket) {
  return socket.protocol + " " + socket.host + ":" + std::to_string(socket.port);
}

namespace {

constexpr int kTcpListens = 0x0A;
constexpr int kUdpUnconnected = 0x07;

std::string ProcPath(pid_t pid, const std::string& below) {
  return "/proc/" + std::to_string(pid) + "/" + below;
}

// The inodes of its sockets, as in "socket:[4711]".
std::set<uint64_t> SocketInodesOf(pid_t pid) {
  std::set<uint64_t> inodes;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(ProcPath(pid, "fd"), error)) {
    const std::string target = fs::read_symlink(entry.path(), error).string();
    if (target.starts_with("socket:[")) inodes.insert(std::stoull(target.substr(8)));
  }
  return inodes;
}

std::string HostText(const std::string& hex) {
  if (hex.size() != 8) return hex;
  in_addr address{static_cast<in_addr_t>(std::stoul(hex, nullptr, 16))};
  char text[INET_ADDRSTRLEN];
  return inet_ntop(AF_INET, &address, text, sizeof(text));
}

}  // namespace

std::vector<ListeningSocket> SocketsOf(pid_t pid) {
  const std::set<uint64_t> inodes = SocketInodesOf(pid);
  std::vector<ListeningSocket> sockets;
  for (const std::string protocol : {"tcp", "tcp6", "udp", "udp6"}) {
    std::ifstream file(ProcPath(pid, "net/" + protocol));
    std::string line;
    std::getline(file, line);
    // "0: 0100007F:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 4711 ...".
    while (std::getline(file, line)) {
      std::istringstream words(line);
      std::string number, local, remote, state, queues, timer, retransmits;
      uint64_t uid = 0, timeout = 0, inode = 0;
      words >> number >> local >> remote >> state >> queues >> timer >> retransmits >> uid >>
          timeout >> inode;
      const int wanted = protocol.starts_with("tcp") ? kTcpListens : kUdpUnconnected;
      if (std::stoi(state, nullptr, 16) != wanted || !inodes.contains(inode)) continue;
      const size_t colon = local.find(':');
      sockets.push_back({protocol, HostText(local.substr(0, colon)),
                         std::stoi(local.substr(colon + 1), nullptr, 16)});
    }
  }
  return sockets;
}

std::vector<int> SharedSystemVSegmentsOf(pid_t pid) {
  std::vector<int> segments;
  std::ifstream file("/proc/sysvipc/shm");
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) {  // "key shmid perms size cpid ..."
    std::istringstream words(line);
    int64_t key = 0, id = 0, size = 0, creator = 0;
    std::string permissions;  // octal
    words >> key >> id >> permissions >> size >> creator;
    if (creator == pid && (std::stoi(permissions, nullptr, 8) & 0077) != 0)
      segments.push_back(static_cast<int>(id));
  }
  return segments;
}

std::vector<std::string> SharedMemoryFilesOf(pid_t pid) {
  std::vector<std::string> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(ProcPath(pid, "fd"), error)) {
    const std::string target = fs::read_symlink(entry.path(), error).string();
    struct stat info {};
    if (!target.starts_with("/dev/shm/") || stat(entry.path().c_str(), &info) != 0) continue;
    if ((info.st_mode & 0077) != 0) files.push_back(target);
  }
  return files;
}

}  // namespace lamina::testing
