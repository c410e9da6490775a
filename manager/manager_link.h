// The connection of a front to the manager: made, and made anew to whatever manager is at that
// address then, as often as it is lost.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <variant>

#include "base/clock.h"
#include "base/inbox.h"
#include "manager/remote_requests.h"
#include "transport/control_connecting.h"

namespace lamina {

struct ManagerLinkOptions {
  std::string manager;  // HOST:PORT
  ControlOptions control;
  StartConnecting connect = StartConnectControl;
};

// Carries what RemoteRequests and the manager have to say to each other. Thread: one at a time.
class ManagerLink {
 public:
  // Borrows the requests. `on_change` is called when a turn may be worth while before it is due,
  // from any thread.
  ManagerLink(const ManagerLinkOptions& options, RemoteRequests& requests,
              std::function<void()> on_change, TimePoint now);
  ManagerLink(const ManagerLink&) = delete;
  ManagerLink& operator=(const ManagerLink&) = delete;

  // Waits for nobody. Returns whether something was done.
  bool Turn(TimePoint now);
  TimePoint next_turn() const;

  // Why the last connection was lost or the last try to make one did not succeed.
  const Status& refused() const { return refused_; }

 private:
  // What comes over a connection: a frame, or why there is none any more.
  struct Heard {
    uint64_t connection = 0;
    std::variant<ControlFrame, Status> what;
  };

  bool Connect(TimePoint now);
  void Adopt(std::unique_ptr<ControlConnection> connection);
  bool TakeHeard(TimePoint now);
  bool SendFrames(TimePoint now);
  void Drop(const Status& why, TimePoint now);

  const ManagerLinkOptions options_;
  RemoteRequests& requests_;
  const std::function<void()> on_change_;
  Inbox<Heard> heard_;
  std::unique_ptr<ControlConnecting> connecting_;
  std::unique_ptr<ControlConnection> connection_;  // goes first: its thread uses the members above
  uint64_t num_connections_ = 0;
  TimePoint next_try_;
  Status refused_;
};

}  // namespace lamina
