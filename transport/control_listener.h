// Accepts control connections on a thread of its own.
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

class TcpControlListener final : public ControlListener {
 public:
  using OnAccept = std::function<void(std::unique_ptr<ControlConnection>)>;

  // REQUIRES: `socket` listens and is non-blocking.
  TcpControlListener(UniqueFd socket, std::string address, const ControlOptions& options,
                     OnAccept on_accept);
  ~TcpControlListener() override;

  const std::string& address() const override { return address_; }

 private:
  // A peer that has not greeted completely.
  struct Pending {
    std::unique_ptr<ControlStream> stream;
    std::string name;
    std::string origin;
    TimePoint since;
    ControlGreeting greeting;
  };

  // The listener's thread. Everything below runs there.
  void Run();
  void Wait();
  void TakeNewPeers();
  bool IsFull() const;
  Status Admit(UniqueFd socket, const std::string& name);
  void AdvancePending();
  Status LetIn(Pending pending);
  void TellDropped(const std::string& name, const Status& why) const;

  const std::string address_;
  const ControlOptions options_;
  const OnAccept on_accept_;
  UniqueFd socket_;
  std::list<Pending> pending_;
  WakeFd wake_;
  std::atomic<bool> stop_{false};
  std::thread thread_;  // last: runs on the members above
};

}  // namespace lamina
