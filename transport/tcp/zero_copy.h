// Keeps the books of sends with MSG_ZEROCOPY, which the kernel reads from the caller's memory until
// it reports them done, and decides which sends are made that way. The kernel's side is described
// in its Documentation/networking/msg_zerocopy.rst.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace lamina {

// Pinning pages and collecting the kernel's report cost about as much as copying so many bytes.
inline constexpr size_t kMinZeroCopyBytes = size_t{32} << 10;

// The zero-copy sends of one socket, which it borrows. With each report the kernel says whether it
// copied after all, as it does towards this machine and through devices that cannot gather; after
// the first such report no more zero-copy sends are made. Thread: owner.
class ZeroCopySends {
 public:
  explicit ZeroCopySends(int socket);

  // The flags for a send of `bytes` bytes: MSG_ZEROCOPY or 0.
  int FlagsFor(size_t bytes) const;

  // To be called after a send with MSG_ZEROCOPY that took any bytes: the kernel counts these.
  void CountSend() { ++num_sent_; }

  // From now on FlagsFor returns 0. For a kernel that cannot pin more memory for this socket.
  void Stop() { is_on_ = false; }

  // Takes the kernel's reports of sends that are done. No system call if all are.
  void Collect();

  uint32_t num_sent() const { return num_sent_; }  // wraps

  // Whether the kernel no longer reads the memory of the first `count` sends. REQUIRES: `count` is
  // an earlier num_sent(), less than 2^31 sends ago.
  bool AreDone(uint32_t count) const { return static_cast<int32_t>(num_done_ - count) >= 0; }

 private:
  void Take(uint32_t first, uint32_t last);

  const int socket_;
  bool is_on_ = false;
  uint32_t num_sent_ = 0;
  uint32_t num_done_ = 0;  // all sends before this one are done; wraps
  // Ranges [first, last] of sends that are done while one before them is not. Rarely any.
  std::vector<std::pair<uint32_t, uint32_t>> done_early_;
};

}  // namespace lamina
