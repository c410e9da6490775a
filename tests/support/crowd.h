// Many connections of a client that is not our code: raw sockets that say what they are told, and
// wait for nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"

namespace lamina::testing {

class Crowd {
 public:
  // `count` connections to 127.0.0.1:`port` from the loopback address `from`: another one plays
  // another machine. Each one sends `bytes` as far as they are taken without waiting; Push goes on.
  // Those that are turned away stay counted.
  Crowd(uint16_t port, size_t count, std::string bytes = "", const std::string& from = "127.0.0.1");
  ~Crowd();
  Crowd(const Crowd&) = delete;
  Crowd& operator=(const Crowd&) = delete;

  // Goes on sending and reading until every connection has sent all or is closed, or `deadline`.
  void Push(Deadline deadline);

  // That the other side has accepted or will, and not closed.
  size_t NumOpen();
  // To which the other side has said something that begins so.
  size_t NumAnswered(const std::string& beginning);

 private:
  struct Connection {
    int fd = -1;
    size_t sent_bytes = 0;
    bool closed = false;
    std::string heard;  // the beginning
  };
  void Advance(Connection& connection);

  const std::string bytes_;
  std::vector<Connection> connections_;
};

// Resident memory of a process, from /proc; 0 if it is gone.
size_t ResidentBytes(int pid);

// Makes room for so many descriptors in this process; false if the system does not allow it.
bool HasDescriptorsFor(size_t count);

}  // namespace lamina::testing
