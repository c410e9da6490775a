#include "transport/control_frame.h"

#include <bit>
#include <cstdio>
#include <cstring>

namespace lamina {
namespace {

static_assert(std::endian::native == std::endian::little,
              "frames are copied as they lie in memory");

// A larger buffer, which one large frame needed, is freed once it is empty.
constexpr size_t kKeptBytes = size_t{1} << 20;

std::string Hex(uint32_t value) {
  char text[16];
  std::snprintf(text, sizeof(text), "0x%08x", value);
  return text;
}

}  // namespace

std::array<char, kControlHeaderBytes> EncodeControlHeader(uint16_t type, uint32_t payload_bytes) {
  std::array<char, kControlHeaderBytes> header;
  std::memcpy(header.data(), &kControlMagic, 4);
  std::memcpy(header.data() + 4, &kControlVersion, 2);
  std::memcpy(header.data() + 6, &type, 2);
  std::memcpy(header.data() + 8, &payload_bytes, 4);
  return header;
}

void ControlFrameDecoder::Append(std::string_view bytes) {
  // Moves what is left to the front once it is no more than what was consumed. So each byte is
  // moved for a byte that was consumed, and appending takes linear time in all.
  if (begin_ > 0 && begin_ >= available_bytes()) {
    bytes_.erase(0, begin_);
    begin_ = 0;
  }
  bytes_.append(bytes);
}

ControlFrameDecoder::Header ControlFrameDecoder::PeekHeader() const {
  Header header;
  const char* at = bytes_.data() + begin_;
  std::memcpy(&header.magic, at, 4);
  std::memcpy(&header.version, at + 4, 2);
  std::memcpy(&header.type, at + 6, 2);
  std::memcpy(&header.payload_bytes, at + 8, 4);
  return header;
}

Status ControlFrameDecoder::Check(const Header& header) const {
  if (header.magic != kControlMagic) {
    return Corrupt("frame begins with " + Hex(header.magic) + ", expected " + Hex(kControlMagic) +
                   " (\"LMNA\"): not a lamina control channel");
  }
  if (header.version != kControlVersion) {
    return Corrupt("peer speaks version " + std::to_string(header.version) +
                   " of the control channel, this end version " + std::to_string(kControlVersion) +
                   ": run the same release on all nodes");
  }
  if (header.payload_bytes > max_payload_bytes_) {
    return Corrupt("frame of type " + std::to_string(header.type) + " with " +
                   std::to_string(header.payload_bytes) + " bytes; at most " +
                   std::to_string(max_payload_bytes_));
  }
  return OkStatus();
}

Result<ControlFrame> ControlFrameDecoder::Next() {
  if (!broken_.ok()) return broken_;
  if (available_bytes() < kControlHeaderBytes) return TryAgain();
  const Header header = PeekHeader();
  broken_ = Check(header);
  if (!broken_.ok()) return broken_;
  if (available_bytes() - kControlHeaderBytes < header.payload_bytes) return TryAgain();
  ControlFrame frame{header.type,
                     bytes_.substr(begin_ + kControlHeaderBytes, header.payload_bytes)};
  begin_ += kControlHeaderBytes + header.payload_bytes;
  if (begin_ == bytes_.size() && bytes_.capacity() > kKeptBytes) {
    // clear() would keep the memory.
    std::string().swap(bytes_);
    begin_ = 0;
  }
  return frame;
}

size_t ControlFrameDecoder::missing_bytes() const {
  const size_t available = available_bytes();
  if (available < kControlHeaderBytes) return kControlHeaderBytes - available;
  const size_t whole = kControlHeaderBytes + PeekHeader().payload_bytes;
  return whole > available ? whole - available : 0;
}

}  // namespace lamina
