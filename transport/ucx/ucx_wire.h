// What two ends of the ucx fabric tell each other. Little-endian.
//
//   offer   := UcxOffer worker_address key    through the rendezvous; worker_address and key are
//   UCX's own and opaque. The key opens the
//                                             sender's region
//   region  := UcxControl window              window: from offset kUcxControlBytes, as large as its
//   owner has offered message := UcxNotice                      an active message with id
//   kUcxMessageId, whose header is the notice
//
// A sender reaches the peer's window in one of two ways; the receiver need not know which. Of each,
// a notification comes when all bytes written before it are in the window:
//
//   kMapped    by the processor, into the region as it lies in this process too (ucp_rkey_ptr).
//   Then the notification goes into the ring.
//              An owner that sleeps does not see it there and says so in owner_sleeps; the sender
//              wakes it with a notice.
//   kPuts      by the NIC (ucp_put_nbx), flushed; then a notice, as UCX promises no order between
//   writes and messages, which may travel
//              over different transports. Only where keys protect the memory, never where UCX would
//              make writes out of messages.
//
// The receiver holds kUcxNotices notifications that were not polled. So each end may send that
// many, and the receiver returns credits: a notice whose `value` is the number of notifications
// that its owner has polled since the beginning.
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

// The same for processes that can share memory, zero-padded; empty: it could not be found out.
using UcxHost = std::array<char, 96>;

struct UcxOffer {
  uint64_t id = 0;              // 0   of the sender's end: notices to it carry this. Random
  uint64_t region_address = 0;  // 8
  uint32_t address_bytes = 0;   // 16
  uint32_t key_bytes = 0;       // 20
  UcxHost host{};               // 24
};
static_assert(sizeof(UcxOffer) == 120 && offsetof(UcxOffer, host) == 24);

struct UcxNotice {
  static constexpr uint32_t kNotification = 1;
  static constexpr uint32_t kCredits = 2;
  // Says nothing; the first thing that an end sends, when it is connected.
  static constexpr uint32_t kWake = 3;

  uint64_t id = 0;     // 0   the receiving end's
  uint32_t kind = 0;   // 8
  uint32_t value = 0;  // 12
  // 16  of kNotification, from 0, wraps: they arrive in the order in which they were sent.
  uint32_t sequence = 0;
  uint32_t reserved = 0;  // 20
};
static_assert(sizeof(UcxNotice) == 24 && offsetof(UcxNotice, sequence) == 16);

static_assert(std::atomic<uint64_t>::is_always_lock_free &&
              std::atomic<uint32_t>::is_always_lock_free);

// Writers and readers of the ring and of the flag use seq_cst operations on both, so that
// "announce, then look" and "write, then look for an announcement" cannot both miss.
struct UcxControl {
  // 0    owner sleeps until something is in the ring; owner sets, either clears.
  alignas(64) std::atomic<uint32_t> owner_sleeps;
  // 64   notification i, from 0, is at i % kUcxNotices: its value, and i + 1 in the upper 32 bits,
  // where it wraps; peer writes.
  alignas(64) std::atomic<uint64_t> ring[kUcxNotices];
};
inline constexpr size_t kUcxControlBytes = 4096;
static_assert(sizeof(UcxControl) <= kUcxControlBytes && offsetof(UcxControl, ring) == 64);

}  // namespace lamina
