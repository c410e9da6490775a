#include "tests/support/control_network.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

#include "base/inbox.h"

namespace lamina::testing {

// The end of a node.
class ControlNetwork::Port final : public ControlPort {
 public:
  Port(ControlNetwork& network, std::string address, const ControlOptions& options)
      : network_(network), address_(std::move(address)), patience_(options.peer_timeout) {
    network_.ports_[address_] = this;
  }
  ~Port() override {
    network_.ports_.erase(address_);
    while (!links_.empty()) Close(links_.begin()->first);
  }

  void Connect(std::shared_ptr<Link> link) {
    link->port = this;
    link->patience_of_node = patience_;
    events_.emplace_back().connection = link->id;
    links_.emplace(link->id, std::move(link));
  }
  void Take(uint64_t connection, ControlFrame frame) {
    ControlEvent& event = events_.emplace_back();
    event.kind = ControlEvent::Kind::kFrame;
    event.connection = connection;
    event.frame = std::move(frame);
  }
  void Lose(uint64_t connection, Status why) {
    links_.erase(connection);
    ControlEvent& event = events_.emplace_back();
    event.kind = ControlEvent::Kind::kLost;
    event.connection = connection;
    event.status = std::move(why);
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
  void ServeToo(uint64_t) override {}
  void Close(uint64_t connection) override;
  const std::string& address() const override { return address_; }
  std::string PeerName(uint64_t) const override { return "the manager"; }

 private:
  ControlNetwork& network_;
  const std::string address_;
  const Clock::duration patience_;
  std::map<uint64_t, std::shared_ptr<Link>> links_;
  std::deque<ControlEvent> events_;
  WakeFd never_;  // nobody sleeps on it
};

// The end of the manager.
class ControlNetwork::Connection final : public ControlConnection {
 public:
  Connection(ControlNetwork& network, std::shared_ptr<Link> link)
      : network_(network), link_(std::move(link)), address_(link_->to_node.to) {
    link_->manager = this;
  }
  ~Connection() override { Abort(); }

  void Start(Callbacks callbacks) override {
    callbacks_ = std::move(callbacks);
    for (; !early_.empty(); early_.pop_front()) callbacks_.on_frame(std::move(early_.front()));
  }
  void LimitFrames(size_t) override {}
  void Abort() override {
    if (std::exchange(link_->manager, nullptr) != nullptr) network_.LeaveNode(link_);
  }
  Status Send(uint16_t type, std::string payload) override {
    if (lost_) return PeerLost(address_ + " is gone");
    network_.wires_.Send(link_->to_node,
                         [link = link_, frame = ControlFrame{type, std::move(payload)}]() mutable {
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
  void Lose(const Status& why) {
    lost_ = true;
    if (callbacks_.on_lost != nullptr) callbacks_.on_lost(why);
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
  Connecting(ControlNetwork& network, std::string address, Clock::duration patience,
             TimePoint latest, std::function<void()> on_change)
      : network_(network),
        address_(std::move(address)),
        patience_(patience),
        latest_(latest),
        on_change_(std::move(on_change)) {
    network_.connecting_.push_back(this);
    Knock();
  }
  ~Connecting() override {
    std::erase(network_.connecting_, this);
    if (link_ == nullptr) return;
    link_->connecting = nullptr;
    network_.LeaveNode(link_);
  }

  std::optional<Result<std::unique_ptr<ControlConnection>>> Poll() override {
    if (link_ != nullptr && accepted_) {
      link_->connecting = nullptr;
      return std::unique_ptr<ControlConnection>(
          std::make_unique<Connection>(network_, std::exchange(link_, nullptr)));
    }
    if (Clock::now() < latest_) return std::nullopt;
    return TimedOut(link_ == nullptr ? "nobody listens at " + address_
                                     : address_ + " does not answer");
  }

  // Somebody listens at the address.
  void Knock() {
    if (link_ != nullptr || !network_.ports_.contains(address_)) return;
    link_ = network_.Knock(address_, patience_);
    link_->connecting = this;
  }
  void Accept() {
    accepted_ = true;
    on_change_();
  }
  void Refuse() {
    link_ = nullptr;
    accepted_ = false;
    Knock();  // again, if the port is another one by now
  }
  const std::string& address() const { return address_; }

 private:
  ControlNetwork& network_;
  const std::string address_;
  const Clock::duration patience_;
  const TimePoint latest_;
  const std::function<void()> on_change_;
  std::shared_ptr<Link> link_;  // null: there is nobody, or the connection was taken
  bool accepted_ = false;
};

Status ControlNetwork::Port::Send(uint64_t connection, uint16_t type, std::string payload) {
  const auto link = links_.find(connection);
  if (link == links_.end()) return PeerLost("the manager is gone");
  network_.wires_.Send(
      link->second->to_manager,
      [link = link->second, frame = ControlFrame{type, std::move(payload)}]() mutable {
        if (link->manager != nullptr) link->manager->Take(std::move(frame));
      });
  return OkStatus();
}

void ControlNetwork::Port::Close(uint64_t connection) {
  const auto link = links_.find(connection);
  if (link == links_.end()) return;
  link->second->port = nullptr;
  network_.LeaveManager(link->second);
  links_.erase(link);
}

OpenControl ControlNetwork::opener() {
  return [this](const std::string& address,
                const ControlOptions& options) -> Result<std::unique_ptr<ControlPort>> {
    if (ports_.contains(address)) return OutOfSpace(address + " is in use");
    std::unique_ptr<ControlPort> port = std::make_unique<Port>(*this, address, options);
    for (Connecting* const waiting : connecting_) {
      if (waiting->address() == address) waiting->Knock();
    }
    return port;
  };
}

StartConnecting ControlNetwork::connector() {
  return [this](const std::string& address, const ControlOptions& options, TimePoint latest,
                std::function<void()> on_change) -> std::unique_ptr<ControlConnecting> {
    return std::make_unique<Connecting>(*this, address, options.peer_timeout, latest,
                                        std::move(on_change));
  };
}

std::shared_ptr<ControlNetwork::Link> ControlNetwork::Knock(const std::string& address,
                                                            Clock::duration patience) {
  auto link = std::make_shared<Link>();
  link->id = ++last_id_;
  link->to_node = {kManager, address};
  link->to_manager = {address, kManager};
  link->patience_of_manager = patience;
  links_.emplace(link->id, link);
  wires_.Send(link->to_node, [this, link] {
    const auto port = ports_.find(link->to_node.to);
    if (port == ports_.end()) return LeaveManager(link);
    port->second->Connect(link);
    wires_.Send(link->to_manager, [link] {
      if (link->connecting != nullptr) link->connecting->Accept();
    });
  });
  return link;
}

void ControlNetwork::LeaveNode(const std::shared_ptr<Link>& link) {
  wires_.Send(link->to_node, [link] { LoseNode(*link, PeerLost("the manager has closed")); });
}

void ControlNetwork::LeaveManager(const std::shared_ptr<Link>& link) {
  wires_.Send(link->to_manager,
              [link] { LoseManager(*link, PeerLost(link->to_node.to + " has closed")); });
}

void ControlNetwork::LoseNode(Link& link, const Status& why) {
  if (Port* const port = std::exchange(link.port, nullptr)) port->Lose(link.id, why);
}

void ControlNetwork::LoseManager(Link& link, const Status& why) {
  if (Connecting* const connecting = std::exchange(link.connecting, nullptr)) connecting->Refuse();
  if (Connection* const manager = std::exchange(link.manager, nullptr)) manager->Lose(why);
}

void ControlNetwork::Break(const std::string& address) {
  for (const auto& [id, link] : std::map(links_)) {
    if (link->to_node.to != address || link->connecting != nullptr) continue;
    LoseNode(*link, PeerLost("connection reset"));
    LoseManager(*link, PeerLost(address + ": connection reset"));
  }
}

TimePoint ControlNetwork::SilentAt(const Link& link, bool manager_hears) const {
  const Wires::Way& way = manager_hears ? link.to_manager : link.to_node;
  const bool hears = manager_hears ? link.manager != nullptr : link.port != nullptr;
  const std::optional<TimePoint> since = hears ? wires_.cut_since(way.from, way.to) : std::nullopt;
  if (!since) return TimePoint::max();
  return *since + (manager_hears ? link.patience_of_manager : link.patience_of_node);
}

bool ControlNetwork::LoseSilent() {
  bool any = false;
  for (const auto& [id, link] : std::map(links_)) {
    if (SilentAt(*link, /*manager_hears=*/true) <= Clock::now()) {
      LoseManager(*link, TimedOut(link->to_node.to + " is silent"));
      LeaveNode(link);
      any = true;
    }
    if (SilentAt(*link, /*manager_hears=*/false) <= Clock::now()) {
      LoseNode(*link, TimedOut("the manager is silent"));
      LeaveManager(link);
      any = true;
    }
  }
  return any;
}

bool ControlNetwork::Deliver() {
  bool any = wires_.Deliver();
  if (wires_.any_cut()) any |= LoseSilent();
  std::erase_if(links_, [](const auto& one) {
    const Link& link = *one.second;
    return link.port == nullptr && link.manager == nullptr && link.connecting == nullptr;
  });
  return any;
}

TimePoint ControlNetwork::next() const {
  TimePoint next = wires_.next();
  if (!wires_.any_cut()) return next;
  for (const auto& [id, link] : links_)
    next = std::min({next, SilentAt(*link, true), SilentAt(*link, false)});
  return next;
}

}  // namespace lamina::testing
