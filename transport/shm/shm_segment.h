// What two processes share over the shm fabric: one segment per end, a sealed memfd that its owner reads and its peer writes.
//
//   segment  := ShmControl window          window: from offset kShmControlBytes, as large as its owner has offered
//   greeting := ShmGreeting hello          one SOCK_SEQPACKET message, with two descriptors: the sender's segment and its eventfd;
//                                          the accepting end answers the connecting end's greeting
//
// The socket stays open and silent: it closes when a process ends, however it ends. Names are in the abstract socket namespace and
// memfds have none, so nothing is left behind.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace lamina {

static_assert(std::endian::native == std::endian::little && std::atomic<uint32_t>::is_always_lock_free);

inline constexpr std::array<char, 4> kShmMagic = {'L', 'M', 'N', 'S'};
inline constexpr uint16_t kShmVersion = 1;

struct ShmGreeting {
  std::array<char, 4> magic = kShmMagic;  // 0
  uint16_t version = kShmVersion;         // 4
  uint16_t hello_bytes = 0;               // 6   at most kMaxHelloBytes
  uint64_t window_bytes = 0;              // 8   of the sender's segment
};
static_assert(sizeof(ShmGreeting) == 16 && offsetof(ShmGreeting, window_bytes) == 8);

inline constexpr uint32_t kShmRingSlots = 512;  // power of two, as the indices wrap; with the indices it fits one page

// Indices count notifications since the beginning and wrap. Neither side believes what the other writes: an index that is more than
// kShmRingSlots off ends the connection. Writers and readers of a flag use seq_cst operations on both the flag and the index, so
// that "announce, then look" and "write, then look for an announcement" cannot both miss.
struct ShmControl {
  alignas(64) std::atomic<uint32_t> head;                 // 0     notifications written; peer writes
  std::atomic<uint32_t> peer_wants_room;                  // 4     peer sleeps until the tail moves; peer sets, owner clears
  alignas(64) std::atomic<uint32_t> tail;                 // 64    notifications read; owner writes
  std::atomic<uint32_t> owner_sleeps;                     // 68    owner sleeps until the head moves; owner sets, either clears
  alignas(64) std::atomic<uint32_t> ring[kShmRingSlots];  // 128   notification i is at i % kShmRingSlots; peer writes
};
inline constexpr size_t kShmControlBytes = 4096;
static_assert(sizeof(ShmControl) <= kShmControlBytes && offsetof(ShmControl, tail) == 64 && offsetof(ShmControl, ring) == 128);

}  // namespace lamina
