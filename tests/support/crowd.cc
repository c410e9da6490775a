#include "tests/support/crowd.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <stdexcept>

#include "base/descriptors.h"

namespace lamina::testing {
namespace {

constexpr size_t kKeptBytes = 4096;  // of what is heard
constexpr int kPollMs = 20;

sockaddr_in AddressOf(const std::string& host, uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  inet_pton(AF_INET, host.c_str(), &address.sin_addr);
  return address;
}

}  // namespace

Crowd::Crowd(uint16_t port, size_t count, std::string bytes, const std::string& from)
    : bytes_(std::move(bytes)), connections_(count) {
  const sockaddr_in own = AddressOf(from, 0), server = AddressOf("127.0.0.1", port);
  for (Connection& connection : connections_) {
    connection.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (connection.fd < 0) throw std::runtime_error("no descriptor left for the crowd");
    if (bind(connection.fd, reinterpret_cast<const sockaddr*>(&own), sizeof(own)) != 0)
      throw std::runtime_error("cannot bind to " + from);
    connect(connection.fd, reinterpret_cast<const sockaddr*>(&server), sizeof(server));
    Advance(connection);
  }
}

Crowd::~Crowd() {
  for (const Connection& connection : connections_) close(connection.fd);
}

void Crowd::Advance(Connection& connection) {
  while (!connection.closed && connection.sent_bytes < bytes_.size()) {
    const ssize_t count = send(connection.fd, bytes_.data() + connection.sent_bytes,
                               bytes_.size() - connection.sent_bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINPROGRESS || errno == ENOTCONN)) break;
    if (count < 0) {
      connection.closed = true;  // what came before is still read
    } else {
      connection.sent_bytes += static_cast<size_t>(count);
    }
  }
  std::array<char, kKeptBytes> heard;
  while (true) {
    const ssize_t count = recv(connection.fd, heard.data(), heard.size(), MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == ENOTCONN)) return;
    if (count <= 0) break;
    if (connection.heard.size() < kKeptBytes)
      connection.heard.append(heard.data(), static_cast<size_t>(count));
  }
  connection.closed = true;
}

void Crowd::Push(Deadline deadline) {
  const auto busy = [&](const Connection& connection) {
    return !connection.closed && connection.sent_bytes < bytes_.size();
  };
  while (std::ranges::any_of(connections_, busy) && !deadline.Passed()) {
    std::vector<pollfd> entries;
    for (Connection& connection : connections_) {
      Advance(connection);
      if (busy(connection)) entries.push_back({connection.fd, POLLIN | POLLOUT, 0});
    }
    poll(entries.data(), entries.size(), kPollMs);
  }
}

size_t Crowd::NumOpen() {
  for (Connection& connection : connections_) Advance(connection);
  return static_cast<size_t>(std::ranges::count(connections_, false, &Connection::closed));
}

size_t Crowd::NumAnswered(const std::string& beginning) {
  for (Connection& connection : connections_) Advance(connection);
  return static_cast<size_t>(std::ranges::count_if(connections_, [&](const Connection& connection) {
    return connection.heard.starts_with(beginning);
  }));
}

size_t ResidentBytes(int pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string word; status >> word;) {
    size_t kilobytes = 0;
    if (word == "VmRSS:" && status >> kilobytes) return kilobytes << 10;
  }
  return 0;
}

bool HasDescriptorsFor(size_t count) {
  RaiseDescriptorLimit();
  return DescriptorLimit() >= count;
}

}  // namespace lamina::testing
