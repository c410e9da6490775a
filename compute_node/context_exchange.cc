#include "compute_node/context_exchange.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/log.h"
#include "transport/crypto.h"

namespace lamina {
namespace {

std::string KindOf(const PassedMessage& message) {
  return message.kind == MessageKind::kContext ? "the context" : "a partial sum";
}

// "step 3 slice 7"
std::string SubjectOf(const PassedMessage& message) {
  return "step " + std::to_string(message.step.value) +
         (message.kind == MessageKind::kContext ? " slice " : " value ") +
         std::to_string(message.subject);
}

// "the context of step 3 slice 7"
std::string NameOf(const PassedMessage& message) {
  return KindOf(message) + " of " + SubjectOf(message);
}

std::string Milliseconds(Clock::duration time) {
  return std::to_string(std::chrono::duration_cast<milliseconds>(time).count()) + " ms";
}

}  // namespace

// Of each pair of nodes the later one connects.
Result<JoiningExchange> ContextExchange::StartJoin(const ContextExchangeOptions& options,
                                                   std::shared_ptr<Ladder> ladder,
                                                   std::span<const ComputeNodeAddress> nodes,
                                                   Deadline deadline) {
  std::unique_ptr<ContextExchange> exchange(new ContextExchange(options, std::move(ladder)));
  for (const ComputeNodeAddress& address : nodes) {
    if (address.node == options.self) exchange->self_ = exchange->num_nodes();
    exchange->peers_.emplace_back().address = address;
  }
  if (exchange->self_ < 0)
    return InvalidArgument("this compute node is not among those that it shall join");
  const DataHello hello{options.epoch, options.self.value, options.session_token};
  const EndpointOptions offered{WindowBytes(exchange->lanes_), hello.Encode()};
  JoiningExchange joining(std::move(exchange), deadline);
  for (const ComputeNodeAddress& address : nodes) {
    if (address.node == options.self) break;
    Result<std::unique_ptr<ConnectingPath>> connecting =
        joining.exchange_->ladder_->StartConnect(address.offers, offered, deadline);
    if (!connecting.ok())
      return connecting.status().WithContext("data path to compute node " + address.name);
    joining.connecting_.push_back(*std::move(connecting));
  }
  return joining;
}

Result<std::unique_ptr<ContextExchange>> JoiningExchange::Poll() {
  for (size_t i = 0; i < connecting_.size(); ++i) {
    if (connecting_[i] != nullptr) LAMINA_RETURN_IF_ERROR(Connect(i));
  }
  LAMINA_RETURN_IF_ERROR(exchange_->AcceptPeers());
  const ContextExchange::Peer* missing = nullptr;
  for (int i = 0; i < exchange_->num_nodes(); ++i) {
    const ContextExchange::Peer& peer = exchange_->peers_[static_cast<size_t>(i)];
    if (peer.lanes != nullptr)
      exchange_->PollPeer(i);  // what comes from it must not keep the owner from sleeping
    else if (i != exchange_->self())
      missing = &peer;
  }
  if (exchange_->lost_) return PeerLost("compute node " + exchange_->lost_->message);
  if (missing == nullptr) return std::move(exchange_);
  if (!deadline_.Passed()) return TryAgain();
  return TimedOut("compute node " + missing->address.name +
                  " did not open its data path to this one in time");
}

// Ok also while the connection is under way.
Status JoiningExchange::Connect(size_t index) {
  ContextExchange::Peer& peer = exchange_->peers_[index];
  Result<Path> path = connecting_[index]->Poll();
  if (path.status().code() == StatusCode::kTryAgain) return OkStatus();
  if (!path.ok())
    return path.status().WithContext("data path to compute node " + peer.address.name);
  connecting_[index].reset();
  peer.path = {peer.address.node, std::string(path->fabric->name()), RefusalText(path->refused),
               path->endpoint->through()};
  return exchange_->Use(peer, *std::move(path));
}

TimePoint JoiningExchange::wake_at() const {
  TimePoint first = deadline_.at();
  for (const std::unique_ptr<ConnectingPath>& connecting : connecting_) {
    if (connecting != nullptr) first = std::min(first, connecting->wake_at());
  }
  return first;
}

ContextExchange::Peer* ContextExchange::MissingPeer(const std::string& hello) {
  const std::optional<DataHello> theirs = DataHello::Decode(hello);
  if (!theirs || theirs->epoch != options_.epoch ||
      !EqualInConstantTime(theirs->session_token, options_.session_token))
    return nullptr;
  const auto found = std::find_if(peers_.begin() + self_ + 1, peers_.end(), [&](const Peer& peer) {
    return peer.address.node == NodeId{theirs->node_id} && peer.lanes == nullptr;
  });
  return found == peers_.end() ? nullptr : &*found;
}

Status ContextExchange::AcceptPeers() {
  const auto is_missing = [](const Peer& peer) { return peer.lanes == nullptr; };
  const EndpointOptions options{
      WindowBytes(lanes_), DataHello{options_.epoch, options_.self.value, ""}.Encode(),
      [this](const std::string& hello) { return MissingPeer(hello) != nullptr; }};
  while (std::any_of(peers_.begin() + self_ + 1, peers_.end(), is_missing)) {
    Result<Path> path = ladder_->Accept(options);
    if (path.status().code() == StatusCode::kTryAgain) break;
    if (!path.ok()) {
      LAMINA_LOG_WARN("accepting a compute node: {}", path.status().ToString());
      break;
    }
    Peer* const peer = MissingPeer(path->endpoint->peer_hello());
    // Two connections came with the same hello: this is the second one.
    if (peer == nullptr) continue;
    LAMINA_RETURN_IF_ERROR(Use(*peer, *std::move(path)));
  }
  return OkStatus();
}

Status ContextExchange::Use(Peer& peer, Path path) {
  LAMINA_LOG_INFO("data path to compute node {}: {}", peer.address.name, path.fabric->name());
  Result<std::unique_ptr<Lanes>> lanes =
      Lanes::Create(*path.fabric, std::move(path.endpoint), lanes_, lanes_,
                    {options_.epoch, options_.payload_checksum});
  if (!lanes.ok()) return lanes.status().WithContext("compute node " + peer.address.name);
  peer.lanes = std::move(*lanes);
  return OkStatus();
}

std::span<std::byte> ContextExchange::payload(int to, MessageKind kind, uint32_t batch) {
  return peers_[static_cast<size_t>(to)].lanes->payload(kind, batch);
}

Status ContextExchange::Post(int to, const PassedMessage& message, size_t payload_bytes) {
  if (lost_) return PeerLost(lost_->message);
  Peer& peer = peers_[static_cast<size_t>(to)];
  const MessageHeader header{.step = message.step.value,
                             .layer = static_cast<uint32_t>(message.subject),
                             .num_rows = static_cast<uint32_t>(message.num_rows)};
  const Status posted = peer.lanes->Post(message.kind, message.batch, header, payload_bytes);
  if (!posted.ok()) return Lose(to, posted.message());
  // The message is a sign of life itself.
  peer.next_sign = Clock::now() + sign_interval();
  return OkStatus();
}

bool ContextExchange::unsent() const {
  return !lost_ && std::ranges::any_of(peers_, [](const Peer& peer) {
    return peer.lanes != nullptr && peer.lanes->unsent();
  });
}

void ContextExchange::Poll() {
  for (int other = 0; other < num_nodes(); ++other) {
    const Peer& peer = peers_[static_cast<size_t>(other)];
    if (peer.lanes == nullptr) continue;
    if (!lost_) PollPeer(other);
    if (!lost_) LoseIfFull(other);
    if (!lost_ && Clock::now() >= peer.next_sign) ShowLife(other);
  }
}

void ContextExchange::PollPeer(int from) {
  Peer& peer = peers_[static_cast<size_t>(from)];
  const Result<Lanes::Polled> polled = peer.lanes->Poll([](const Notification& notification) {
    return notification.kind != MessageKind::kLink;  // kAlive is one more sign of life
  });
  if (!polled.ok())
    (void)Lose(from, polled.status().message());
  else if (polled->num_notifications > 0)
    peer.heard = Clock::now();
}

void ContextExchange::LoseIfFull(int to) {
  Peer& peer = peers_[static_cast<size_t>(to)];
  if (!peer.lanes->unsent()) {
    peer.unsent_since = TimePoint::max();
    return;
  }
  const TimePoint now = Clock::now();
  peer.unsent_since = std::min(peer.unsent_since, now);
  if (now - peer.unsent_since < options_.peer_timeout) return;
  (void)Lose(to, "no room for messages to " + peer.lanes->peer_name() + " for " +
                     Milliseconds(now - peer.unsent_since));
}

void ContextExchange::ShowLife(int to) {
  Peer& peer = peers_[static_cast<size_t>(to)];
  if (peer.lanes->unsent()) return;  // what is queued is a sign of life when it leaves
  const Status posted = peer.lanes->Signal({MessageKind::kAlive, 0, 0});
  if (posted.ok()) peer.next_sign = Clock::now() + sign_interval();
  if (posted.code() == StatusCode::kPeerLost) (void)Lose(to, posted.message());
}

void ContextExchange::LoseIfSilent(int from, TimePoint since) {
  const auto silence = Clock::now() - std::max(since, peers_[static_cast<size_t>(from)].heard);
  if (silence < options_.peer_timeout) return;
  (void)Lose(from, "no sign of life from " + peers_[static_cast<size_t>(from)].lanes->peer_name() +
                       " for " + Milliseconds(silence));
}

Result<std::span<const std::byte>> ContextExchange::Take(int from, const PassedMessage& expected) {
  Peer& peer = peers_[static_cast<size_t>(from)];
  const Result<ReceivedMessage> message = peer.lanes->Take(expected.kind, expected.batch);
  if (!message.ok()) return Lose(from, message.status().message());
  const MessageHeader& header = message->header;
  if (std::tuple(header.epoch, header.step, header.layer) !=
      std::tuple(options_.epoch, expected.step.value, static_cast<uint32_t>(expected.subject))) {
    PassedMessage sent = expected;
    sent.step = StepId{header.step};
    sent.subject = static_cast<int>(header.layer);
    return Lose(from, "sent " + NameOf(sent) + " where " + SubjectOf(expected) + " is next");
  }
  if (header.num_rows != expected.num_rows) {
    return Lose(from, "sent " + KindOf(expected) + " of " + std::to_string(header.num_rows) +
                          " rows in step " + std::to_string(expected.step.value) + ", which has " +
                          std::to_string(expected.num_rows) + " here");
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

int64_t ContextExchange::TakeStale() {
  int64_t num_stale = 0;
  for (const Peer& peer : peers_) num_stale += peer.lanes == nullptr ? 0 : peer.lanes->TakeStale();
  return num_stale;
}

std::vector<DataPath> ContextExchange::paths() const {
  std::vector<DataPath> paths;
  for (int i = 0; i < self_; ++i) paths.push_back(peers_[static_cast<size_t>(i)].path);
  return paths;
}

}  // namespace lamina
