// What two ends of the ucx fabric tell each other. Little-endian.
//
//   offer   := UcxOffer worker_address key?   sent through the rendezvous. worker_address and key
//                                             are opaque, UCX's own: of the worker that the sender
//                                             has for this connection alone (ucx_worker.h), and of
//                                             its region. No key: UCX does not know the region, and
//                                             only processes of the same machine reach it
//   region  := UcxControl window              window: from offset kUcxControlBytes on, as large as
//                                             the greeting of its owner says
//   message := UcxNotice                      an active message with id kUcxMessageId, whose header
//                                             is the notice
//
// A sender reaches the peer's window in one of two ways (UcxPath), and the receiver need not know
// which. Either way a notification arrives after all bytes written before it are in the window.
//
//   kMapped    The CPU writes into the peer's region, which this process has mapped, and then puts
//              the notification into the ring. An owner that sleeps would not see it there and says
//              so in owner_sleeps; then the sender wakes it with a notice. This process opens the
//              region itself: UCX 1.13 crashes (ucp_ep_rkey_unpack) if the peer's process ended
//              before.
//   kPuts      The NIC writes (ucp_put_nbx), and the writes are flushed. Then the notification goes
//              in a notice, as UCX promises no order between writes and messages, which may take
//              different transports. Used only where keys protect the memory, never where UCX would
//              emulate writes by messages.
//
// The receiver has room for kUcxNotices notifications that were not polled, so a sender may have
// that many there. The receiver returns credits by a notice whose `value` is the number of
// notifications that its owner has polled since the beginning.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace lamina {

static_assert(std::endian::native == std::endian::little,
              "wire structs are copied as they lie in memory");

inline constexpr unsigned kUcxMessageId = 1;
inline constexpr uint32_t kUcxNotices = 128;  // power of two, as the index into the ring wraps

// Text, zero-padded, that is the same for processes which can share memory. All zero if it could
// not be found out.
using UcxHost = std::array<char, 96>;

struct UcxOffer {
  uint64_t id = 0;              // 0   random; notices to the sender's end carry it
  uint64_t region_address = 0;  // 8   in the sender's address space
  uint32_t address_bytes = 0;   // 16
  uint32_t key_bytes = 0;       // 20
  int32_t process = 0;          // 24  that has the region, and by which descriptor; -1: by none, as
  int32_t descriptor = -1;      // 28  UCX has allocated it
  UcxHost host{};               // 32
};
static_assert(sizeof(UcxOffer) == 128 && offsetof(UcxOffer, address_bytes) == 16 &&
              offsetof(UcxOffer, host) == 32);

struct UcxNotice {
  static constexpr uint32_t kNotification = 1;
  static constexpr uint32_t kCredits = 2;
  // Only wakes its receiver. It is also the first notice of an end, by which the peer learns that
  // this end gets through.
  static constexpr uint32_t kWake = 3;

  uint64_t id = 0;     // 0   UcxOffer::id of the receiving end
  uint32_t kind = 0;   // 8
  uint32_t value = 0;  // 12  of kNotification and kCredits
  // 16  Numbers the notices with kNotification from 0, and wraps: they must arrive in order.
  uint32_t sequence = 0;
  uint32_t reserved = 0;  // 20
};
static_assert(sizeof(UcxNotice) == 24 && offsetof(UcxNotice, sequence) == 16);

static_assert(std::atomic<uint64_t>::is_always_lock_free &&
              std::atomic<uint32_t>::is_always_lock_free);

// The beginning of a region. Both ends use seq_cst operations on the ring and on the flag, so that
// "announce, then look" at one end and "write, then look for an announcement" at the other cannot
// both miss.
struct UcxControl {
  // 0   1: the owner sleeps until something is in the ring. Owner sets, either end clears.
  alignas(64) std::atomic<uint32_t> owner_sleeps;
  // 64  Notification i, counted from 0, is in slot i % kUcxNotices: its value in the lower 32 bits
  // and i + 1, which wraps, in the upper 32. Peer writes.
  alignas(64) std::atomic<uint64_t> ring[kUcxNotices];
};
inline constexpr size_t kUcxControlBytes = 4096;
static_assert(sizeof(UcxControl) <= kUcxControlBytes && offsetof(UcxControl, ring) == 64);

}  // namespace lamina
