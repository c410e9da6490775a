#include "compute_node/memory_peer.h"

#include <algorithm>
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

Result<std::unique_ptr<MemoryPeer>> MemoryPeer::Connect(const MemoryNodeAddress& address,
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
  const bool asked_for = options.polling == PollingMode::kDevice;
  if (link.ok()) {
    peer->link_ = std::move(*link);
    offered.device_window = peer->link_->window();
    if (!asked_for) offered.device_window.data = nullptr;
  }
  Result<Path> connected = ladder.Connect(address.offers, offered, deadline);
  if (!connected.ok())
    return connected.status().WithContext("data path to memory node " + address.name);
  peer->path_ = {address.node, std::string(connected->fabric->name()),
                 RefusalText(connected->refused), connected->endpoint->through()};
  Result<std::unique_ptr<Lanes>> lanes =
      Lanes::Create(*connected->fabric, std::move(connected->endpoint), DecodeLanes(wire),
                    ReplyLanes(wire), {options.hello.epoch, options.payload_checksum});
  if (!lanes.ok()) return lanes.status().WithContext("memory node " + address.name);
  peer->lanes_ = std::move(*lanes);
  if (options.polling != PollingMode::kHost) {
    const Status linked =
        peer->link_ == nullptr ? link.status() : peer->Link(asked_for, ladder, deadline);
    // A link that is not used is freed, unless the endpoint can post to device memory: then the NIC
    // has that memory registered.
    if (!peer->is_linked_ && !peer->lanes_->endpoint().posts_to_device()) peer->link_.reset();
    if (peer->lost_) return PeerLost("memory node " + address.name + ": " + peer->why_);
    peer->path_.through +=
        (peer->path_.through.empty() ? "" : ", ") + WhoPolls(linked, peer->link());
  }
  LAMINA_LOG_INFO("data path to memory node {}: {}{}{}", address.name, peer->path_.fabric,
                  peer->path_.through.empty() ? "" : " through " + peer->path_.through,
                  peer->path_.refused.empty() ? "" : "; not used: " + peer->path_.refused);
  return peer;
}

// Either both ends reach the other's device window, or neither window is used. So the memory node
// is told, and asked, also if this end could not join.
Status MemoryPeer::Link(bool asked_for, Ladder& ladder, Deadline deadline) {
  const Endpoint& endpoint = lanes_->endpoint();
  const DeviceWindow theirs = endpoint.peer_device_window();
  if (theirs.descriptor < 0 && !endpoint.posts_to_device()) {
    return Unimplemented(
        "the memory node's device cannot be reached by this one" +
        std::string(asked_for ? "" : ", or by NICs, which takes 'polling: device'"));
  }
  const Status joined = link_->Join(theirs, /*in_turns=*/asked_for);
  LAMINA_RETURN_IF_ERROR(lanes_->Signal({MessageKind::kLink, joined.ok() ? 1u : 0u, 1}));
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

Status MemoryPeer::Post(MessageKind kind, int slot, const MessageHeader& header,
                        size_t payload_bytes) {
  LAMINA_RETURN_IF_ERROR(lanes_->Post(kind, static_cast<uint32_t>(slot), header, payload_bytes));
  if (kind == MessageKind::kDecode) asked_[static_cast<size_t>(slot)] = header.reply_to == 0;
  return OkStatus();
}

Result<ReceivedMessage> MemoryPeer::TakeReply(int batch, StepId step, int layer) {
  Forget(batch);
  LAMINA_ASSIGN_OR_RETURN(const ReceivedMessage message,
                          lanes_->Take(MessageKind::kReply, static_cast<uint32_t>(batch)));
  const MessageHeader& header = message.header;
  if (std::tuple(header.epoch, header.step, header.layer) !=
      std::tuple(epoch_, step.value, static_cast<uint32_t>(layer))) {
    return Corrupt("answered step " + std::to_string(header.step) + " layer " +
                   std::to_string(header.layer) + " when step " + std::to_string(step.value) +
                   " layer " + std::to_string(layer) + " was asked");
  }
  return message;
}

std::optional<int> MemoryPeer::FreePushSlot() const {
  for (int slot = 0; slot < kPushSlots; ++slot) {
    if (!lanes_->pushing(static_cast<uint32_t>(slot))) return slot;
  }
  return std::nullopt;
}

bool MemoryPeer::pushing() const {
  for (uint32_t slot = 0; slot < kPushSlots; ++slot) {
    if (lanes_->pushing(slot)) return true;
  }
  return false;
}

bool MemoryPeer::Poll() {
  if (lost_) return false;
  const Result<Lanes::Polled> polled =
      lanes_->Poll([this](const Notification& notification) { return Understands(notification); });
  if (!polled.ok()) {
    Lose(polled.status().message());
    return true;
  }
  if (!is_linked_) return polled->num_events > 0;
  const Result<bool> left = link_->Carry(lanes_->endpoint());
  if (!left.ok()) Lose(left.status().message());
  return polled->num_events > 0 || !left.ok() || *left;
}

bool MemoryPeer::Understands(const Notification& notification) {
  if (notification.kind != MessageKind::kLink) return notification.kind != MessageKind::kAlive;
  if (link_answer_)
    lanes_->CountStale();
  else
    link_answer_ = notification.slot != 0;
  return true;
}

}  // namespace lamina
