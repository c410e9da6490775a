// Feeds foreign bytes to what reads messages of the data path: headers and their checksums, failed
// rows, times at the end of replies, hellos and notifications. What is accepted must lie inside the
// bytes, keep to its limits, and be the same when it is written and read again.
#include <fuzzer/FuzzedDataProvider.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "wire/step_times.h"
#include "wire/wire_format.h"

namespace {

using lamina::MessageHeader;
using lamina::MessageKind;

void Require(bool holds) {
  if (!holds) std::abort();
}

bool Equal(std::span<const std::byte> a, std::span<const std::byte> b) {
  return std::ranges::equal(a, b);
}

// An area that begins with foreign bytes. With `seal` its header is given the checksums of its
// contents, which a fuzzer does not find, so that what is behind them is read too.
void OpenForeign(FuzzedDataProvider& data) {
  const auto kind = static_cast<MessageKind>(data.ConsumeIntegralInRange(0, 12));
  const bool wants_checksum = data.ConsumeBool();
  const bool seal = data.ConsumeBool();
  std::vector<std::byte> area = data.ConsumeRemainingBytes<std::byte>();
  if (seal && area.size() >= sizeof(MessageHeader)) {
    MessageHeader header;
    std::memcpy(&header, area.data(), sizeof(header));
    header.magic = lamina::kWireMagic;
    header.kind = kind;
    const size_t payload_bytes = header.payload_bytes % (area.size() - sizeof(header) + 1);
    header = lamina::Seal(header,
                          std::span<const std::byte>(area).subspan(sizeof(header), payload_bytes),
                          wants_checksum);
    std::memcpy(area.data(), &header, sizeof(header));
  }
  const std::vector<std::byte> before = area;
  const auto message = lamina::Open(area, kind, wants_checksum);
  Require(area == before);
  if (!message.ok()) {
    Require(message.status().code() == lamina::StatusCode::kCorrupt);
    return;
  }
  Require(message->header.kind == kind);
  Require(message->payload.data() == area.data() + sizeof(MessageHeader));
  Require(message->payload.size() == message->header.payload_bytes);
  Require(message->payload.size() <= area.size() - sizeof(MessageHeader));
  const bool has_checksum = (message->header.flags & lamina::kHasPayloadChecksum) != 0;
  Require(has_checksum || !wants_checksum);
  if (has_checksum && !message->payload.empty()) {
    // A flipped bit of the payload is noticed.
    const size_t at = sizeof(MessageHeader) + message->header.step % message->payload.size();
    area[at] ^= std::byte{1};
    Require(!lamina::Open(area, kind, wants_checksum).ok());
  }
}

void ReadFailedRows(FuzzedDataProvider& data) {
  const size_t num_rows = data.ConsumeIntegralInRange(0, 4096);
  const std::vector<std::byte> bytes = data.ConsumeRemainingBytes<std::byte>();
  const auto failed = lamina::FailedRows::Read(bytes, num_rows);
  if (!failed.ok()) return;
  Require(!failed->why.ok());
  Require(failed->rows.size() <= num_rows);
  for (const uint32_t row : failed->rows) Require(row < num_rows && failed->Has(row));
  std::vector<std::byte> written(lamina::FailedRows::MaxBytes(static_cast<int>(num_rows)));
  written.resize(failed->Write(written));
  Require(written.size() <= bytes.size());
  Require(Equal(written, std::span(bytes).first(written.size())));
}

void CutTimes(FuzzedDataProvider& data) {
  const std::vector<std::byte> bytes = data.ConsumeRemainingBytes<std::byte>();
  std::span<const std::byte> payload = bytes;
  const auto times = lamina::CutReplyTimes(payload);
  Require(payload.data() == bytes.data());
  if (!times) {
    Require(payload.size() == bytes.size() ||
            payload.size() + sizeof(lamina::ReplyTimes) == bytes.size());
    return;
  }
  Require(payload.size() + sizeof(lamina::ReplyTimes) == bytes.size());
  Require(times->noticed_ns <= times->started_ns && times->started_ns <= times->done_ns);
  Require(times->bubble_ns >= 0);
}

void DecodeHello(FuzzedDataProvider& data) {
  const std::string bytes = data.ConsumeRemainingBytesAsString();
  const auto hello = lamina::DataHello::Decode(bytes);
  if (!hello) return;
  Require(hello->session_token.empty() ||
          hello->session_token.size() == lamina::kSessionTokenBytes);
  Require(hello->Encode() == bytes);
}

void UnpackNotification(FuzzedDataProvider& data) {
  const auto value = data.ConsumeIntegral<uint32_t>();
  const auto notification = lamina::Notification::Unpack(value);
  if (!notification) return;
  Require(notification->Pack() == value);
  const bool pushes =
      notification->kind == MessageKind::kPush || notification->kind == MessageKind::kPushDone;
  Require(notification->slot <
          static_cast<uint32_t>(pushes ? lamina::kPushSlots : lamina::kMaxBatches));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  FuzzedDataProvider data(bytes, size);
  switch (data.ConsumeIntegralInRange(0, 4)) {
    case 0: OpenForeign(data); break;
    case 1: ReadFailedRows(data); break;
    case 2: CutTimes(data); break;
    case 3: DecodeHello(data); break;
    default: UnpackNotification(data);
  }
  return 0;
}
