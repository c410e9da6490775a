#include "transport/loopback/loopback_fabric.h"

#include <algorithm>
#include <deque>
#include <map>

#include "base/mutex.h"
#include "transport/checks.h"
#include "transport/loopback/loopback_endpoint.h"
#include "transport/posix.h"

namespace lamina {
namespace {

constexpr Limits kLimits{.max_ops = 64,
                         .max_outstanding = kLoopbackOutstanding,
                         .max_window_bytes = uint64_t{1} << 40,
                         .registered_sources = false,
                         .one_sided = true};

// A peer that waits to be accepted. Guarded by the directory's mutex.
struct WaitingPeer {
  // Wakes the peer, which is then not in the queue any more.
  void End(bool is_accepted) {
    (is_accepted ? accepted : refused) = true;
    connection->ends[0].waker->Notify();
  }

  std::shared_ptr<LoopbackConnection> connection;  // shared: becomes that of the two endpoints
  bool accepted = false;
  bool refused = false;  // it may not join, or the listener was destroyed
};

// A listener, as connecting peers see it: where they wait. Guarded by the directory's mutex.
struct Port {
  std::deque<WaitingPeer*> waiting;
  std::shared_ptr<LoopbackWaker> waker;  // shared: see LoopbackEnd
};

// All listeners of this process, by address.
struct Directory {
  Mutex mutex;
  std::map<std::string, Port*> ports GUARDED_BY(mutex);
};

Directory& TheDirectory() {
  static Directory directory;
  return directory;
}

class LoopbackListener final : public Listener {
 public:
  LoopbackListener(std::string address, std::shared_ptr<LoopbackWaker> waker,
                   std::vector<LoopbackListener*>& siblings,
                   std::vector<LoopbackEndpoint*>& endpoints)
      : address_(std::move(address)), siblings_(siblings), endpoints_(endpoints) {
    port_.waker = std::move(waker);
    siblings_.push_back(this);
  }

  ~LoopbackListener() override {
    std::erase(siblings_, this);
    Directory& directory = TheDirectory();
    MutexLock lock(directory.mutex);
    for (WaitingPeer* peer : port_.waiting) peer->End(false);
    const auto entry = directory.ports.find(address_);
    if (entry != directory.ports.end() && entry->second == &port_) directory.ports.erase(entry);
  }

  // Lets peers find this listener. False if the address is in use.
  bool Publish() {
    Directory& directory = TheDirectory();
    MutexLock lock(directory.mutex);
    return directory.ports.emplace(address_, &port_).second;
  }

  Result<std::unique_ptr<Endpoint>> Accept(const EndpointOptions& options) override {
    LAMINA_RETURN_IF_ERROR(CheckOptions(options, kLimits));
    if (!HasWork()) return TryAgain();
    LAMINA_ASSIGN_OR_RETURN(Mapping window, Mapping::Anonymous(options.window_bytes));
    Directory& directory = TheDirectory();
    MutexLock lock(directory.mutex);
    // Asked again under the same lock as the rest: the peer may have given up meanwhile.
    if (port_.waiting.empty()) return TryAgain();
    WaitingPeer* peer = port_.waiting.front();
    port_.waiting.pop_front();
    // The peer waits for it, so it is told, and nothing is logged.
    if (!CheckMayJoin(options, peer->connection->ends[0].hello).ok()) {
      peer->End(false);
      return TryAgain();
    }
    LoopbackEnd& end = peer->connection->ends[1];
    end.window = std::move(window);
    end.hello = options.hello;
    end.waker = port_.waker;
    peer->End(true);
    return std::unique_ptr<Endpoint>(std::make_unique<LoopbackEndpoint>(
        peer->connection, 1, "a peer of loopback " + address_, kLimits, endpoints_));
  }

  const std::string& address() const override { return address_; }

  bool HasWork() const {
    MutexLock lock(TheDirectory().mutex);
    return !port_.waiting.empty();
  }

 private:
  const std::string address_;
  Port port_;
  std::vector<LoopbackListener*>& siblings_;
  std::vector<LoopbackEndpoint*>& endpoints_;
};

class LoopbackConnecting final : public Connecting {
 public:
  // `connection` has all of this end. `siblings` lists the connections of the same fabric that are
  // being made; this one adds itself, and its destructor removes it.
  LoopbackConnecting(std::shared_ptr<LoopbackConnection> connection, std::string address,
                     Deadline deadline, std::vector<LoopbackConnecting*>& siblings,
                     std::vector<LoopbackEndpoint*>& endpoints)
      : address_(std::move(address)),
        deadline_(deadline),
        siblings_(siblings),
        endpoints_(endpoints),
        peer_{.connection = std::move(connection)} {
    siblings_.push_back(this);
  }

  ~LoopbackConnecting() override {
    std::erase(siblings_, this);
    if (!is_over_) GiveUp();
  }

  Result<std::unique_ptr<Endpoint>> Poll() override {
    Directory& directory = TheDirectory();
    MutexLock lock(directory.mutex);
    if (port_ == nullptr && !Knock(directory)) {
      if (deadline_.Passed()) return TimedOut(Name() + ": nobody listens there");
      next_attempt_ = Clock::now() + kRetryPause;
      return TryAgain();
    }
    if (!peer_.accepted && !peer_.refused) {
      if (deadline_.Passed()) return TimedOut(Name() + ": the peer listens but does not accept");
      return TryAgain();
    }
    is_over_ = true;
    if (peer_.refused) return PeerLost(Name() + ": the listener refused this peer, or went away");
    return MakeEndpoint();
  }

  TimePoint wake_at() const override {
    return port_ == nullptr ? std::min(next_attempt_, deadline_.at()) : deadline_.at();
  }

  // For Fabric::Arm: whether Poll would not return kTryAgain. If it would, the listener notifies
  // the waker when that changes.
  bool HasWork() const {
    MutexLock lock(TheDirectory().mutex);
    return !is_over_ && (peer_.accepted || peer_.refused);
  }

 private:
  std::string Name() const { return "loopback " + address_; }

  // Joins the queue of the listener, if there is one.
  bool Knock(Directory& directory) REQUIRES(directory.mutex) {
    const auto found = directory.ports.find(address_);
    if (found == directory.ports.end()) return false;
    port_ = found->second;
    port_->waiting.push_back(&peer_);
    port_->waker->Notify();
    return true;
  }

  void GiveUp() {
    MutexLock lock(TheDirectory().mutex);
    if (peer_.accepted) {
      (void)MakeEndpoint();  // closes the connection at once, which the accepting end sees
    } else if (port_ != nullptr && !peer_.refused) {
      std::erase(port_->waiting, &peer_);
    }
  }

  std::unique_ptr<Endpoint> MakeEndpoint() {
    return std::make_unique<LoopbackEndpoint>(peer_.connection, 0, Name(), kLimits, endpoints_);
  }

  const std::string address_;
  const Deadline deadline_;
  std::vector<LoopbackConnecting*>& siblings_;
  std::vector<LoopbackEndpoint*>& endpoints_;
  WaitingPeer peer_;
  // The listener whose queue this peer has joined, null before that. Not used once the listener has
  // taken the peer out again, for then it may be gone.
  Port* port_ = nullptr;
  TimePoint next_attempt_{};
  bool is_over_ = false;  // Poll has returned the outcome
};

class LoopbackFabric final : public Fabric {
 public:
  std::string_view name() const override { return "loopback"; }
  const Limits& limits() const override { return kLimits; }
  Result<std::unique_ptr<Buffer>> Allocate(size_t bytes) override {
    return AllocateMappedBuffer(bytes);
  }

  Result<std::unique_ptr<Listener>> Listen(const std::string& address) override {
    auto listener = std::make_unique<LoopbackListener>(address, waker_, listeners_, endpoints_);
    if (!listener->Publish()) return OutOfSpace("loopback address in use: " + address);
    return std::unique_ptr<Listener>(std::move(listener));
  }

  Result<std::unique_ptr<Connecting>> StartConnect(const std::string& address,
                                                   const EndpointOptions& options,
                                                   Deadline deadline) override {
    LAMINA_RETURN_IF_ERROR(CheckOptions(options, kLimits));
    LAMINA_ASSIGN_OR_RETURN(Mapping window, Mapping::Anonymous(options.window_bytes));
    auto connection = std::make_shared<LoopbackConnection>();
    connection->ends[0].window = std::move(window);
    connection->ends[0].hello = options.hello;
    connection->ends[0].waker = waker_;
    return std::unique_ptr<Connecting>(std::make_unique<LoopbackConnecting>(
        std::move(connection), address, deadline, connecting_, endpoints_));
  }

  bool Arm() override {
    waker_->Arm();
    for (LoopbackEndpoint* endpoint : endpoints_) {
      if (endpoint->HasWork()) return false;
    }
    for (LoopbackListener* listener : listeners_) {
      if (listener->HasWork()) return false;
    }
    for (LoopbackConnecting* connecting : connecting_) {
      if (connecting->HasWork()) return false;
    }
    return true;
  }

  int event_fd() const override { return waker_->fd(); }

 private:
  // Shared: see LoopbackEnd.
  const std::shared_ptr<LoopbackWaker> waker_ = std::make_shared<LoopbackWaker>();
  std::vector<LoopbackEndpoint*> endpoints_;
  std::vector<LoopbackListener*> listeners_;
  std::vector<LoopbackConnecting*> connecting_;
};

}  // namespace

std::unique_ptr<Fabric> OpenLoopbackFabric() { return std::make_unique<LoopbackFabric>(); }

}  // namespace lamina
