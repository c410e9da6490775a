// An engine for fronts: takes the requests of processes that have the clients (remote_engine.h),
// and sends them what the engine tells. The messages are those of wire/engine_messages.h.
//
// A front that is lost loses its requests here: nobody is left who could be told of them. If it
// comes back, it asks for them again, with the tokens that it has.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/inbox.h"
#include "manager/engine.h"
#include "transport/control_port.h"
#include "transport/rare_warning.h"
#include "wire/session_messages.h"

namespace lamina {

struct EngineServiceOptions {
  std::string model;  // the name that clients use; a front of another model is refused
  int64_t vocab_size = 0;
  size_t max_fronts = 16;
  uint64_t manager_id = 0;  // as fronts are told, see FrontOpened
  // How often fronts are told the engine's status.
  Clock::duration status_interval = std::chrono::milliseconds(100);
};

// No call waits. Thread: one owner.
class EngineService {
 public:
  // Borrows the engine and the port, which has no other owner.
  EngineService(const EngineServiceOptions& options, Engine& engine, ControlPort& port);
  // Aborts what fronts have asked for. They are told nothing, so that they ask the next engine.
  ~EngineService();
  EngineService(const EngineService&) = delete;
  EngineService& operator=(const EngineService&) = delete;

  // Takes what fronts have sent and sends them what the engine has told, neither without end.
  // Returns false if there was nothing.
  bool Turn(TimePoint now);
  TimePoint next_turn() const { return next_status_; }
  // Readable when a turn may be worth while before.
  std::array<int, 2> fds() const { return {port_.fd(), told_->fd()}; }

  size_t num_requests() const;  // that fronts have asked for and that are not over

 private:
  using Connection = uint64_t;
  struct Request {
    RequestId engine_id;
    int num_open = 0;  // continuations
  };
  struct Front {
    std::map<uint64_t, Request> requests;  // by the front's id
  };
  // What the engine tells, from its thread.
  struct ToldEvent {
    Connection front;
    uint64_t id;
    TokenEvent event;
  };

  void Handle(const ControlEvent& event);
  Status TakeFrame(Connection connection, const ControlFrame& frame);
  Status Open(Connection connection, const OpenFront& request);
  Status Submit(Connection connection, Front& front, SubmitRequest request);
  Status Check(const GenerateRequest& request) const;
  Status CheckConstraints(const SamplingParams& sampling) const;
  void Lose(Connection connection, const std::string& why);
  bool SendEvents();
  void SendStatus(TimePoint now);
  template <typename Message>
  bool Send(Connection connection, MessageType type, const Message& message);

  const EngineServiceOptions options_;
  Engine& engine_;
  ControlPort& port_;
  std::map<Connection, Front> fronts_;
  TimePoint next_status_ = TimePoint::max();
  RareLines stranger_lines_, lost_lines_;
  // The engine's sinks have it too.
  const std::shared_ptr<Inbox<ToldEvent>> told_ = std::make_shared<Inbox<ToldEvent>>();
};

}  // namespace lamina
