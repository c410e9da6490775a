#include "tests/support/control_network.h"

#include <optional>
#include <utility>

#include "base/inbox.h"

namespace lamina::testing {

// The end of a node.
class ControlNetwork::Port final : public ControlPort {
 public:
  Port(ControlNetwork& network, std::string address)
      : network_(network), address_(std::move(address)) {
    network_.ports_[address_] = this;
  }
  ~Port() override {
    network_.ports_.erase(address_);
    while (!links_.empty()) Close(links_.begin()->first);
  }

  void Connect(std::shared_ptr<Link> link) {
    link->port = this;
    events_.emplace_back().connection = link->id;
    links_.emplace(link->id, std::move(link));
  }
  void Take(uint64_t connection, ControlFrame frame) {
    ControlEvent& event = events_.emplace_back();
    event.kind = ControlEvent::Kind::kFrame;
    event.connection = connection;
    event.frame = std::move(frame);
  }
  void Lose(uint64_t connection) {
    links_.erase(connection);
    ControlEvent& event = events_.emplace_back();
    event.kind = ControlEvent::Kind::kLost;
    event.connection = connection;
    event.status = PeerLost("the manager has closed");
  }

  std::optional<ControlEvent> TryPop() override {
    if (events_.empty()) return std::nullopt;
    ControlEvent event = std::move(events_.front());
    events_.pop_front();
    return event;
  }
  int fd() const override { return never_.fd(); }
  Status Send(uint64_t connection, uint16_t type, std::string payload) override;
  void Keep(uint64_t) override {}
  void Serve(uint64_t) override {}
  void Close(uint64_t connection) override;
  const std::string& address() const override { return address_; }
  std::string PeerName(uint64_t) const override { return "the manager"; }

 private:
  ControlNetwork& network_;
  const std::string address_;
  std::map<uint64_t, std::shared_ptr<Link>> links_;
  std::deque<ControlEvent> events_;
  WakeFd never_;  // nobody sleeps on it
};

// The end of the manager.
class ControlNetwork::Connection final : public ControlConnection {
 public:
  Connection(ControlNetwork& network, std::shared_ptr<Link> link, std::string address)
      : network_(network), link_(std::move(link)), address_(std::move(address)) {
    link_->manager = this;
  }
  ~Connection() override { Abort(); }

  void Start(Callbacks callbacks) override {
    callbacks_ = std::move(callbacks);
    for (; !early_.empty(); early_.pop_front()) callbacks_.on_frame(std::move(early_.front()));
  }
  void LimitFrames(size_t) override {}
  void Abort() override {
    if (std::exchange(link_->manager, nullptr) == nullptr) return;
    network_.Send([link = link_] {
      if (Port* const port = std::exchange(link->port, nullptr)) port->Lose(link->id);
    });
  }
  Status Send(uint16_t type, std::string payload) override {
    if (lost_) return PeerLost(address_ + " is gone");
    network_.Send([link = link_, frame = ControlFrame{type, std::move(payload)}]() mutable {
      if (link->port != nullptr) link->port->Take(link->id, std::move(frame));
    });
    return OkStatus();
  }
  void Close(Deadline) override { Abort(); }
  const std::string& peer_hello() const override { return address_; }
  const std::string& peer_address() const override { return address_; }

  void Take(ControlFrame frame) {
    if (callbacks_.on_frame == nullptr) return early_.push_back(std::move(frame));
    callbacks_.on_frame(std::move(frame));
  }
  void Lose() {
    lost_ = true;
    link_->manager = nullptr;
    if (callbacks_.on_lost != nullptr) callbacks_.on_lost(PeerLost(address_ + " has closed"));
  }

 private:
  ControlNetwork& network_;
  const std::shared_ptr<Link> link_;
  const std::string address_;
  Callbacks callbacks_;
  std::deque<ControlFrame> early_;  // that came before Start
  bool lost_ = false;
};

class ControlNetwork::Connecting final : public ControlConnecting {
 public:
  Connecting(ControlNetwork& network, std::string address, TimePoint latest)
      : network_(network), address_(std::move(address)), latest_(latest) {}

  std::optional<Result<std::unique_ptr<ControlConnection>>> Poll() override {
    if (!network_.ports_.contains(address_)) {
      if (Clock::now() < latest_) return std::nullopt;
      return TimedOut("nobody listens at " + address_);
    }
    auto link = std::make_shared<Link>();
    link->id = ++network_.last_id_;
    network_.Send([link, &network = network_, address = address_] {
      const auto found = network.ports_.find(address);
      if (found != network.ports_.end()) return found->second->Connect(link);
      if (link->manager != nullptr) link->manager->Lose();
    });
    return std::unique_ptr<ControlConnection>(
        std::make_unique<Connection>(network_, std::move(link), address_));
  }

 private:
  ControlNetwork& network_;
  const std::string address_;
  const TimePoint latest_;
};

Status ControlNetwork::Port::Send(uint64_t connection, uint16_t type, std::string payload) {
  const auto link = links_.find(connection);
  if (link == links_.end()) return PeerLost("the manager is gone");
  network_.Send([link = link->second, frame = ControlFrame{type, std::move(payload)}]() mutable {
    if (link->manager != nullptr) link->manager->Take(std::move(frame));
  });
  return OkStatus();
}

void ControlNetwork::Port::Close(uint64_t connection) {
  const auto link = links_.find(connection);
  if (link == links_.end()) return;
  link->second->port = nullptr;
  network_.Send([link = link->second] {
    if (link->manager != nullptr) link->manager->Lose();
  });
  links_.erase(link);
}

OpenControl ControlNetwork::opener() {
  return [this](const std::string& address,
                const ControlOptions&) -> Result<std::unique_ptr<ControlPort>> {
    if (ports_.contains(address)) return OutOfSpace(address + " is in use");
    return std::unique_ptr<ControlPort>(std::make_unique<Port>(*this, address));
  };
}

StartConnecting ControlNetwork::connector() {
  return [this](const std::string& address, const ControlOptions&, TimePoint latest,
                std::function<void()> on_change) -> std::unique_ptr<ControlConnecting> {
    if (ports_.contains(address)) on_change();
    return std::make_unique<Connecting>(*this, address, latest);
  };
}

bool ControlNetwork::Deliver() {
  bool any = false;
  while (!sent_.empty() && sent_.front().arrives <= Clock::now()) {
    const std::function<void()> hand_over = std::move(sent_.front().hand_over);
    sent_.pop_front();
    hand_over();
    any = true;
  }
  return any;
}

}  // namespace lamina::testing
