// Control channels between a manager and nodes that run on one thread: no sockets, and a frame
// takes a time that the process's clock tells, which a test may have replaced (virtual_clock.h).
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/clock.h"
#include "transport/control_connecting.h"
#include "transport/control_port.h"

namespace lamina::testing {

// Outlives what it has opened and connected. Thread: owner.
class ControlNetwork {
 public:
  // Every frame, greeting and goodbye is at the other end after `latency`, in the order in which it
  // was sent.
  explicit ControlNetwork(Clock::duration latency) : latency_(latency) {}
  ControlNetwork(const ControlNetwork&) = delete;

  // Opens ports of nodes, for NodeOptions::open_control.
  OpenControl opener();
  // Connects a manager to them, for ConnectMeans::connect. A connection to an address where nobody
  // listens waits until its time is over.
  StartConnecting connector();

  // Hands over what has arrived by now. Returns whether there was anything.
  bool Deliver();
  // When the next frame arrives. The end of time: none is under way.
  TimePoint next() const { return sent_.empty() ? TimePoint::max() : sent_.front().arrives; }

 private:
  class Port;
  class Connection;
  class Connecting;

  // One connection. Either end is null once it is closed.
  struct Link {
    uint64_t id = 0;
    Port* port = nullptr;
    Connection* manager = nullptr;
  };
  struct Sent {
    TimePoint arrives;
    std::function<void()> hand_over;
  };

  void Send(std::function<void()> hand_over) {
    sent_.push_back({Clock::now() + latency_, std::move(hand_over)});
  }

  const Clock::duration latency_;
  std::deque<Sent> sent_;
  std::map<std::string, Port*> ports_;  // by address
  uint64_t last_id_ = 0;
};

}  // namespace lamina::testing
