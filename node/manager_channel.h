// What the daemons of both kinds of nodes do with the managers that connect to them: listening and
// greeting, answering orders to begin a session, saying that there is a session already, and
// leaving.
//
// A daemon's loop takes what managers have sent in ManagerChannel::Turn. It gives each frame to the
// session of its manager or, if it is an order to begin one, tries to open a session. A session
// keeps its ManagerConnection, by which it sends its answers.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/departure.h"
#include "base/status.h"
#include "node/node_options.h"
#include "transport/control_port.h"
#include "transport/rare_warning.h"
#include "wire/session_messages.h"

namespace lamina {

class ManagerChannel;

// One manager's connection. Value type; borrows the channel. Thread: the channel's owner.
class ManagerConnection {
 public:
  // "manager at 10.0.0.1:51234".
  std::string name() const;
  // Where this node listens, without the port; the data path of a session listens there too.
  std::string listening_host() const;

  // A message that cannot be sent is logged: the loss of the connection comes as an event.
  void Send(MessageType type, std::string message) const;
  // Answers an order with Configured. An error is logged, and told with this node's name.
  void Answer(const Result<Configured>& outcome) const;

  // While an order of this manager is carried out others may connect, however many, and it stays.
  // Until the next Keep, Release or AnswerOpening of any connection.
  void Keep() const;
  void Release() const;
  // Answers an order to open a session and ends what Keep began. If the session was opened, this
  // manager is one that is served from here on.
  void AnswerOpening(const Result<Configured>& outcome) const;

  // What another manager is told that orders a session while this one has it.
  Status Occupies() const { return TryAgain("it serves " + name() + " already"); }

  // Drops a message that is malformed or not expected now, and the connection too unless
  // `has_session`: it would only fill the log.
  void Drop(const ControlFrame& frame, bool has_session) const;

  friend bool operator==(const ManagerConnection&, const ManagerConnection&) = default;

 private:
  friend class ManagerChannel;
  ManagerConnection(ManagerChannel* channel, uint64_t id) : channel_(channel), id_(id) {}

  ManagerChannel* channel_;
  uint64_t id_;
};

// Thread: owner, except departure(), as it says.
class ManagerChannel {
 public:
  // The longest sleep of a daemon's loop.
  static constexpr auto kLongestSleep = std::chrono::seconds(1);

  // Listens for managers, whom it greets as `kind` ("memory node") with the node's name. Errors are
  // those of the secret, of the TLS files and of the address to listen on, and name the file or the
  // address.
  static Result<std::unique_ptr<ManagerChannel>> Open(const std::string& kind,
                                                      const NodeOptions& options);
  ManagerChannel(const ManagerChannel&) = delete;
  ManagerChannel& operator=(const ManagerChannel&) = delete;

  const std::string& address() const { return control_->address(); }
  // When this daemon leaves, and who asks it to.
  Departure& departure() { return departure_; }

  struct Handlers {
    std::function<void(const ManagerConnection& from, const ControlFrame& frame)> on_frame;
    // The connection is closed afterwards.
    std::function<void(const ManagerConnection& lost, const Status& why)> on_lost;
  };
  // Handles what has come, but not without end, so that sessions have their turn. Returns false if
  // there was nothing.
  bool Turn(const Handlers& handlers);

  // Readable when Turn may have something to do or the daemon was asked to leave.
  std::array<int, 2> fds() const { return {control_->fd(), departure_.fd()}; }
  // Sleeps until one of these is, or `latest`.
  void Sleep(TimePoint latest) const;

 private:
  friend class ManagerConnection;
  ManagerChannel(const std::string& name, const NodeOptions& options,
                 std::unique_ptr<ControlPort> control);

  const std::string name_;  // "memory node m0"
  const std::unique_ptr<ControlPort> control_;
  RareLines connected_lines_, dropped_lines_, refused_lines_, unsent_lines_;
  Departure departure_;
};

}  // namespace lamina
