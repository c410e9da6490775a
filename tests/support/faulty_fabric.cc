#include "tests/support/faulty_fabric.h"

#include <array>
#include <cstring>

#include "transport/checks.h"
#include "transport/connecting.h"

namespace lamina {

class FaultyListener final : public Listener {
 public:
  FaultyListener(FaultyFabric& fabric, std::unique_ptr<Listener> inner)
      : fabric_(fabric), inner_(std::move(inner)) {}

  Result<std::unique_ptr<Endpoint>> Accept(const EndpointOptions& options) override {
    LAMINA_ASSIGN_OR_RETURN(auto endpoint, inner_->Accept(options));
    return std::unique_ptr<Endpoint>(
        std::make_unique<FaultyEndpoint>(fabric_, std::move(endpoint)));
  }

  const std::string& address() const override { return inner_->address(); }

 private:
  FaultyFabric& fabric_;
  const std::unique_ptr<Listener> inner_;
};

Result<std::unique_ptr<Listener>> FaultyFabric::Listen(const std::string& address) {
  LAMINA_ASSIGN_OR_RETURN(auto listener, inner_->Listen(address));
  return std::unique_ptr<Listener>(std::make_unique<FaultyListener>(*this, std::move(listener)));
}

Result<std::unique_ptr<Connecting>> FaultyFabric::StartConnect(const std::string& address,
                                                               const EndpointOptions& options,
                                                               Deadline deadline) {
  LAMINA_ASSIGN_OR_RETURN(auto connecting, inner_->StartConnect(address, options, deadline));
  return WithOutcome(
      std::move(connecting),
      [this](Result<std::unique_ptr<Endpoint>> endpoint) -> Result<std::unique_ptr<Endpoint>> {
        if (!endpoint.ok()) return endpoint;
        return std::unique_ptr<Endpoint>(
            std::make_unique<FaultyEndpoint>(*this, *std::move(endpoint)));
      });
}

bool FaultyFabric::Arm() {
  for (const FaultyEndpoint* endpoint : endpoints_) {
    if (endpoint->HasWork()) return false;
  }
  return inner_->Arm();
}

FaultyEndpoint::FaultyEndpoint(FaultyFabric& fabric, std::unique_ptr<Endpoint> inner)
    : fabric_(fabric), inner_(std::move(inner)) {
  fabric_.endpoints_.push_back(this);
}

FaultyEndpoint::~FaultyEndpoint() { std::erase(fabric_.endpoints_, this); }

std::string FaultyEndpoint::last_error() const {
  return disconnected_ ? peer_name() + ": disconnected by the fault plan" : inner_->last_error();
}

Status FaultyEndpoint::Post(std::span<const WriteOp> ops, std::optional<uint32_t> notify,
                            uint64_t tag) {
  LAMINA_RETURN_IF_ERROR(
      CheckOps(ops, fabric_.limits(), peer_window_bytes(), peer_device_window().bytes));
  if (lost_) return PeerLost(last_error());
  if (outstanding_.size() >= fabric_.limits().max_outstanding) return TryAgain();
  const FaultPlan& plan = fabric_.plan_;
  if (plan.full != nullptr && plan.full()) {
    ++fabric_.counts_.without_room;
    return TryAgain();
  }
  const bool may_be_muted = plan.mutes == nullptr || (notify.has_value() && plan.mutes(*notify));
  if (plan.mute_after_posts.has_value() && num_posts_ >= *plan.mute_after_posts && may_be_muted) {
    ++fabric_.counts_.muted;
    ready_.push_back({.kind = Event::Kind::kSent, .tag = tag, .status = StatusCode::kOk});
    return OkStatus();
  }
  if (notify.has_value() && fabric_.Happens(plan.drop_notification)) {
    notify.reset();
    ++fabric_.counts_.dropped;
  }
  const uint64_t inner_tag = Hold(ops, notify, tag);
  if (fabric_.Happens(plan.corrupt_payload)) Corrupt(held_.back(), outstanding_[inner_tag]);
  if (fabric_.Happens(plan.delay)) {
    held_.back().polls_left = plan.delay_polls;
    ++fabric_.counts_.delayed;
  }
  if (held_.size() > 1 && held_[held_.size() - 2].late) {
    std::swap(held_[held_.size() - 2], held_.back());
    held_.back().late = false;
    held_.back().polls_left = 0;
    ++fabric_.counts_.reordered;
  } else if (fabric_.Happens(plan.reorder)) {
    held_.back().late = true;
    held_.back().polls_left = plan.delay_polls;
  }
  if (notify.has_value() && fabric_.Happens(plan.duplicate_notification)) {
    Hold({}, notify, std::nullopt);
    ++fabric_.counts_.duplicated;
  }
  Pump();
  if (++num_posts_ == plan.disconnect_after_posts) {
    disconnected_ = true;
    ++fabric_.counts_.disconnected;
    Lose();
  }
  return OkStatus();
}

uint64_t FaultyEndpoint::Hold(std::span<const WriteOp> ops, std::optional<uint32_t> notify,
                              std::optional<uint64_t> tag) {
  held_.push_back({++last_inner_tag_, {ops.begin(), ops.end()}, notify, 0});
  outstanding_[last_inner_tag_].tag = tag;
  return last_inner_tag_;
}

void FaultyEndpoint::Corrupt(Held& post, Outstanding& outstanding) {
  std::vector<WriteOp*> candidates;
  for (WriteOp& op : post.ops) {
    if (!op.source.empty() && !op.to_device) candidates.push_back(&op);
  }
  if (candidates.empty()) return;
  WriteOp& op = *candidates[fabric_.random_() % candidates.size()];
  auto copy = fabric_.inner_->Allocate(op.source.size());
  if (!copy.ok()) return;
  outstanding.corrupted = std::move(copy).value();
  const std::span<std::byte> bytes = outstanding.corrupted->bytes().first(op.source.size());
  std::memcpy(bytes.data(), op.source.data(), bytes.size());
  bytes[fabric_.random_() % bytes.size()] ^= static_cast<std::byte>(1u << (fabric_.random_() % 8));
  op.source = bytes;
  ++fabric_.counts_.corrupted;
}

void FaultyEndpoint::Pump() {
  while (!lost_ && !held_.empty() && held_.front().polls_left == 0) {
    const Held& post = held_.front();
    // Full, or the inner Poll says that the peer is lost.
    if (!inner_->Post(post.ops, post.notify, post.inner_tag).ok()) return;
    held_.pop_front();
  }
}

size_t FaultyEndpoint::Poll(std::span<Event> out) {
  if (!lost_) {
    if (!held_.empty() && held_.front().polls_left > 0) --held_.front().polls_left;
    Pump();
    std::array<Event, 16> events;
    const size_t count = inner_->Poll(events);
    for (size_t i = 0; i < count; ++i) Translate(events[i]);
  }
  size_t count = 0;
  for (; count < out.size() && !ready_.empty(); ready_.pop_front()) out[count++] = ready_.front();
  return count;
}

void FaultyEndpoint::Translate(const Event& event) {
  if (event.kind == Event::Kind::kPeerLost) return Lose();
  if (event.kind == Event::Kind::kNotification) return ready_.push_back(event);
  const auto post = outstanding_.find(event.tag);
  if (post->second.tag.has_value())
    ready_.push_back(
        {.kind = Event::Kind::kSent, .tag = *post->second.tag, .status = event.status});
  outstanding_.erase(post);
}

void FaultyEndpoint::Lose() {
  lost_ = true;
  held_.clear();
  for (const auto& [inner_tag, post] : outstanding_) {
    if (post.tag.has_value())
      ready_.push_back(
          {.kind = Event::Kind::kSent, .tag = *post.tag, .status = StatusCode::kPeerLost});
  }
  // The corrupted copies stay in outstanding_ until the inner endpoint is gone, which may still
  // read from them.
  ready_.push_back({.kind = Event::Kind::kPeerLost, .status = StatusCode::kPeerLost});
}

}  // namespace lamina
