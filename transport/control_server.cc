#include "transport/control_server.h"

#include <utility>
#include <vector>

#include "base/descriptors.h"
#include "base/mutex.h"

namespace lamina {
namespace {

// How much of a peer's hello messages show: the name of a node takes a few words.
constexpr size_t kShownHelloBytes = 100;

std::string Shown(const std::string& hello) {
  return hello.size() <= kShownHelloBytes ? hello : hello.substr(0, kShownHelloBytes) + "...";
}
// Peers that have greeted and are not kept. Each costs two descriptors, a thread and a buffer. A
// daemon has one manager, perhaps another that waits for the first to end, and a doctor.
constexpr size_t kMaxStrangers = 64;
// Frames of such a peer that wait for the owner. A correct peer waits for the answer to a request
// before it sends the next.
constexpr int kMaxWaitingFrames = 16;
// The largest frame of a peer that is not kept yet says how a node is to be set up: names,
// addresses, a shape.
constexpr size_t kMaxStrangerFrameBytes = size_t{1} << 20;

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
  listener_.reset();  // no Adopt after this
  peers_.clear();
}

void ControlServer::Adopt(std::unique_ptr<ControlConnection> connection) {
  MakeRoom();
  std::shared_ptr<ControlConnection> shared = std::move(connection);
  uint64_t id;
  {
    MutexLock lock(mutex_);
    id = ++last_id_;
    peers_[id] = {shared, {OriginOf(shared->peer_address()), Clock::now()}};
  }
  shared->LimitFrames(kMaxStrangerFrameBytes);  // before the owner hears of it, who may keep it
  events_.Push({ControlEvent::Kind::kConnected, id, {}, {}});
  shared->Start({
      .on_frame = [this, id](ControlFrame frame) { TakeFrame(id, std::move(frame)); },
      .on_lost = [this, id](Status status) { PushLost(id, std::move(status)); },
  });
}

std::optional<ControlEvent> ControlServer::TryPop() {
  std::optional<ControlEvent> event = events_.TryPop();
  if (event && event->kind == ControlEvent::Kind::kFrame) {
    MutexLock lock(mutex_);
    if (const auto peer = peers_.find(event->connection); peer != peers_.end())
      --peer->second.num_waiting;
  }
  return event;
}

void ControlServer::TakeFrame(uint64_t connection, ControlFrame frame) {
  std::string who;
  {
    MutexLock lock(mutex_);
    const auto found = peers_.find(connection);
    if (found == peers_.end() || found->second.flooded) return;
    Peer& peer = found->second;
    if (++peer.num_waiting > kMaxWaitingFrames && connection != kept_) {
      peer.flooded = true;
      who = Shown(peer.connection->peer_hello()) + " at " + peer.connection->peer_address();
    }
  }
  if (who.empty()) {
    events_.Push({ControlEvent::Kind::kFrame, connection, std::move(frame), {}});
  } else {
    PushLost(connection,
             InvalidArgument(who + " sent more than " + std::to_string(kMaxWaitingFrames) +
                             " messages without waiting"));
  }
}

void ControlServer::PushLost(uint64_t connection, Status why) {
  ControlEvent event;
  event.kind = ControlEvent::Kind::kLost;
  event.connection = connection;
  event.status = std::move(why);
  events_.Push(std::move(event));
}

void ControlServer::MakeRoom() {
  // Destroyed below without the mutex: its destructor joins a thread that may be waiting for it.
  std::shared_ptr<ControlConnection> goes;
  uint64_t id = 0;
  size_t num_strangers = 0;
  {
    MutexLock lock(mutex_);
    std::vector<Stranger> strangers;
    std::vector<uint64_t> ids;
    for (const auto& [peer_id, peer] : peers_) {
      if (peer_id == kept_) continue;
      strangers.push_back(peer.stranger);
      ids.push_back(peer_id);
    }
    num_strangers = strangers.size();
    if (num_strangers < kMaxStrangers && !DescriptorsAreScarce()) return;
    const std::optional<size_t> chosen = WhoMakesRoom(strangers);
    if (!chosen) return;
    id = ids[*chosen];
    goes = std::move(peers_[id].connection);
    peers_.erase(id);
  }
  Status why = OutOfSpace(goes->peer_hello() + " at " + goes->peer_address() +
                          ": made room for another, as one of " + std::to_string(num_strangers) +
                          " peers that are connected and not served");
  goes.reset();
  PushLost(id, std::move(why));
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

void ControlServer::Keep(uint64_t connection) {
  MutexLock lock(mutex_);
  for (const auto& [id, limit] :
       {std::pair(kept_, kMaxStrangerFrameBytes), std::pair(connection, kMaxFrameBytes)}) {
    if (const auto peer = peers_.find(id); peer != peers_.end())
      peer->second.connection->LimitFrames(limit);
  }
  kept_ = connection;
}

void ControlServer::Close(uint64_t connection) {
  const std::shared_ptr<ControlConnection> target = Find(connection);
  if (target == nullptr) return;
  target->Close(Deadline::After(std::chrono::seconds(1)));
  MutexLock lock(mutex_);
  peers_.erase(connection);
}

std::string ControlServer::PeerName(uint64_t connection) const {
  const std::shared_ptr<ControlConnection> target = Find(connection);
  return target == nullptr ? "a closed connection"
                           : Shown(target->peer_hello()) + " at " + target->peer_address();
}

}  // namespace lamina
