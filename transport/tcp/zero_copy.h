// Sends that the kernel reads from the caller's memory until it says that it is done
// (MSG_ZEROCOPY), where that pays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace lamina {

// Pinning pages and collecting the kernel's word cost about as much as copying this many bytes.
inline constexpr size_t kMinZeroCopyBytes = size_t{32} << 10;

// The zero-copy sends of one socket. The kernel says with each whether it had to copy after all, as
// it does towards this machine and through devices that cannot gather; after the first time no more
// are made. Thread: owner.
class ZeroCopySends {
 public:
  explicit ZeroCopySends(int socket);

  // What to give to the next send of so many bytes: MSG_ZEROCOPY or 0.
  int FlagsFor(size_t bytes) const;

  // A send with MSG_ZEROCOPY took some bytes.
  void CountSend() { ++num_sent_; }

  // The kernel cannot pin more memory for this socket.
  void Stop() { is_on_ = false; }

  // Asks the kernel which sends are done; one system call if any is not.
  void Collect();

  bool is_on() const { return is_on_; }
  uint32_t num_sent() const { return num_sent_; }

  // The first `count` sends are done with their memory. `count` is an earlier num_sent(); the
  // counters may wrap.
  bool AreDone(uint32_t count) const { return static_cast<int32_t>(num_done_ - count) >= 0; }

 private:
  void Take(uint32_t first, uint32_t last);

  const int socket_;
  bool is_on_ = false;
  uint32_t num_sent_ = 0;
  uint32_t num_done_ = 0;  // all before are done
  // [first, last] that are done while one before is not: rare.
  std::vector<std::pair<uint32_t, uint32_t>> done_early_;
};

}  // namespace lamina
