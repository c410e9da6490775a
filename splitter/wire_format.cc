#include "splitter/wire_format.h"

#include <xxhash.h>

#include <cstring>

namespace lamina {
namespace {

constexpr size_t kHeaderChecksumOffset = offsetof(MessageHeader, header_checksum);

uint64_t HeaderChecksum(const MessageHeader& header) { return XXH3_64bits(&header, kHeaderChecksumOffset); }

}  // namespace

std::optional<Notification> Notification::Unpack(uint32_t value) {
  const Notification notification{static_cast<MessageKind>(value >> 28), value >> 24 & 15, value & 0xffffff};
  const bool pushes = notification.kind == MessageKind::kPush || notification.kind == MessageKind::kPushDone;
  const bool known = notification.kind >= MessageKind::kDecode && notification.kind <= MessageKind::kLink;
  if (!known || notification.slot >= static_cast<uint32_t>(pushes ? kPushSlots : kMaxBatches)) return std::nullopt;
  return notification;
}

bool NeedsPayloadChecksum(std::string_view setting, std::string_view fabric) {
  return setting == "on" || (setting == "auto" && fabric == "tcp");
}

MessageHeader Seal(MessageHeader header, std::span<const std::byte> payload, bool payload_checksum) {
  header.payload_bytes = static_cast<uint32_t>(payload.size());
  if (payload_checksum) header.flags = static_cast<uint16_t>(header.flags | kHasPayloadChecksum);
  header.payload_checksum = payload_checksum ? XXH3_64bits(payload.data(), payload.size()) : 0;
  header.header_checksum = HeaderChecksum(header);
  return header;
}

Result<ReceivedMessage> Open(std::span<const std::byte> area, MessageKind kind, bool payload_checksum) {
  if (area.size() < sizeof(MessageHeader)) return Corrupt("message area of " + std::to_string(area.size()) + " bytes holds no header");
  ReceivedMessage message;
  std::memcpy(&message.header, area.data(), sizeof(MessageHeader));
  const MessageHeader& header = message.header;
  if (header.magic != kWireMagic)
    return Corrupt("message magic " + std::to_string(header.magic) + ", expected " + std::to_string(kWireMagic));
  if (header.header_checksum != HeaderChecksum(header)) return Corrupt("message header fails its checksum");
  if (header.kind != kind) {
    return Corrupt("message kind " + std::to_string(static_cast<int>(header.kind)) + ", expected " +
                   std::to_string(static_cast<int>(kind)));
  }
  if (header.payload_bytes > area.size() - sizeof(MessageHeader)) return Corrupt("message payload is longer than its area");
  message.payload = area.subspan(sizeof(MessageHeader), header.payload_bytes);
  const bool has_checksum = (header.flags & kHasPayloadChecksum) != 0;
  if (payload_checksum && !has_checksum) return Corrupt("message payload has no checksum; the nodes are configured differently");
  if (has_checksum && XXH3_64bits(message.payload.data(), message.payload.size()) != header.payload_checksum) {
    return Corrupt("message payload of step " + std::to_string(header.step) + " layer " + std::to_string(header.layer) +
                   " fails its checksum");
  }
  return message;
}

std::string DataHello::Encode() const {
  std::string bytes(12, '\0');
  std::memcpy(bytes.data(), &epoch, 8);
  std::memcpy(bytes.data() + 8, &node_id, 4);
  return bytes + session_token;
}

std::optional<DataHello> DataHello::Decode(const std::string& bytes) {
  if (bytes.size() != 12 && bytes.size() != 12 + kSessionTokenBytes) return std::nullopt;
  DataHello hello;
  std::memcpy(&hello.epoch, bytes.data(), 8);
  std::memcpy(&hello.node_id, bytes.data() + 8, 4);
  hello.session_token = bytes.substr(12);
  return hello;
}

}  // namespace lamina
