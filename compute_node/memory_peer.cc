#include "compute_node/memory_peer.h"

#include <algorithm>
#include <cstring>
#include <tuple>

#include "base/host_memory.h"
#include "base/log.h"

namespace lamina {
namespace {

// How long to sleep between polls for a memory node's answer to kLink. The answer wakes this node,
// so the interval need not be short.
constexpr auto kLinkInterval = milliseconds(10);

std::string WhoPolls(const Status& linked, const DeviceLink* link) {
  if (!linked.ok()) return "hosts poll: " + linked.message();
  return link->by_posts() ? "devices poll, hosts post" : "devices poll";
}

}  // namespace

Result<std::unique_ptr<MemoryPeer>> MemoryPeer::Connect(const MemoryPeerAddress& address,
                                                        const WireShape& wire,
                                                        const DataPathOptions& options,
                                                        Result<std::unique_ptr<DeviceLink>> link,
                                                        Ladder& ladder, Deadline deadline) {
  LAMINA_RETURN_IF_ERROR(CheckHostMemory(
      static_cast<int64_t>(wire.memory_window_bytes() + wire.compute_window_bytes()),
      "messages of " + std::to_string(wire.max_rows) + " sequences in " +
          std::to_string(wire.num_batches) + " batches"));
  std::unique_ptr<MemoryPeer> peer(new MemoryPeer(address, wire, options.hello.epoch));
  EndpointOptions offered{wire.compute_window_bytes(), options.hello.Encode()};
  const bool asked_for = options.polling == "device";
  if (link.ok()) {
    peer->link_ = std::move(*link);
    offered.device_window = peer->link_->window();
    if (!asked_for) offered.device_window.data = nullptr;
  }
  Result<Path> connected = ladder.Connect(address.offers, offered, deadline);
  if (!connected.ok())
    return connected.status().WithContext("data path to memory node " + address.name);
  peer->endpoint_ = std::move(connected->endpoint);
  if (peer->endpoint_->peer_window().empty()) {
    LAMINA_ASSIGN_OR_RETURN(peer->buffer_, connected->fabric->Allocate(wire.memory_window_bytes()));
  }
  peer->path_ = {address.node, std::string(connected->fabric->name()),
                 RefusalText(connected->refused), peer->endpoint_->through()};
  peer->payload_checksum_ = NeedsPayloadChecksum(options.payload_checksum, peer->path_.fabric);
  if (options.polling != "host") {
    const Status linked =
        peer->link_ == nullptr ? link.status() : peer->Link(asked_for, ladder, deadline);
    // A link that is not used is freed, unless the endpoint can post to device memory: then the NIC
    // has that memory registered.
    if (!peer->is_linked_ && !peer->endpoint_->posts_to_device()) peer->link_.reset();
    if (peer->lost_) return PeerLost("memory node " + address.name + ": " + peer->why_);
    peer->path_.through +=
        (peer->path_.through.empty() ? "" : ", ") + WhoPolls(linked, peer->link());
  }
  LAMINA_LOG_INFO("data path to memory node {}: {}{}{}", address.name, peer->path_.fabric,
                  peer->path_.through.empty() ? "" : " through " + peer->path_.through,
                  peer->path_.refused.empty() ? "" : "; not used: " + peer->path_.refused);
  if (peer->endpoint_->peer_window_bytes() < wire.memory_window_bytes()) {
    return InternalError("memory node " + address.name + " offers a window of " +
                         std::to_string(peer->endpoint_->peer_window_bytes()) +
                         " bytes, expected " + std::to_string(wire.memory_window_bytes()));
  }
  return peer;
}

// Either both ends reach the other's device window, or neither window is used. So the memory node
// is told, and asked, also if this end could not join.
Status MemoryPeer::Link(bool asked_for, Ladder& ladder, Deadline deadline) {
  const DeviceWindow theirs = endpoint_->peer_device_window();
  if (theirs.descriptor < 0 && !endpoint_->posts_to_device()) {
    return Unimplemented(
        "the memory node's device cannot be reached by this one" +
        std::string(asked_for ? "" : ", or by NICs, which takes 'polling: device'"));
  }
  const Status joined = link_->Join(theirs, /*in_turns=*/asked_for);
  const Notification said{MessageKind::kLink, joined.ok() ? 1u : 0u, 1};
  LAMINA_RETURN_IF_ERROR(endpoint_->Post({}, said.Pack(), 0));
  while (!link_answer_ && !lost_ && !deadline.Passed()) {
    if (!Poll()) ladder.Sleep({}, Deadline::After(kLinkInterval));
  }
  if (!link_answer_ && !lost_) Lose("did not say whether its device takes part");
  LAMINA_RETURN_IF_ERROR(joined);
  if (!link_answer_.value_or(false))
    return Unimplemented("the memory node's device cannot reach this one");
  is_linked_ = true;
  return OkStatus();
}

void MemoryPeer::Lose(const std::string& why) {
  if (lost_) return;
  if (is_linked_) link_->GiveUp();
  LAMINA_LOG_ERROR("memory node {} is lost: {}", name(), why);
  lost_ = true;
  why_ = why;
}

std::span<std::byte> MemoryPeer::query_payload(int batch) {
  return outgoing().subspan(wire_.decode_offset(batch) + sizeof(MessageHeader),
                            static_cast<size_t>(wire_.max_rows) * wire_.q_row_bytes());
}

std::span<std::byte> MemoryPeer::decode_payload(int batch) {
  const uint64_t bytes = wire_.overlap ? wire_.second_part_bytes() : wire_.decode_area_bytes();
  return outgoing().subspan(decode_offset(batch), bytes).subspan(sizeof(MessageHeader));
}

std::span<std::byte> MemoryPeer::push_payload(int slot) {
  return outgoing()
      .subspan(wire_.push_offset(slot), wire_.push_area_bytes())
      .subspan(sizeof(MessageHeader));
}

Status MemoryPeer::Post(const Notification& announced, MessageHeader header,
                        std::span<std::byte> payload, size_t payload_bytes, uint64_t offset) {
  header.kind = announced.kind;
  header.epoch = epoch_;
  header.number = announced.number;
  header = Seal(header, payload.first(payload_bytes), payload_checksum_);
  const std::span<std::byte> message = outgoing().subspan(offset, sizeof(header) + payload_bytes);
  std::memcpy(message.data(), &header, sizeof(header));
  const WriteOp write{message, offset};
  return endpoint_->Post({&write, 1}, announced.Pack(), 0);
}

Status MemoryPeer::PostQueries(int batch, MessageHeader header, size_t payload_bytes) {
  // Both parts of a decode message have the same number. PostDecode counts it.
  const uint32_t number = Notification::Next(decodes_[static_cast<size_t>(batch)].sent);
  const Notification announced{MessageKind::kQueries, static_cast<uint32_t>(batch), number};
  return Post(announced, header, query_payload(batch), payload_bytes, wire_.decode_offset(batch));
}

Status MemoryPeer::PostDecode(int batch, MessageHeader header, size_t payload_bytes) {
  DecodeArea& area = decodes_[static_cast<size_t>(batch)];
  const Notification announced{MessageKind::kDecode, static_cast<uint32_t>(batch),
                               Notification::Next(area.sent)};
  LAMINA_RETURN_IF_ERROR(
      Post(announced, header, decode_payload(batch), payload_bytes, decode_offset(batch)));
  area.sent = announced.number;
  area.asked = header.reply_to == 0;
  return OkStatus();
}

Result<ReceivedMessage> MemoryPeer::TakeReply(int batch, StepId step, int layer) {
  DecodeArea& area = decodes_[static_cast<size_t>(batch)];
  area.asked = area.replied = false;
  LAMINA_ASSIGN_OR_RETURN(
      const ReceivedMessage message,
      Open(endpoint_->window().subspan(wire_.reply_offset(batch), wire_.reply_area_bytes()),
           MessageKind::kReply, payload_checksum_));
  const MessageHeader& header = message.header;
  if (std::tuple(header.epoch, header.step, header.layer, header.number) !=
      std::tuple(epoch_, step.value, static_cast<uint32_t>(layer), area.received)) {
    return Corrupt("answered step " + std::to_string(header.step) + " layer " +
                   std::to_string(header.layer) + " when step " + std::to_string(step.value) +
                   " layer " + std::to_string(layer) + " was asked");
  }
  return message;
}

std::optional<int> MemoryPeer::FreePushSlot() const {
  for (int slot = 0; slot < kPushSlots; ++slot) {
    if (!pushes_[static_cast<size_t>(slot)].busy) return slot;
  }
  return std::nullopt;
}

Status MemoryPeer::PostPush(int slot, MessageHeader header, size_t payload_bytes) {
  PushArea& area = pushes_[static_cast<size_t>(slot)];
  const Notification announced{MessageKind::kPush, static_cast<uint32_t>(slot),
                               Notification::Next(area.number)};
  LAMINA_RETURN_IF_ERROR(
      Post(announced, header, push_payload(slot), payload_bytes, wire_.push_offset(slot)));
  area = {announced.number, true};
  return OkStatus();
}

bool MemoryPeer::Poll() {
  if (lost_) return false;
  std::array<Event, 16> events;
  const size_t count = endpoint_->Poll(events);
  for (size_t i = 0; i < count && !lost_; ++i) {
    if (events[i].kind == Event::Kind::kPeerLost) Lose(endpoint_->last_error());
    if (events[i].kind == Event::Kind::kNotification) TakeNotification(events[i].value);
  }
  if (!is_linked_ || lost_) return count > 0;
  const Result<bool> left = link_->Carry(*endpoint_);
  if (!left.ok()) Lose(left.status().message());
  return count > 0 || !left.ok() || *left;
}

void MemoryPeer::TakeNotification(uint32_t value) {
  const Notification notification = Notification::Unpack(value).value_or(Notification{});
  bool fresh = false;  // false: the notification came twice
  if (notification.kind == MessageKind::kReply) {
    DecodeArea& area = decodes_[notification.slot];
    // It does not matter whether this node has asked: another compute node may have, on its behalf.
    fresh = !area.replied && notification.number == Notification::Next(area.received);
    area.replied |= fresh;
    if (fresh) area.received = notification.number;
  } else if (notification.kind == MessageKind::kPushDone) {
    PushArea& area = pushes_[notification.slot];
    fresh = area.busy && notification.number == area.number;
    if (fresh) area.busy = false;
  } else if (notification.kind == MessageKind::kLink) {
    fresh = !link_answer_;
    if (fresh) link_answer_ = notification.slot != 0;
  } else {
    return Lose("sent a notification that means nothing: " + std::to_string(value));
  }
  if (!fresh) ++num_stale_;
}

bool MemoryPeer::pushing() const {
  return std::any_of(pushes_.begin(), pushes_.end(),
                     [](const PushArea& area) { return area.busy; });
}

int64_t MemoryPeer::TakeStale() { return std::exchange(num_stale_, 0); }

}  // namespace lamina
