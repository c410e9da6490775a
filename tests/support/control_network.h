// Control channels between a manager and nodes that run on one thread: no sockets, and a frame
// takes a time that the process's clock tells, which a test may have replaced (virtual_clock.h).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "tests/support/wires.h"
#include "transport/control_connecting.h"
#include "transport/control_port.h"

namespace lamina::testing {

// Outlives what it has opened and connected. Thread: owner.
class ControlNetwork {
 public:
  // What the manager's end is called where ways are cut; a node's end is called by its address.
  static constexpr const char* kManager = "manager";

  // Every frame, greeting and goodbye takes `latency`; those of one connection keep their order.
  explicit ControlNetwork(std::function<Clock::duration()> latency) : wires_(std::move(latency)) {}
  ControlNetwork(const ControlNetwork&) = delete;

  // Opens ports of nodes, for NodeOptions::open_control.
  OpenControl opener();
  // Connects a manager to them, for ConnectMeans::connect. A connection to an address where nobody
  // listens, or to which the way is cut, waits until its time is over.
  StartConnecting connector();

  // To cut ways: the end that hears nothing takes its peer for lost when its peer_timeout is over.
  Wires& wires() { return wires_; }

  // Hands over what has arrived by now. Returns whether there was anything.
  bool Deliver();
  // When there is something to deliver. The end of time: nothing is under way.
  TimePoint next() const;

  // Connections of which at least one end believes that they are there.
  size_t num_connections() const { return links_.size(); }
  // Breaks all connections of a node; both ends notice.
  void Break(const std::string& address);

 private:
  class Port;
  class Connection;
  class Connecting;

  // One connection. An end is null before it is there and once it is closed.
  struct Link {
    uint64_t id = 0;
    Wires::Way to_node, to_manager;
    Port* port = nullptr;
    Connection* manager = nullptr;
    Connecting* connecting = nullptr;
    // Silence after which either end takes the other for lost.
    Clock::duration patience_of_node{}, patience_of_manager{};
  };

  // A connection to the port at `address`.
  std::shared_ptr<Link> Knock(const std::string& address, Clock::duration patience);
  // Tells the other end that this one has closed.
  void LeaveNode(const std::shared_ptr<Link>& link);
  void LeaveManager(const std::shared_ptr<Link>& link);
  static void LoseNode(Link& link, const Status& why);
  static void LoseManager(Link& link, const Status& why);
  // When an end has heard nothing for too long; the end of time: not as things are.
  TimePoint SilentAt(const Link& link, bool manager_hears) const;
  bool LoseSilent();

  Wires wires_;
  std::map<std::string, Port*> ports_;               // by address
  std::vector<Connecting*> connecting_;              // in the order in which they began
  std::map<uint64_t, std::shared_ptr<Link>> links_;  // by id
  uint64_t last_id_ = 0;
};

}  // namespace lamina::testing
