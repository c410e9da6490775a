#include "wire/wire_format.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace lamina {
namespace {

constexpr size_t kHeaderChecksumOffset = offsetof(MessageHeader, header_checksum);

uint64_t HeaderChecksum(const MessageHeader& header) {
  return XXH3_64bits(&header, kHeaderChecksumOffset);
}

}  // namespace

std::optional<Notification> Notification::Unpack(uint32_t value) {
  const Notification notification{static_cast<MessageKind>(value >> 28), value >> 24 & 15,
                                  value & 0xffffff};
  // The 32 bits come from a peer, and `slot` is used as an index.
  const bool pushes =
      notification.kind == MessageKind::kPush || notification.kind == MessageKind::kPushDone;
  const bool known =
      notification.kind >= MessageKind::kDecode && notification.kind <= MessageKind::kAlive;
  if (!known || notification.slot >= static_cast<uint32_t>(pushes ? kPushSlots : kMaxBatches))
    return std::nullopt;
  return notification;
}

void FailedRows::Add(size_t row, const Status& status) {
  if (rows.empty()) why = status;
  rows.push_back(static_cast<uint32_t>(row));
}

bool FailedRows::Has(size_t row) const {
  return std::ranges::find(rows, static_cast<uint32_t>(row)) != rows.end();
}

size_t FailedRows::Write(std::span<std::byte> into) const {
  const std::array<uint32_t, 2> head = {static_cast<uint32_t>(why.code()),
                                        static_cast<uint32_t>(rows.size())};
  const size_t rows_bytes = rows.size() * sizeof(uint32_t),
               text_bytes = std::min<size_t>(why.message().size(), kMaxErrorBytes);
  std::memcpy(into.data(), head.data(), sizeof(head));
  // Of nothing, data() may be null, which memcpy does not take.
  if (rows_bytes > 0) std::memcpy(into.data() + sizeof(head), rows.data(), rows_bytes);
  std::memcpy(into.data() + sizeof(head) + rows_bytes, why.message().data(), text_bytes);
  return sizeof(head) + rows_bytes + text_bytes;
}

Result<FailedRows> FailedRows::Read(std::span<const std::byte> bytes, size_t num_rows) {
  std::array<uint32_t, 2> head{};
  if (bytes.size() < sizeof(head))
    return Corrupt("failed rows in " + std::to_string(bytes.size()) + " bytes");
  std::memcpy(head.data(), bytes.data(), sizeof(head));
  const auto& [status, count] = head;
  const std::span<const std::byte> behind = bytes.subspan(sizeof(head));
  // `count` comes from a peer: it is checked before it sizes a vector.
  if (status == 0 || status > static_cast<uint32_t>(StatusCode::kInternal) || count > num_rows ||
      behind.size() / sizeof(uint32_t) < count)
    return Corrupt(std::to_string(count) + " failed rows of " + std::to_string(num_rows) + " in " +
                   std::to_string(bytes.size()) + " bytes");
  FailedRows failed;
  failed.rows.resize(count);
  if (count > 0) std::memcpy(failed.rows.data(), behind.data(), count * sizeof(uint32_t));
  for (const uint32_t row : failed.rows) {
    if (row >= num_rows)
      return Corrupt("failed row " + std::to_string(row) + " of " + std::to_string(num_rows));
  }
  const std::span<const std::byte> text = behind.subspan(count * sizeof(uint32_t));
  failed.why = Status(static_cast<StatusCode>(status),
                      std::string(reinterpret_cast<const char*>(text.data()), text.size()));
  return failed;
}

bool NeedsPayloadChecksum(Switch setting, std::string_view fabric) {
  return setting == Switch::kOn || (setting == Switch::kAuto && fabric == "tcp");
}

MessageHeader Seal(MessageHeader header, std::span<const std::byte> payload,
                   bool payload_checksum) {
  header.payload_bytes = static_cast<uint32_t>(payload.size());
  if (payload_checksum) header.flags = static_cast<uint16_t>(header.flags | kHasPayloadChecksum);
  header.payload_checksum = payload_checksum ? XXH3_64bits(payload.data(), payload.size()) : 0;
  header.header_checksum = HeaderChecksum(header);
  return header;
}

Result<ReceivedMessage> Open(std::span<const std::byte> area, MessageKind kind,
                             bool payload_checksum) {
  if (area.size() < sizeof(MessageHeader))
    return Corrupt("message area of " + std::to_string(area.size()) + " bytes holds no header");
  ReceivedMessage message;
  std::memcpy(&message.header, area.data(), sizeof(MessageHeader));
  const MessageHeader& header = message.header;
  // Nothing else of the header is believed before its checksum has been found right.
  if (header.magic != kWireMagic)
    return Corrupt("message magic " + std::to_string(header.magic) + ", expected " +
                   std::to_string(kWireMagic));
  if (header.header_checksum != HeaderChecksum(header))
    return Corrupt("message header fails its checksum");
  if (header.kind != kind) {
    return Corrupt("message kind " + std::to_string(static_cast<int>(header.kind)) + ", expected " +
                   std::to_string(static_cast<int>(kind)));
  }
  if (header.payload_bytes > area.size() - sizeof(MessageHeader))
    return Corrupt("message payload is longer than its area");
  message.payload = area.subspan(sizeof(MessageHeader), header.payload_bytes);
  // A checksum that is there is checked even if none was asked for.
  const bool has_checksum = (header.flags & kHasPayloadChecksum) != 0;
  if (payload_checksum && !has_checksum)
    return Corrupt("message payload has no checksum; the nodes are configured differently");
  if (has_checksum &&
      XXH3_64bits(message.payload.data(), message.payload.size()) != header.payload_checksum) {
    return Corrupt("message payload of step " + std::to_string(header.step) + " layer " +
                   std::to_string(header.layer) + " fails its checksum");
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
  // Epoch and node id, with or without a token.
  if (bytes.size() != 12 && bytes.size() != 12 + kSessionTokenBytes) return std::nullopt;
  DataHello hello;
  std::memcpy(&hello.epoch, bytes.data(), 8);
  std::memcpy(&hello.node_id, bytes.data() + 8, 4);
  hello.session_token = bytes.substr(12);
  return hello;
}

}  // namespace lamina
