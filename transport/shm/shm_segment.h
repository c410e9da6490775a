// What two processes share over the shm fabric: one segment per end, a sealed memfd that its owner
// reads and its peer writes.
//
//   segment  := ShmControl window          window: from offset kShmControlBytes, as large as its
//   owner has offered greeting := ShmGreeting hello          one SOCK_SEQPACKET message, with two
//   descriptors: the sender's segment and its eventfd, and a
//                                          third one if it has a device window; the accepting end
//                                          answers the connecting end's greeting
//
// The socket stays open and silent: it closes when a process ends, however it ends. Names are in
// the abstract socket namespace and memfds have none, so nothing is left behind.
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
  std::array<std::byte, 16> device{};     // 24  that has it
};
static_assert(sizeof(ShmGreeting) == 40 && offsetof(ShmGreeting, device_window_bytes) == 16);

inline constexpr uint32_t kShmRingSlots = 512;  // power of two, as the index wraps
// The tail is written once per so many notifications.
inline constexpr uint32_t kShmTailInterval = kShmRingSlots / 4;

// A slot says by itself whether its notification has come, so that one cache line goes to the peer
// and back for a small message: no line that one end writes for each message is read by the other
// for anything else. Neither side believes what the other writes: a slot or a tail that cannot be
// ends the connection. Writers and readers of a flag use seq_cst operations on both the flag and
// what it is about, so that "announce, then look" and "write, then look for an announcement" cannot
// both miss.
struct ShmControl {
  // 0   notifications read, as far as told; owner writes.
  alignas(64) std::atomic<uint32_t> tail;
  // 4   owner sleeps until a notification comes; owner sets, either clears.
  std::atomic<uint32_t> owner_sleeps;
  // 8   peer sleeps until the tail moves; peer sets, owner clears.
  std::atomic<uint32_t> peer_wants_room;
  // 64  notification i, from 0, is at i % kShmRingSlots: its value, and i + 1 in the upper 32 bits,
  // where it wraps; peer writes.
  alignas(64) std::atomic<uint64_t> ring[kShmRingSlots];
};
inline constexpr size_t kShmControlBytes = 8192;
static_assert(sizeof(ShmControl) <= kShmControlBytes && offsetof(ShmControl, ring) == 64);

}  // namespace lamina
