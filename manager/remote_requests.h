// The requests of a front without threads, locks and clocks: what clients ask for and what the
// manager says come in with the time, messages and events for clients come out. The manager runs
// its engine behind an EngineService (engine_service.h).
//
// Whoever holds the client's stream holds the request: of each it keeps what its client was told.
// When the manager is lost requests wait, old and new ones, and are sent to the next one with the
// tokens that there are. Clients see a pause, and the same tokens as without it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "manager/engine.h"
#include "manager/open_requests.h"
#include "transport/control_channel.h"
#include "wire/session_messages.h"

namespace lamina {

struct RemoteRequestsOptions {
  std::string model;  // the name that clients use
  int64_t vocab_size = 0;
  // Requests that wait for a manager fail after so long, and new ones are refused until there is
  // one.
  Clock::duration give_up_after = std::chrono::seconds(60);
  EngineObserver* observer = nullptr;  // borrowed; may be null
};

// Thread: one at a time.
class RemoteRequests {
 public:
  RemoteRequests(const RemoteRequestsOptions& options, TimePoint now);
  RemoteRequests(const RemoteRequests&) = delete;
  RemoteRequests& operator=(const RemoteRequests&) = delete;

  // As Engine's. Submit refuses what no engine of this vocabulary would take; what the manager
  // refuses comes as an event with kError.
  Result<RequestId> Submit(GenerateRequest request, Engine::Sink sink, TimePoint now);
  void Abort(RequestId request, TimePoint now);
  void Stop(RequestId request, int index, TimePoint now);

  // There is a connection to a manager; what it says; it is gone, or could not be made. An error of
  // TakeFrame: the connection is of no use, and OnLost follows.
  void OnConnected();
  Status TakeFrame(const ControlFrame& frame, TimePoint now);
  void OnLost(const Status& why, TimePoint now);

  // Does what is due.
  void Turn(TimePoint now);
  TimePoint next_turn() const;

  // What is to be sent over the connection, and told to clients, in this order.
  std::vector<ControlFrame> TakeFrames() { return std::exchange(frames_, {}); }
  std::vector<Delivery> TakeDeliveries() { return std::exchange(deliveries_, {}); }

  // Whether the manager takes requests.
  bool is_open() const { return open_; }
  // What the first manager said of the model; nullopt before.
  const std::optional<FrontOpened>& facts() const { return facts_; }
  EngineStatus status() const;

 private:
  struct Continuation {
    Told told;
    std::optional<TimePoint> first_token, last_token;
  };
  struct Request {
    GenerateRequest spec;
    Engine::Sink sink;
    TimePoint submitted;
    std::vector<Continuation> continuations;
    int num_open = 0;
    // A manager has taken it, or it has waited for one: it is not refused for want of room.
    bool accepted = false;
    bool sent = false;  // over this connection, and not refused
    // While no manager has it: since when, and when it is sent again if it was refused.
    std::optional<TimePoint> waits_since, again;
  };
  using Requests = std::map<uint64_t, Request>;

  Status TakeOpened(FrontOpened opened);
  void TakeSubmitted(const RequestSubmitted& answer, TimePoint now);
  Status TakeEvent(RequestEvent event, TimePoint now);
  void Send(uint64_t id, Request& request);
  void SendWaiting(TimePoint now);
  // Tells the client, and forgets the request when all of its continuations are over.
  void Tell(Requests::iterator request, TokenEvent event, TimePoint now);
  Status CheckScores(const Request& request, const TokenEvent& event) const;
  Status CheckEmbedding(const Request& request, const TokenEvent& event) const;
  void EndAll(Requests::iterator request, FinishReason reason, const Status& why, TimePoint now);
  void ObserveToken(Request& request, Continuation& continuation, TimePoint now);
  void ObserveEnd(const Request& request, const Continuation& continuation, FinishReason reason,
                  TimePoint now);
  template <typename Message>
  void Queue(MessageType type, const Message& message);

  const RemoteRequestsOptions options_;
  Requests requests_;  // in the order in which they came
  uint64_t last_id_ = 0;
  std::optional<FrontOpened> facts_;
  bool open_ = false;
  uint64_t manager_ = 0;  // FrontOpened::manager_id of the present one
  // While there is no manager: since when, and why.
  TimePoint lost_since_;
  Status lost_;
  bool given_up_ = false;  // there has been none for too long
  EngineStatus status_;    // as the manager told it last
  std::vector<ControlFrame> frames_;
  std::vector<Delivery> deliveries_;
};

}  // namespace lamina
