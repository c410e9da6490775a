// An engine that does what a test says, on the test's thread; and a front's control channel without
// sockets.
#pragma once

#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/inbox.h"
#include "manager/engine.h"
#include "transport/control_port.h"

namespace lamina::testing {

class PlayedEngine final : public Engine {
 public:
  struct Asked {
    RequestId id;
    GenerateRequest request;
    Sink sink;
    bool aborted = false;
    std::vector<int> stopped = {};
  };

  Result<RequestId> Submit(GenerateRequest request, Sink sink) override {
    if (!refusal.ok()) return refusal;
    const RequestId id{++last_id_};
    asked.push_back({id, std::move(request), std::move(sink)});
    return id;
  }
  void Abort(RequestId id) override { Find(id).aborted = true; }
  void Stop(RequestId id, int index) override { Find(id).stopped.push_back(index); }
  EngineStatus status() override {
    EngineStatus status;
    status.serving = true;
    status.detail = detail;
    return status;
  }
  int64_t max_model_len() const override { return max_len; }
  std::span<const TokenId> eos_tokens() const override { return ends_; }

  // Tells the k-th request of those that were accepted.
  void Tell(size_t k, TokenId token, int index = 0, std::optional<FinishReason> finish = {}) {
    TokenEvent event;
    event.index = index;
    event.token = token;
    event.finish = finish;
    event.sequence = SequenceId{100 * (k + 1) + static_cast<uint64_t>(index)};
    asked.at(k).sink(event);
  }

  std::vector<Asked> asked;  // that were accepted
  Status refusal;            // of all that follow
  std::string detail = "played";
  int64_t max_len = 100;

 private:
  Asked& Find(RequestId id) { return asked.at(id.value - 1); }

  uint64_t last_id_ = 0;
  const std::vector<TokenId> ends_ = {2};
};

// What fronts send, and what is sent to them.
class PlayedPort final : public ControlPort {
 public:
  void Connect(uint64_t connection) {
    events_.Push({ControlEvent::Kind::kConnected, connection, {}, {}});
  }
  void Take(uint64_t connection, ControlFrame frame) {
    events_.Push({ControlEvent::Kind::kFrame, connection, std::move(frame), {}});
  }
  void Break(uint64_t connection) {
    events_.Push({ControlEvent::Kind::kLost, connection, {}, PeerLost("it is gone")});
  }

  std::optional<ControlEvent> TryPop() override { return events_.TryPop(); }
  int fd() const override { return events_.fd(); }
  Status Send(uint64_t connection, uint16_t type, std::string payload) override {
    if (full.contains(connection)) return OutOfSpace("it reads nothing");
    if (closed.contains(connection)) return PeerLost("it is closed");
    sent[connection].push_back({type, std::move(payload)});
    return OkStatus();
  }
  void Keep(uint64_t) override {}
  void Serve(uint64_t) override {}
  void ServeToo(uint64_t connection) override { served.insert(connection); }
  void Close(uint64_t connection) override { closed.insert(connection); }
  const std::string& address() const override { return address_; }
  std::string PeerName(uint64_t connection) const override {
    return "front " + std::to_string(connection);
  }

  std::map<uint64_t, std::deque<ControlFrame>> sent;  // by connection
  std::set<uint64_t> full, served, closed;

 private:
  Inbox<ControlEvent> events_;
  const std::string address_ = "played:0";
};

}  // namespace lamina::testing
