// The formats of the shm fabric: the memory that two processes share, and the greeting by which
// they exchange it. Each end has one segment, a sealed memfd that its owner reads and its peer
// writes.
//
//   segment  := ShmControl window    window: from offset kShmControlBytes on, as large as the
//                                    greeting of its owner says
//   greeting := ShmGreeting hello    one SOCK_SEQPACKET message, which carries the descriptors of
//                                    the sender's segment, its eventfd and, if it has one, its
//                                    device window
//
// The connecting end greets first, and the accepting end answers with its greeting. Then the socket
// stays open and silent: it closes when a process ends, however it ends. Socket names are in the
// abstract namespace and memfds have none, so nothing is left behind.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace lamina {

static_assert(std::endian::native == std::endian::little &&
              std::atomic<uint32_t>::is_always_lock_free &&
              std::atomic<uint64_t>::is_always_lock_free);

inline constexpr std::array<char, 4> kShmMagic = {'L', 'M', 'N', 'S'};
inline constexpr uint16_t kShmVersion = 3;

struct ShmGreeting {
  std::array<char, 4> magic = kShmMagic;  // 0
  uint16_t version = kShmVersion;         // 4
  uint16_t hello_bytes = 0;               // 6   at most kMaxHelloBytes
  uint64_t window_bytes = 0;              // 8   of the sender's segment
  uint64_t device_window_bytes = 0;       // 16  0: there is none
  std::array<std::byte, 16> device{};     // 24  DeviceWindow::device
};
static_assert(sizeof(ShmGreeting) == 40 && offsetof(ShmGreeting, device_window_bytes) == 16);

inline constexpr uint32_t kShmRingSlots = 512;  // power of two, as the index wraps
// The owner of a ring writes its tail once per so many notifications.
inline constexpr uint32_t kShmTailInterval = kShmRingSlots / 4;

// The notifications for the owner of a segment, and the flags by which either end sleeps.
//
// A slot says by itself whether its notification has come, so no line that one end writes for every
// message is read by the other for anything else: a small message costs one cache line's way to the
// peer and back. Neither end trusts what the other writes: a slot or a tail with an impossible
// value ends the connection. Both ends use seq_cst operations on a flag and on what it announces,
// so that "announce, then look" at one end and "write, then look for an announcement" at the other
// cannot both miss.
struct ShmControl {
  // 0   How many notifications the owner has read, as far as it has told. Owner writes.
  alignas(64) std::atomic<uint32_t> tail;
  // 4   1: the owner sleeps until a notification comes. Owner sets, either end clears.
  std::atomic<uint32_t> owner_sleeps;
  // 8   1: the peer sleeps until the tail moves. Peer sets, owner clears.
  std::atomic<uint32_t> peer_wants_room;
  // 64  Notification i, counted from 0, is in slot i % kShmRingSlots: its value in the lower 32
  // bits and i + 1, which wraps, in the upper 32. Peer writes.
  alignas(64) std::atomic<uint64_t> ring[kShmRingSlots];
};
inline constexpr size_t kShmControlBytes = 8192;
static_assert(sizeof(ShmControl) <= kShmControlBytes && offsetof(ShmControl, ring) == 64);

}  // namespace lamina
