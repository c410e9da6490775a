// The bytes of the control channel: how frames are written, and a decoder that believes nothing.
// Grammar: control_channel.h.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "transport/control_channel.h"

namespace lamina {

inline constexpr uint32_t kControlMagic = 0x414e4d4c;  // "LMNA"
inline constexpr size_t kControlHeaderBytes = 12;

// Frames of the channel itself.
// Payload: ControlOptions::hello; the last frame of the greeting.
inline constexpr uint16_t kControlHello = 1;
inline constexpr uint16_t kControlHeartbeat = 2;  // no payload
// No payload; the last frame of an end that closes.
inline constexpr uint16_t kControlGoodbye = 3;
inline constexpr uint16_t kControlChallenge = 4;  // these three: control_handshake.h
inline constexpr uint16_t kControlProof = 5;
inline constexpr uint16_t kControlRefused = 6;

// The header of a frame with `payload_bytes` bytes behind it.
std::array<char, kControlHeaderBytes> EncodeControlHeader(uint16_t type, uint32_t payload_bytes);

// Cuts a stream of bytes into frames, in whatever pieces it comes. Thread: owner.
class ControlFrameDecoder {
 public:
  explicit ControlFrameDecoder(size_t max_payload_bytes = kMaxFrameBytes)
      : max_payload_bytes_(max_payload_bytes) {}

  // Holds for frames that Next has not returned.
  void Limit(size_t max_payload_bytes) { max_payload_bytes_ = max_payload_bytes; }

  void Append(std::string_view bytes);

  // The next frame; kTryAgain if it is not there as a whole; kCorrupt, now and ever after, saying
  // what came and what was expected.
  Result<ControlFrame> Next();

  // How many more bytes Next certainly needs: a reader that asks for no more never reads into the
  // frame after it. At least 1 after Next returned kTryAgain.
  size_t missing_bytes() const;

 private:
  struct Header {
    uint32_t magic;
    uint16_t version;
    uint16_t type;
    uint32_t payload_bytes;
  };

  size_t available_bytes() const { return bytes_.size() - begin_; }
  Header PeekHeader() const;  // REQUIRES: available_bytes() >= kControlHeaderBytes
  Status Check(const Header& header) const;

  size_t max_payload_bytes_;
  std::string bytes_;  // from begin_ on not returned yet
  size_t begin_ = 0;
  Status broken_;
};

}  // namespace lamina
