// The frames of the control channel as bytes: the encoder of a header, and a decoder for bytes from
// a peer that is not trusted. control_channel.h has the grammar.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "transport/control_channel.h"

namespace lamina {

inline constexpr uint32_t kControlMagic = 0x414e4d4c;  // "LMNA" in memory
inline constexpr size_t kControlHeaderBytes = 12;

// Types of the channel's own frames.
// The last frame of the greeting. Payload: ControlOptions::hello.
inline constexpr uint16_t kControlHello = 1;
// Sent by an end that has sent nothing else for ControlOptions::heartbeat. No payload.
inline constexpr uint16_t kControlHeartbeat = 2;
// The last frame of an end that closes the connection. No payload.
inline constexpr uint16_t kControlGoodbye = 3;
// The other frames of the greeting. Payloads: control_handshake.h.
inline constexpr uint16_t kControlChallenge = 4;
inline constexpr uint16_t kControlProof = 5;
inline constexpr uint16_t kControlRefused = 6;

// The header of a frame that `payload_bytes` bytes of payload follow.
std::array<char, kControlHeaderBytes> EncodeControlHeader(uint16_t type, uint32_t payload_bytes);

// Cuts a stream of bytes, which may come in pieces of any size, into frames. Thread: owner.
//   decoder.Append(bytes);
//   while ((frame = decoder.Next()).ok()) ...
class ControlFrameDecoder {
 public:
  explicit ControlFrameDecoder(size_t max_payload_bytes = kMaxFrameBytes)
      : max_payload_bytes_(max_payload_bytes) {}

  // Changes the largest payload that is accepted, for all frames that Next has not returned yet.
  void Limit(size_t max_payload_bytes) { max_payload_bytes_ = max_payload_bytes; }

  void Append(std::string_view bytes);

  // The next frame. kTryAgain if not all of it has come. kCorrupt, then and ever after, if its
  // magic or version is another or its payload is too large; the message says what came and what
  // was expected.
  Result<ControlFrame> Next();

  // How many more bytes the next frame needs at least: a reader that asks for no more bytes never
  // reads into the frame after it. At least 1 after Next returned kTryAgain.
  size_t missing_bytes() const;

  // How many bytes it holds that no frame has been made of.
  size_t available_bytes() const { return bytes_.size() - begin_; }

 private:
  struct Header {
    uint32_t magic;
    uint16_t version;
    uint16_t type;
    uint32_t payload_bytes;
  };

  Header PeekHeader() const;  // REQUIRES: available_bytes() >= kControlHeaderBytes
  Status Check(const Header& header) const;

  size_t max_payload_bytes_;
  std::string bytes_;  // those before begin_ belong to frames that Next has returned
  size_t begin_ = 0;
  Status broken_;  // what Next returns from the first malformed frame on
};

}  // namespace lamina
