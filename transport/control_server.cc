#include "transport/control_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/descriptors.h"

namespace lamina {
namespace {

// Each has two descriptors, a thread and a buffer. A daemon has one manager, perhaps another that
// waits for its end, and a doctor.
constexpr size_t kMaxStrangers = 64;
// Frames that wait for the owner. Whoever asks waits for the answer before it asks again.
constexpr int kMaxWaitingFrames = 16;
// The largest thing that is said before a peer is served is how a node is to be set up: names,
// addresses, a shape.
constexpr size_t kMaxStrangerFrameBytes = size_t{1} << 20;
// Frames of all strangers that wait, also those of which only a part has come. Each may always have
// its part: 64 KiB.
constexpr size_t kMaxStrangerBytes = size_t{4} << 20;
// Of one that is served. A node that hangs for a while is no reason to lose it.
constexpr size_t kMaxServedBytes = size_t{256} << 20;

// Of one that waits, with what it takes however short it is.
size_t BytesOf(const ControlFrame& frame) { return sizeof(ControlEvent) + frame.payload.size(); }

std::string NameOf(const ControlConnection& connection) {
  return connection.peer_hello() + " at " + connection.peer_address();
}

}  // namespace

Result<std::unique_ptr<ControlServer>> ControlServer::Create(const std::string& address,
                                                             const ControlOptions& options) {
  std::unique_ptr<ControlServer> server(new ControlServer());
  LAMINA_ASSIGN_OR_RETURN(
      server->listener_,
      ControlListener::Create(address, options,
                              [raw = server.get()](std::unique_ptr<ControlConnection> connection) {
                                raw->Adopt(std::move(connection));
                              }));
  return server;
}

ControlServer::~ControlServer() {
  listener_.reset();            // no Adopt after this
  std::map<uint64_t, Peer> go;  // connections end without the mutex: their threads may wait for it
  MutexLock lock(mutex_);
  go.swap(peers_);
}

void ControlServer::Adopt(std::unique_ptr<ControlConnection> connection) {
  MakeRoom();
  std::shared_ptr<ControlConnection> shared = std::move(connection);
  shared->LimitFrames(kMaxStrangerFrameBytes);  // before the owner hears of it, who may serve it
  uint64_t id;
  {
    MutexLock lock(mutex_);
    id = ++last_id_;
    peers_[id] = {shared, {OriginOf(shared->peer_address()), Clock::now()}};
    events_.Push({ControlEvent::Kind::kConnected, id, {}, {}});
  }
  shared->Start({
      .on_frame = [this, id](ControlFrame frame) { TakeFrame(id, std::move(frame)); },
      .on_lost = [this, id](Status status) { TakeLoss(id, std::move(status)); },
      .on_partial = [this, id](size_t bytes) { TakePartial(id, bytes); },
  });
}

std::optional<ControlEvent> ControlServer::TryPop() {
  if (events_.empty()) return std::nullopt;  // nodes ask in every turn
  MutexLock lock(mutex_);
  std::optional<ControlEvent> event = events_.TryPop();
  if (event && event->kind == ControlEvent::Kind::kFrame) {
    Peer& peer = peers_.at(event->connection);  // frames go with their peer
    --peer.num_waiting;
    peer.waiting_bytes -= BytesOf(event->frame);
  }
  return event;
}

void ControlServer::TakeFrame(uint64_t connection, ControlFrame frame) {
  MutexLock lock(mutex_);
  const auto found = peers_.find(connection);
  if (found == peers_.end() || found->second.lost) return;
  found->second.partial_bytes = 0;  // what is there of the next one will be told
  ++found->second.num_waiting;
  found->second.waiting_bytes += BytesOf(frame);
  events_.Push({ControlEvent::Kind::kFrame, connection, std::move(frame), {}});
  BoundWaiting(connection);
}

void ControlServer::TakePartial(uint64_t connection, size_t bytes) {
  MutexLock lock(mutex_);
  const auto found = peers_.find(connection);
  if (found == peers_.end() || found->second.lost) return;
  found->second.partial_bytes = bytes;
  if (!IsServed(connection)) BoundStrangers();
}

void ControlServer::BoundWaiting(uint64_t sender) {
  const Peer& peer = peers_.at(sender);
  const bool served = IsServed(sender);
  if (served && peer.waiting_bytes > kMaxServedBytes) {
    Lose(sender, OutOfSpace(fmt::format("{}: {} bytes of its messages wait",
                                        NameOf(*peer.connection), peer.waiting_bytes)));
  } else if (!served && peer.num_waiting > kMaxWaitingFrames) {
    Lose(sender, InvalidArgument(fmt::format(
                     "{} sent {} messages without waiting for an answer; at most {} may wait",
                     NameOf(*peer.connection), peer.num_waiting, kMaxWaitingFrames)));
  } else if (!served) {
    BoundStrangers();
  }
}

void ControlServer::BoundStrangers() {
  size_t bytes = 0;
  std::pair<size_t, uint64_t> most = {0, 0};
  for (const auto& [id, peer] : peers_) {
    if (IsServed(id)) continue;
    bytes += peer.held_bytes();
    most = std::max(most, {peer.held_bytes(), id});
  }
  if (bytes <= kMaxStrangerBytes) return;
  Lose(most.second,
       OutOfSpace(fmt::format(
           "{} sent {} of {} bytes that wait; peers that are not served may have {}",
           NameOf(*peers_.at(most.second).connection), most.first, bytes, kMaxStrangerBytes)));
}

// Its connection ends now, and is destroyed when the owner closes it: its thread may be this one,
// or wait for this one.
void ControlServer::Lose(uint64_t connection, Status why) {
  events_.EraseIf([&](const ControlEvent& e) {
    return e.connection == connection && e.kind == ControlEvent::Kind::kFrame;
  });
  Peer& peer = peers_.at(connection);
  peer.lost = true;
  peer.num_waiting = 0;
  peer.waiting_bytes = peer.partial_bytes = 0;
  peer.connection->Abort();
  events_.Push({ControlEvent::Kind::kLost, connection, {}, std::move(why)});
}

void ControlServer::TakeLoss(uint64_t connection, Status why) {
  MutexLock lock(mutex_);
  const auto found = peers_.find(connection);
  if (found != peers_.end() && !found->second.lost) Lose(connection, std::move(why));
}

// One that is lost, else as strangers.h has it; nullopt: there is room.
std::optional<uint64_t> ControlServer::WhoGoes() const {
  std::vector<Stranger> strangers;
  std::vector<uint64_t> ids;
  std::optional<uint64_t> lost;
  for (const auto& [id, peer] : peers_) {
    if (id == kept_ || peer.served_too) continue;
    strangers.push_back(peer.stranger);
    ids.push_back(id);
    if (peer.lost) lost = id;
  }
  if (strangers.size() < kMaxStrangers && !DescriptorsAreScarce()) return std::nullopt;
  if (lost) return lost;
  const std::optional<size_t> chosen = WhoMakesRoom(strangers);
  return chosen ? std::optional(ids[*chosen]) : std::nullopt;
}

void ControlServer::MakeRoom() {
  // Destroyed without the mutex: that waits for its thread.
  std::shared_ptr<ControlConnection> goes;
  MutexLock lock(mutex_);
  const std::optional<uint64_t> id = WhoGoes();
  if (!id) return;
  goes = std::move(peers_.at(*id).connection);
  Status why = OutOfSpace(
      fmt::format("{}: one of {} peers, it made room for another", NameOf(*goes), peers_.size()));
  peers_.erase(*id);
  bool unheard = false;  // the owner does not know of it, and need not
  events_.EraseIf([&](const ControlEvent& event) {
    if (event.connection != *id) return false;
    unheard |= event.kind == ControlEvent::Kind::kConnected;
    return true;
  });
  if (!unheard) events_.Push({ControlEvent::Kind::kLost, *id, {}, std::move(why)});
}

std::shared_ptr<ControlConnection> ControlServer::Find(uint64_t connection) const {
  MutexLock lock(mutex_);
  const auto found = peers_.find(connection);
  return found == peers_.end() ? nullptr : found->second.connection;
}

Status ControlServer::Send(uint64_t connection, uint16_t type, std::string payload) {
  const std::shared_ptr<ControlConnection> target = Find(connection);
  if (target == nullptr)
    return PeerLost("control connection " + std::to_string(connection) + " is closed");
  return target->Send(type, std::move(payload));
}

void ControlServer::Keep(uint64_t connection) { SetKept(connection, false); }

void ControlServer::Serve(uint64_t connection) { SetKept(connection, true); }

void ControlServer::ServeToo(uint64_t connection) {
  MutexLock lock(mutex_);
  const auto found = peers_.find(connection);
  if (found == peers_.end()) return;
  found->second.served_too = true;
  found->second.connection->LimitFrames(kMaxFrameBytes);
}

void ControlServer::SetKept(uint64_t connection, bool serves) {
  MutexLock lock(mutex_);
  const auto limit = [&](uint64_t id, size_t bytes) {
    mutex_.AssertHeld();
    if (const auto peer = peers_.find(id); peer != peers_.end())
      peer->second.connection->LimitFrames(bytes);
  };
  limit(kept_, kMaxStrangerFrameBytes);
  if (serves) limit(connection, kMaxFrameBytes);
  kept_ = connection;
  serves_ = serves;
}

void ControlServer::Close(uint64_t connection) {
  std::shared_ptr<ControlConnection> goes;  // as in MakeRoom
  MutexLock lock(mutex_);
  const auto found = peers_.find(connection);
  if (found == peers_.end()) return;
  goes = std::move(found->second.connection);
  peers_.erase(found);
  events_.EraseIf([&](const ControlEvent& event) { return event.connection == connection; });
}

std::string ControlServer::PeerName(uint64_t connection) const {
  const std::shared_ptr<ControlConnection> target = Find(connection);
  return target == nullptr ? "a closed connection" : NameOf(*target);
}

Result<std::unique_ptr<ControlPort>> OpenControlServer(const std::string& address,
                                                       const ControlOptions& options) {
  LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<ControlServer> server,
                          ControlServer::Create(address, options));
  return std::unique_ptr<ControlPort>(std::move(server));
}

}  // namespace lamina
