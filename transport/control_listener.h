// The implementation of ControlListener: accepts control connections over TCP and runs their
// greetings on a thread of its own.
#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <thread>

#include "base/inbox.h"
#include "transport/control_greeting.h"
#include "transport/strangers.h"

namespace lamina {

// Owns the listening socket and the connections whose greeting is not complete. A peer has 5 s to
// greet; peers that have not greeted hold at most 256 sockets (strangers.h). The destructor stops
// and joins the thread. Thread: owner; `on_accept` is called on the listener's thread.
class TcpControlListener final : public ControlListener {
 public:
  using OnAccept = std::function<void(std::unique_ptr<ControlConnection>)>;

  // `address` is what address() returns and messages say. REQUIRES: `socket` listens and is
  // non-blocking.
  TcpControlListener(UniqueFd socket, std::string address, const ControlOptions& options,
                     OnAccept on_accept);
  ~TcpControlListener() override;

  const std::string& address() const override { return address_; }

 private:
  // A peer whose greeting is not complete.
  struct Pending {
    std::unique_ptr<ControlStream> stream;
    std::string name;
    std::string origin;
    TimePoint since;
    ControlGreeting greeting;
  };

  // Everything below runs on the listener's thread.
  void Run();
  void Wait();                                             // until there is something to do
  void TakeNewPeers();                                     // accepts at most kAcceptsPerTurn
  bool IsFull() const;                                     // the next peer needs another's place
  Status Admit(UniqueFd socket, const std::string& name);  // begins the greeting of a new peer
  void AdvancePending();                                   // continues all greetings
  Status LetIn(Pending pending);                           // the greeting is complete
  void TellDropped(const std::string& name, const Status& why) const;

  const std::string address_;
  const ControlOptions options_;
  const OnAccept on_accept_;
  UniqueFd socket_;
  std::list<Pending> pending_;  // the oldest first
  WakeFd wake_;
  std::atomic<bool> stop_{false};
  std::thread thread_;  // last: runs on the members above
};

}  // namespace lamina
