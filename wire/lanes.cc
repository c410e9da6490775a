#include "wire/lanes.h"

#include <algorithm>
#include <cstring>

namespace lamina {
namespace {

// The first part of a decode message has the number of the message, which its second part counts.
MessageKind CountedAs(MessageKind kind) {
  return kind == MessageKind::kQueries ? MessageKind::kDecode : kind;
}

// How many signals may wait for room: kPushDone of each slot, and a few of the others.
constexpr size_t kMostSignals = kPushSlots + 4;

bool IsSignal(MessageKind kind) {
  return kind == MessageKind::kLink || kind == MessageKind::kAlive;
}

}  // namespace

std::vector<Lane> DecodeLanes(const WireShape& wire) {
  std::vector<Lane> lanes;
  for (int batch = 0; batch < wire.num_batches; ++batch) {
    const auto slot = static_cast<uint32_t>(batch);
    const uint64_t first = wire.decode_offset(batch), second = wire.second_part_offset(batch);
    if (wire.overlap) {
      lanes.push_back({MessageKind::kQueries, slot, first, second - first});
      lanes.push_back({MessageKind::kDecode, slot, second, wire.second_part_bytes()});
    } else {
      lanes.push_back({MessageKind::kDecode, slot, first, wire.decode_area_bytes()});
    }
  }
  for (int slot = 0; slot < kPushSlots; ++slot)
    lanes.push_back({MessageKind::kPush, static_cast<uint32_t>(slot), wire.push_offset(slot),
                     wire.push_area_bytes()});
  return lanes;
}

std::vector<Lane> ReplyLanes(const WireShape& wire) {
  std::vector<Lane> lanes;
  for (int batch = 0; batch < wire.num_batches; ++batch)
    lanes.push_back({MessageKind::kReply, static_cast<uint32_t>(batch), wire.reply_offset(batch),
                     wire.reply_area_bytes()});
  return lanes;
}

std::vector<Lane> ContextLanes(int num_batches, size_t context_bytes, size_t sum_bytes) {
  std::vector<Lane> lanes;
  uint64_t offset = 0;
  const auto add = [&](MessageKind kind, size_t payload_bytes, uint32_t depth) {
    const uint64_t area_bytes = WireShape::Align(sizeof(MessageHeader) + payload_bytes);
    for (uint32_t slot = 0; slot < static_cast<uint32_t>(num_batches); ++slot) {
      lanes.push_back({kind, slot, offset, area_bytes, depth});
      offset += depth * area_bytes;
    }
  };
  add(MessageKind::kContext, context_bytes, 1);
  if (sum_bytes > 0) add(MessageKind::kPartialSum, sum_bytes, 2);  // a rank may be one sum ahead
  return lanes;
}

uint64_t WindowBytes(std::span<const Lane> lanes) {
  uint64_t bytes = 0;
  for (const Lane& lane : lanes)
    bytes = std::max(bytes, lane.offset + lane.depth * lane.area_bytes);
  return bytes;
}

Result<std::unique_ptr<Lanes>> Lanes::Create(Fabric& fabric, std::unique_ptr<Endpoint> endpoint,
                                             std::span<const Lane> outgoing,
                                             std::span<const Lane> incoming,
                                             const Options& options) {
  const uint64_t own_bytes = WindowBytes(incoming), peer_bytes = WindowBytes(outgoing);
  if (endpoint->peer_window_bytes() < peer_bytes || endpoint->window().size() < own_bytes) {
    return InternalError("offers a window of " + std::to_string(endpoint->peer_window_bytes()) +
                         " bytes, expected " + std::to_string(peer_bytes) + ", and got one of " +
                         std::to_string(endpoint->window().size()) + " bytes, where " +
                         std::to_string(own_bytes) + " are needed");
  }
  std::unique_ptr<Buffer> copy;
  if (endpoint->peer_window().empty()) {
    LAMINA_ASSIGN_OR_RETURN(copy, fabric.Allocate(peer_bytes));
  }
  std::unique_ptr<Lanes> lanes(
      new Lanes(std::move(endpoint), std::move(copy), options,
                NeedsPayloadChecksum(options.payload_checksum, fabric.name())));
  size_t most_unsent = kMostSignals;
  for (const Lane& lane : outgoing) {
    lanes->outgoing(lane.kind, lane.slot).lane = lane;
    most_unsent += lane.depth;
  }
  lanes->unsent_.reserve(most_unsent);
  for (const Lane& lane : incoming) lanes->incoming(lane.kind, lane.slot).lane = lane;
  return lanes;
}

uint32_t Lanes::NextNumber(MessageKind kind, uint32_t slot) const {
  return Notification::Next(outgoing(CountedAs(kind), slot).sent);
}

std::span<std::byte> Lanes::NextArea(MessageKind kind, uint32_t slot) {
  const Lane& lane = outgoing(kind, slot).lane;
  return (copy_ == nullptr ? endpoint_->peer_window() : copy_->bytes())
      .subspan(AreaOffset(lane, NextNumber(kind, slot)), lane.area_bytes);
}

std::span<std::byte> Lanes::payload(MessageKind kind, uint32_t slot) {
  return NextArea(kind, slot).subspan(sizeof(MessageHeader));
}

Status Lanes::PostEarly(MessageKind kind, uint32_t slot, size_t bytes) {
  if (unsent()) return TryAgain();  // it must not overtake them
  const uint64_t offset = AreaOffset(outgoing(kind, slot).lane, NextNumber(kind, slot));
  const WriteOp write{payload(kind, slot).first(bytes), offset + sizeof(MessageHeader)};
  return endpoint_->Post({&write, 1}, std::nullopt, 0);
}

Status Lanes::Post(MessageKind kind, uint32_t slot, MessageHeader header, size_t payload_bytes,
                   size_t early_bytes) {
  Side& side = outgoing(kind, slot);
  const std::span<std::byte> message =
      NextArea(kind, slot).first(sizeof(MessageHeader) + payload_bytes);
  header.kind = kind;
  header.epoch = epoch_;
  header.number = NextNumber(kind, slot);
  header = Seal(header, message.subspan(sizeof(header)), payload_checksum_);
  std::memcpy(message.data(), &header, sizeof(header));
  const uint64_t offset = AreaOffset(side.lane, header.number);
  const size_t behind = sizeof(header) + early_bytes;
  const std::array<WriteOp, 2> parts = {
      WriteOp{early_bytes == 0 ? message : message.first(sizeof(header)), offset},
      WriteOp{message.subspan(behind), offset + behind}};
  LAMINA_RETURN_IF_ERROR(Send(std::span(parts).first(early_bytes == 0 ? 1 : 2),
                              Notification{kind, slot, header.number}));
  if (CountedAs(kind) == kind) side.sent = header.number;
  side.pushing = kind == MessageKind::kPush;
  return OkStatus();
}

Status Lanes::Send(std::span<const WriteOp> ops, const Notification& notification) {
  if (!unsent()) {
    Status posted = endpoint_->Post(ops, notification.Pack(), 0);
    if (posted.code() != StatusCode::kTryAgain) return posted;
  }
  if (unsent_.size() == unsent_.capacity())
    return TryAgain("more messages wait for room than there are areas");
  Unsent& last = unsent_.emplace_back(Unsent{{}, ops.size(), notification});
  std::ranges::copy(ops, last.ops.begin());
  return OkStatus();
}

Status Lanes::SendQueued() {
  size_t num_sent = 0;
  Status posted;
  for (; num_sent < unsent_.size(); ++num_sent) {
    const Unsent& next = unsent_[num_sent];
    posted = endpoint_->Post(std::span(next.ops).first(next.num_ops), next.notification.Pack(), 0);
    if (!posted.ok()) break;
  }
  unsent_.erase(unsent_.begin(), unsent_.begin() + static_cast<ptrdiff_t>(num_sent));
  return posted.code() == StatusCode::kTryAgain ? OkStatus() : posted;
}

Lanes::Note Lanes::NoteOf(const Notification& notification) {
  const auto& [kind, slot, number] = notification;
  if (IsSignal(kind)) return Note::kFresh;
  if (kind == MessageKind::kPushDone) {
    Side& side = outgoing(MessageKind::kPush, slot);
    if (side.lane.area_bytes == 0) return Note::kMeansNothing;
    if (!side.pushing || number != side.sent) return Note::kStale;
    side.pushing = false;
    return Note::kFresh;
  }
  Side& side = incoming(kind, slot);
  if (side.lane.area_bytes == 0) return Note::kMeansNothing;
  const bool full = Notification::Distance(side.taken, side.announced) == side.lane.depth;
  if (full || number != Notification::Next(side.announced)) return Note::kStale;
  side.announced = number;
  return Note::kFresh;
}

Result<ReceivedMessage> Lanes::Peek(MessageKind kind, uint32_t slot) const {
  const Side& side = incoming(kind, slot);
  const uint32_t number = Notification::Next(side.taken);
  LAMINA_ASSIGN_OR_RETURN(
      const ReceivedMessage message,
      Open(endpoint_->window().subspan(AreaOffset(side.lane, number), side.lane.area_bytes), kind,
           payload_checksum_));
  if (message.header.number == number) return message;
  return Corrupt("message " + std::to_string(message.header.number) + " stands where message " +
                 std::to_string(number) + " was announced");
}

void Lanes::Drop(MessageKind kind, uint32_t slot) {
  Side& side = incoming(kind, slot);
  const uint32_t number = Notification::Next(side.taken);
  // If it was not announced, its notification is stale when it comes.
  if (side.announced == side.taken) side.announced = number;
  side.taken = number;
}

Result<ReceivedMessage> Lanes::Take(MessageKind kind, uint32_t slot) {
  Result<ReceivedMessage> message = Peek(kind, slot);
  Drop(kind, slot);
  return message;
}

}  // namespace lamina
