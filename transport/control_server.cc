#include "transport/control_server.h"

namespace lamina {
namespace {

constexpr size_t kShownHelloBytes = 100;  // who a node says it is takes a few words

std::string Shown(const std::string& hello) { return hello.size() <= kShownHelloBytes ? hello : hello.substr(0, kShownHelloBytes) + "..."; }

}  // namespace

Result<std::unique_ptr<ControlServer>> ControlServer::Create(const std::string& address, const ControlOptions& options) {
  std::unique_ptr<ControlServer> server(new ControlServer());
  LAMINA_ASSIGN_OR_RETURN(server->listener_,
                          ControlListener::Create(address, options, [raw = server.get()](std::unique_ptr<ControlConnection> connection) {
                            raw->Adopt(std::move(connection));
                          }));
  return server;
}

ControlServer::~ControlServer() {
  listener_.reset();  // no Adopt after this
  connections_.clear();
}

void ControlServer::Adopt(std::unique_ptr<ControlConnection> connection) {
  std::shared_ptr<ControlConnection> shared = std::move(connection);
  uint64_t id;
  {
    std::lock_guard lock(mutex_);
    id = ++last_id_;
    connections_[id] = shared;
  }
  events_.Push({ControlEvent::Kind::kConnected, id, {}, {}});
  shared->Start({
      .on_frame =
          [this, id](ControlFrame frame) {
            events_.Push({ControlEvent::Kind::kFrame, id, std::move(frame), {}});
          },
      .on_lost =
          [this, id](Status status) {
            events_.Push({ControlEvent::Kind::kLost, id, {}, std::move(status)});
          },
  });
}

std::shared_ptr<ControlConnection> ControlServer::Find(uint64_t connection) const {
  std::lock_guard lock(mutex_);
  const auto found = connections_.find(connection);
  return found == connections_.end() ? nullptr : found->second;
}

Status ControlServer::Send(uint64_t connection, uint16_t type, std::string payload) {
  const std::shared_ptr<ControlConnection> target = Find(connection);
  if (target == nullptr) return PeerLost("control connection " + std::to_string(connection) + " is closed");
  return target->Send(type, std::move(payload));
}

void ControlServer::Close(uint64_t connection) {
  const std::shared_ptr<ControlConnection> target = Find(connection);
  if (target == nullptr) return;
  target->Close(Deadline::After(std::chrono::seconds(1)));
  std::lock_guard lock(mutex_);
  connections_.erase(connection);
}

std::string ControlServer::PeerName(uint64_t connection) const {
  const std::shared_ptr<ControlConnection> target = Find(connection);
  return target == nullptr ? "a closed connection" : Shown(target->peer_hello()) + " at " + target->peer_address();
}

}  // namespace lamina
