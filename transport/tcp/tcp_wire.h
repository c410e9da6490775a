// The wire format of the tcp fabric, little-endian. Each pair of endpoints has one TCP connection
// of its own.
//
//   connection := greeting frame*      in both directions
//   greeting   := TcpGreeting hello    hello: hello_bytes bytes
//   frame      := TcpFrame payload     payload: payload_bytes bytes
//
// The connecting end greets first, and the accepting end answers with its greeting. The receiver of
// a frame copies the payload to window_offset of its window; then, if has_notification is 1, Poll
// returns `notification`.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace lamina {

static_assert(std::endian::native == std::endian::little,
              "wire structs are copied as they lie in memory");

inline constexpr std::array<char, 4> kTcpMagic = {'L', 'M', 'N', 'T'};
inline constexpr uint16_t kTcpVersion = 2;

struct TcpGreeting {
  std::array<char, 4> magic = kTcpMagic;  // 0
  uint16_t version = kTcpVersion;         // 4
  uint16_t hello_bytes = 0;               // 6   at most kMaxHelloBytes
  uint64_t window_bytes = 0;              // 8   of the sender
};
static_assert(sizeof(TcpGreeting) == 16 && offsetof(TcpGreeting, window_bytes) == 8);

inline constexpr uint16_t kTcpFrameMagic = 0x574c;  // "LW"

struct TcpFrame {
  uint16_t magic = kTcpFrameMagic;  // 0
  uint16_t has_notification = 0;    // 2   0 or 1; anything else is malformed
  uint32_t notification = 0;        // 4
  uint64_t window_offset = 0;       // 8
  uint64_t payload_bytes = 0;       // 16
  uint32_t sequence = 0;            // 24  0, 1, ... in one direction of a connection; wraps
  // 28  Fills up a cache line, which keeps payloads aligned to cache lines: the kernel copies 64
  // KiB a tenth faster then.
  std::array<uint32_t, 8> zero{};
  // 60  Checksum(), so that a damaged header writes nowhere. There is none of the payload: who uses
  // the bytes checks them.
  uint32_t checksum = 0;

  uint32_t Checksum() const;  // the lower half of XXH3 of the 60 bytes before `checksum`
};
static_assert(sizeof(TcpFrame) == 64 && offsetof(TcpFrame, checksum) == 60);

}  // namespace lamina
