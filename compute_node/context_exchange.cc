#include "compute_node/context_exchange.h"

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

#include "base/backoff.h"
#include "base/log.h"
#include "transport/crypto.h"

namespace lamina {
namespace {

// How long a wait for room in a queue polls before it sleeps.
constexpr auto kRoomPatience = microseconds(200);
// How often to look for nodes that connect.
constexpr auto kAcceptInterval = milliseconds(1);

std::string NameOf(MessageKind kind) {
  return kind == MessageKind::kContext ? "the context" : "a partial sum";
}
std::string ThingOf(MessageKind kind) { return kind == MessageKind::kContext ? "slice" : "value"; }

}  // namespace

Result<std::unique_ptr<ContextExchange>> ContextExchange::Join(
    const ContextExchangeOptions& options, std::shared_ptr<Ladder> ladder,
    std::span<const ContextPeerAddress> nodes, Deadline deadline) {
  std::unique_ptr<ContextExchange> exchange(new ContextExchange(options, std::move(ladder)));
  for (const ContextPeerAddress& address : nodes) {
    if (address.node == options.self) exchange->self_ = exchange->num_nodes();
    exchange->peers_.emplace_back().address = address;
  }
  if (exchange->self_ < 0)
    return InvalidArgument("this compute node is not among those that it shall join");
  // Of each pair of nodes the later one connects. Connecting comes before accepting, so node 0
  // begins, and no two nodes wait for each other.
  for (int i = 0; i < exchange->self_; ++i)
    LAMINA_RETURN_IF_ERROR(exchange->Connect(exchange->peers_[static_cast<size_t>(i)], deadline));
  LAMINA_RETURN_IF_ERROR(exchange->AcceptOthers(deadline));
  return exchange;
}

Status ContextExchange::Connect(Peer& peer, Deadline deadline) {
  const DataHello hello{options_.epoch, options_.self.value, options_.session_token};
  Result<Path> path =
      ladder_->Connect(peer.address.offers, {window_bytes(), hello.Encode()}, deadline);
  if (!path.ok())
    return path.status().WithContext("data path to compute node " + peer.address.name);
  peer.path = {peer.address.node, std::string(path->fabric->name()), RefusalText(path->refused),
               path->endpoint->through()};
  return Use(peer, std::move(*path));
}

Status ContextExchange::AcceptOthers(Deadline deadline) {
  const auto missing_peer = [&](const std::string& peer_hello) {
    const std::optional<DataHello> theirs = DataHello::Decode(peer_hello);
    const bool member = theirs && theirs->epoch == options_.epoch &&
                        EqualInConstantTime(theirs->session_token, options_.session_token);
    return std::find_if(peers_.begin() + self_ + 1, peers_.end(), [&](const Peer& p) {
      return member && p.address.node == NodeId{theirs->node_id} && p.endpoint == nullptr;
    });
  };
  const EndpointOptions options{
      window_bytes(), DataHello{options_.epoch, options_.self.value, ""}.Encode(),
      [&](const std::string& hello) { return missing_peer(hello) != peers_.end(); }};
  const auto missing = [&] {
    return std::find_if(peers_.begin() + self_ + 1, peers_.end(),
                        [](const Peer& peer) { return peer.endpoint == nullptr; });
  };
  while (missing() != peers_.end()) {
    if (deadline.Passed())
      return TimedOut("compute node " + missing()->address.name +
                      " did not open its data path to this one in time");
    Result<Path> path = ladder_->Accept(options);
    if (!path.ok()) {
      if (path.status().code() != StatusCode::kTryAgain)
        LAMINA_LOG_WARN("accepting a compute node: {}", path.status().ToString());
      ladder_->Sleep({}, Deadline::After(kAcceptInterval));
      continue;
    }
    const auto peer = missing_peer(path->endpoint->peer_hello());
    // Two connections came with the same hello: this is the second one.
    if (peer == peers_.end()) continue;
    LAMINA_RETURN_IF_ERROR(Use(*peer, std::move(*path)));
  }
  return OkStatus();
}

Status ContextExchange::Use(Peer& peer, Path path) {
  peer.payload_checksum = NeedsPayloadChecksum(options_.payload_checksum, path.fabric->name());
  peer.endpoint = std::move(path.endpoint);
  LAMINA_LOG_INFO("data path to compute node {}: {}", peer.address.name, path.fabric->name());
  if (peer.endpoint->peer_window().empty()) {
    LAMINA_ASSIGN_OR_RETURN(peer.buffer, path.fabric->Allocate(window_bytes()));
  }
  if (peer.endpoint->peer_window_bytes() >= window_bytes()) return OkStatus();
  return InternalError("compute node " + peer.address.name + " offers a window of " +
                       std::to_string(peer.endpoint->peer_window_bytes()) + " bytes, expected " +
                       std::to_string(window_bytes()));
}

ContextExchange::Area ContextExchange::AreaOf(int batch, MessageKind kind, uint32_t number) const {
  const auto index = static_cast<uint64_t>(batch);
  if (kind == MessageKind::kContext) return {index * context_area_bytes(), context_area_bytes()};
  const uint64_t behind_contexts =
      static_cast<uint64_t>(options_.num_batches) * context_area_bytes();
  return {behind_contexts + (2 * index + number % 2) * sum_area_bytes(), sum_area_bytes()};
}

std::span<std::byte> ContextExchange::payload(int to, int batch, MessageKind kind) {
  Peer& peer = peers_[static_cast<size_t>(to)];
  const Area area =
      AreaOf(batch, kind, Notification::Next(peer.lanes[LaneIndex(batch, kind)].sent));
  const size_t bytes = kind == MessageKind::kContext ? options_.payload_bytes : options_.sum_bytes;
  return Outgoing(peer).subspan(area.offset, area.bytes).subspan(sizeof(MessageHeader), bytes);
}

Status ContextExchange::Post(int to, int batch, StepId step, int what, size_t num_rows,
                             size_t payload_bytes, MessageKind kind) {
  Peer& peer = peers_[static_cast<size_t>(to)];
  Lane& lane = peer.lanes[LaneIndex(batch, kind)];
  const std::span<std::byte> payload = this->payload(to, batch, kind).first(payload_bytes);
  lane.sent = Notification::Next(lane.sent);
  const MessageHeader header = Seal({.kind = kind,
                                     .epoch = options_.epoch,
                                     .step = step.value,
                                     .layer = static_cast<uint32_t>(what),
                                     .num_rows = static_cast<uint32_t>(num_rows),
                                     .number = lane.sent},
                                    payload, peer.payload_checksum);
  const uint64_t offset = AreaOf(batch, kind, lane.sent).offset;
  const std::span<std::byte> message =
      Outgoing(peer).subspan(offset, sizeof(header) + payload_bytes);
  std::memcpy(message.data(), &header, sizeof(header));
  const WriteOp write{message, offset};
  const Notification announced{kind, static_cast<uint32_t>(batch), lane.sent};
  const Deadline deadline = Deadline::After(options_.peer_timeout);
  Backoff backoff(kRoomPatience);
  while (!lost_) {
    const Status posted = peer.endpoint->Post({&write, 1}, announced.Pack(), 0);
    if (posted.ok()) {
      // The message is a sign of life itself.
      peer.next_sign = Clock::now() + sign_interval();
      return posted;
    }
    if (posted.code() != StatusCode::kTryAgain) return Lose(to, posted.message());
    if (deadline.Passed()) {
      return Lose(to, "no room for " + NameOf(kind) + " of step " + std::to_string(step.value) +
                          " " + ThingOf(kind) + " " + std::to_string(what) + " to " +
                          peer.endpoint->peer_name());
    }
    Poll();
    if (backoff.Idle()) ladder_->Sleep({}, deadline.NoLaterThan(Clock::now() + sign_interval()));
  }
  return PeerLost(lost_->message);
}

void ContextExchange::Poll() {
  for (int other = 0; other < num_nodes(); ++other) {
    const Peer& peer = peers_[static_cast<size_t>(other)];
    if (peer.endpoint == nullptr) continue;
    if (!lost_) PollPeer(other);
    if (!lost_ && Clock::now() >= peer.next_sign) ShowLife(other);
  }
}

void ContextExchange::PollPeer(int from) {
  Peer& peer = peers_[static_cast<size_t>(from)];
  std::array<Event, 16> events;
  const size_t count = peer.endpoint->Poll(events);
  for (size_t i = 0; i < count; ++i) {
    if (events[i].kind == Event::Kind::kPeerLost) (void)Lose(from, peer.endpoint->last_error());
    if (events[i].kind != Event::Kind::kNotification) continue;
    peer.heard = Clock::now();
    TakeNotification(from, events[i].value);
  }
}

void ContextExchange::ShowLife(int to) {
  Peer& peer = peers_[static_cast<size_t>(to)];
  const Status posted = peer.endpoint->Post({}, Notification{MessageKind::kAlive, 0, 0}.Pack(), 0);
  if (posted.ok()) peer.next_sign = Clock::now() + sign_interval();
  if (posted.code() == StatusCode::kPeerLost) (void)Lose(to, posted.message());
}

void ContextExchange::LoseIfSilent(int from, TimePoint since) {
  const auto silence = Clock::now() - std::max(since, peers_[static_cast<size_t>(from)].heard);
  if (silence < options_.peer_timeout) return;
  (void)Lose(from, "no sign of life from " +
                       peers_[static_cast<size_t>(from)].endpoint->peer_name() + " for " +
                       std::to_string(std::chrono::duration_cast<milliseconds>(silence).count()) +
                       " ms");
}

void ContextExchange::TakeNotification(int from, uint32_t value) {
  const Notification notification = Notification::Unpack(value).value_or(Notification{});
  if (notification.kind == MessageKind::kAlive) return;
  const bool known = notification.kind == MessageKind::kContext ||
                     (notification.kind == MessageKind::kPartialSum && options_.sum_bytes > 0);
  if (!known || static_cast<int>(notification.slot) >= options_.num_batches) {
    (void)Lose(from, "sent a notification that means nothing: " + std::to_string(value));
    return;
  }
  Lane& lane = peers_[static_cast<size_t>(from)]
                   .lanes[LaneIndex(static_cast<int>(notification.slot), notification.kind)];
  const bool full = Notification::Distance(lane.taken, lane.received) == Depth(notification.kind);
  // A notification that came twice.
  if (full || notification.number != Notification::Next(lane.received)) {
    ++num_stale_;
    return;
  }
  lane.received = notification.number;
}

Result<std::span<const std::byte>> ContextExchange::Take(int from, int batch, StepId step, int what,
                                                         size_t num_rows, MessageKind kind) {
  Peer& peer = peers_[static_cast<size_t>(from)];
  Lane& lane = peer.lanes[LaneIndex(batch, kind)];
  lane.taken = Notification::Next(lane.taken);
  const Area area = AreaOf(batch, kind, lane.taken);
  const Result<ReceivedMessage> message =
      Open(peer.endpoint->window().subspan(area.offset, area.bytes), kind, peer.payload_checksum);
  if (!message.ok()) return Lose(from, message.status().message());
  const MessageHeader& header = message->header;
  if (std::tuple(header.epoch, header.step, header.layer, header.number) !=
      std::tuple(options_.epoch, step.value, static_cast<uint32_t>(what), lane.taken)) {
    return Lose(from, "sent " + NameOf(kind) + " of step " + std::to_string(header.step) + " " +
                          ThingOf(kind) + " " + std::to_string(header.layer) + " where step " +
                          std::to_string(step.value) + " " + ThingOf(kind) + " " +
                          std::to_string(what) + " is next");
  }
  if (header.num_rows != num_rows) {
    return Lose(from, "sent " + NameOf(kind) + " of " + std::to_string(header.num_rows) +
                          " rows in step " + std::to_string(step.value) + ", which has " +
                          std::to_string(num_rows) + " here");
  }
  return message->payload;
}

Status ContextExchange::Lose(int from, const std::string& why) {
  const Peer& peer = peers_[static_cast<size_t>(from)];
  const std::string message = peer.address.name + ": " + why;
  if (!lost_) {
    LAMINA_LOG_ERROR("compute node {} is lost: {}", peer.address.name, why);
    lost_ = LostNode{peer.address.node, message};
  }
  return PeerLost("compute node " + message);
}

int64_t ContextExchange::TakeStale() { return std::exchange(num_stale_, 0); }

std::vector<AttentionBackend::ChosenPath> ContextExchange::paths() const {
  std::vector<AttentionBackend::ChosenPath> paths;
  for (int i = 0; i < self_; ++i) paths.push_back(peers_[static_cast<size_t>(i)].path);
  return paths;
}

}  // namespace lamina
