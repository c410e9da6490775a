// What two ends of the ucx fabric tell each other. Little-endian.
//
//   offer  := UcxOffer worker_address key     through the rendezvous; worker_address and key are UCX's own and opaque. The key opens the
//                                             window, which is empty if there is none
//   notice := UcxNotice                       an active message with id kUcxMessageId, nothing but this header
//
// A notification is sent when all bytes written before it are in the peer's window (ucp_ep_flush_nbx), as UCX promises no order between
// writes and messages, which may travel over different transports. `sequence` counts an end's notifications from 0 and wraps.
//
// The receiver holds kUcxNotices notifications that were not polled. So each end may send that many, and the receiver returns credits:
// a notice whose `value` is the number of notifications that its owner has polled since the beginning.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace lamina {

static_assert(std::endian::native == std::endian::little, "wire structs are copied as they lie in memory");

inline constexpr unsigned kUcxMessageId = 1;
inline constexpr uint32_t kUcxNotices = 128;

// Of the queue in shared memory that all peers of a worker share, by default 64. A notice that waits for a place needs its sender to poll,
// and keeps it from sleeping; with so many that takes 32 peers whose notifications are all unread. 128 bytes each.
inline constexpr uint32_t kUcxQueuePlaces = 32 * kUcxNotices;

struct UcxOffer {
  uint64_t id = 0;              // 0   of the sender's end: notices to it carry this
  uint64_t window_address = 0;  // 8
  uint32_t address_bytes = 0;   // 16
  uint32_t key_bytes = 0;       // 20
  std::array<char, 64> host{};  // 24  the same for ends that UCX connects through shared memory, zero-padded; empty: through none
};
static_assert(sizeof(UcxOffer) == 88 && offsetof(UcxOffer, host) == 24);

struct UcxNotice {
  static constexpr uint32_t kNotification = 1;
  static constexpr uint32_t kCredits = 2;

  uint64_t id = 0;        // 0   the receiving end's
  uint32_t kind = 0;      // 8
  uint32_t value = 0;     // 12
  uint32_t sequence = 0;  // 16  notifications only
  uint32_t reserved = 0;  // 20
};
static_assert(sizeof(UcxNotice) == 24 && offsetof(UcxNotice, sequence) == 16);

}  // namespace lamina
