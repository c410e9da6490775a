#include "compute_node/memory_peer.h"

#include <utility>

#include "base/host_memory.h"
#include "base/log.h"

namespace lamina {
namespace {

std::string WhoPolls(const Status& linked, const DeviceLink* link) {
  if (!linked.ok()) return "hosts poll: " + linked.message();
  return link->by_posts() ? "devices poll, hosts post" : "devices poll";
}

}  // namespace

Result<std::unique_ptr<ConnectingPeer>> MemoryPeer::StartConnect(
    const MemoryNodeAddress& address, const WireShape& wire, const DataPathOptions& options,
    Result<std::unique_ptr<DeviceLink>> link, Ladder& ladder) {
  LAMINA_RETURN_IF_ERROR(CheckHostMemory(
      static_cast<int64_t>(wire.memory_window_bytes() + wire.compute_window_bytes()),
      "messages of " + std::to_string(wire.max_rows) + " sequences in " +
          std::to_string(wire.num_batches) + " batches"));
  std::unique_ptr<MemoryPeer> peer(new MemoryPeer(address, wire));
  EndpointOptions offered{wire.compute_window_bytes(), options.hello.Encode()};
  Status no_link = link.status();
  if (link.ok()) {
    peer->link_ = std::move(*link);
    offered.device_window = peer->link_->window();
    if (options.polling != PollingMode::kDevice) offered.device_window.data = nullptr;
  }
  Result<std::unique_ptr<ConnectingPath>> path =
      ladder.StartConnect(address.offers, offered, options.deadline);
  if (!path.ok()) return path.status().WithContext("data path to memory node " + address.name);
  return std::unique_ptr<ConnectingPeer>(
      new ConnectingPeer(options, std::move(peer), std::move(no_link), *std::move(path)));
}

Result<std::unique_ptr<MemoryPeer>> ConnectingPeer::Poll() {
  if (path_ != nullptr) LAMINA_RETURN_IF_ERROR(TakePath());
  if (options_.polling != PollingMode::kHost) LAMINA_RETURN_IF_ERROR(AwaitLink());
  const DataPath& path = peer_->path_;
  LAMINA_LOG_INFO("data path to memory node {}: {}{}{}", peer_->name(), path.fabric,
                  path.through.empty() ? "" : " through " + path.through,
                  path.refused.empty() ? "" : "; not used: " + path.refused);
  return std::move(peer_);
}

Status ConnectingPeer::TakePath() {
  const std::string& name = peer_->name();
  Result<Path> path = path_->Poll();
  if (path.status().code() == StatusCode::kTryAgain) return path.status();
  if (!path.ok()) return path.status().WithContext("data path to memory node " + name);
  path_.reset();
  peer_->path_ = {peer_->address().node, std::string(path->fabric->name()),
                  RefusalText(path->refused), path->endpoint->through()};
  Result<std::unique_ptr<Lanes>> lanes =
      Lanes::Create(*path->fabric, std::move(path->endpoint), DecodeLanes(peer_->wire()),
                    ReplyLanes(peer_->wire()), {options_.hello.epoch, options_.payload_checksum});
  if (!lanes.ok()) return lanes.status().WithContext("memory node " + name);
  peer_->lanes_ = *std::move(lanes);
  if (options_.polling != PollingMode::kHost && linked_.ok())
    linked_ = peer_->OfferLink(/*asked_for=*/options_.polling == PollingMode::kDevice);
  return OkStatus();
}

Status ConnectingPeer::AwaitLink() {
  MemoryPeer& peer = *peer_;
  if (linked_.ok()) {
    peer.Poll();
    if (!peer.link_answer_ && !peer.lost_) {
      if (!options_.deadline.Passed()) return TryAgain();
      peer.Lose("did not say whether its device takes part");
    }
    linked_ = peer.UseLink();
  }
  // A link that is not used is freed, unless the endpoint can post to device memory: then the NIC
  // has that memory registered.
  if (!peer.is_linked_ && !peer.lanes_->endpoint().posts_to_device()) peer.link_.reset();
  if (peer.lost_) return PeerLost("memory node " + peer.name() + ": " + peer.why_);
  peer.path_.through += (peer.path_.through.empty() ? "" : ", ") + WhoPolls(linked_, peer.link());
  return OkStatus();
}

// Either both ends reach the other's device window, or neither window is used. So the memory node
// is told, and asked, also if this end could not join.
Status MemoryPeer::OfferLink(bool asked_for) {
  const Endpoint& endpoint = lanes_->endpoint();
  const DeviceWindow theirs = endpoint.peer_device_window();
  if (theirs.descriptor < 0 && !endpoint.posts_to_device()) {
    return Unimplemented(
        "the memory node's device cannot be reached by this one" +
        std::string(asked_for ? "" : ", or by NICs, which takes 'polling: device'"));
  }
  joined_ = link_->Join(theirs, /*in_turns=*/asked_for);
  return lanes_->Signal({MessageKind::kLink, joined_.ok() ? 1u : 0u, 1});
}

Status MemoryPeer::UseLink() {
  LAMINA_RETURN_IF_ERROR(joined_);
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

bool MemoryPeer::TakeOwed(TimePoint now) {
  for (uint32_t batch = 0; owed_ >> batch != 0; ++batch) {
    if ((owed_ >> batch & 1) == 0 || !lanes_->arrived(MessageKind::kReply, batch)) continue;
    owed_ &= ~(1u << batch);
    const Status taken = lanes_->Take(MessageKind::kReply, batch).status();
    if (!taken.ok()) Lose(taken.message());
  }
  if (lost_ || owed_ != 0 || pushing() || lanes_->unsent()) return false;
  Answered(now - late_since_);
  EndSuspension();
  return true;
}

void MemoryPeer::EndSuspension() {
  late_since_ = TimePoint::max();
  owed_ = 0;
}

int64_t MemoryPeer::TakeDeviceWaitUs() {
  const int64_t waited_us = link_->waited_us();
  return waited_us - std::exchange(device_waited_us_, waited_us);
}

std::optional<uint32_t> MemoryPeer::FreePushSlot() const {
  for (uint32_t slot = 0; slot < kPushSlots; ++slot) {
    if (!lanes_->pushing(slot)) return slot;
  }
  return std::nullopt;
}

bool MemoryPeer::pushing() const {
  for (uint32_t slot = 0; slot < kPushSlots; ++slot) {
    if (lanes_->pushing(slot)) return true;
  }
  return false;
}

void MemoryPeer::Poll() {
  if (lost_) return;
  const Result<Lanes::Polled> polled =
      lanes_->Poll([this](const Notification& notification) { return Understands(notification); });
  if (!polled.ok()) return Lose(polled.status().message());
  if (!is_linked_) return;
  if (const Result<bool> left = link_->Carry(lanes_->endpoint()); !left.ok())
    Lose(left.status().message());
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
