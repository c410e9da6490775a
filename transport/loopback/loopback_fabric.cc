#include "transport/loopback/loopback_fabric.h"

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

// A peer that waits in Connect. Guarded by the directory's mutex.
struct WaitingPeer {
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
  CondVar changed;  // a peer was accepted or refused, or a listener appeared
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
    for (WaitingPeer* peer : port_.waiting) peer->refused = true;
    const auto entry = directory.ports.find(address_);
    if (entry != directory.ports.end() && entry->second == &port_) directory.ports.erase(entry);
    directory.changed.NotifyAll();
  }

  // Lets peers find this listener. False if the address is in use.
  bool Publish() {
    Directory& directory = TheDirectory();
    MutexLock lock(directory.mutex);
    const bool added = directory.ports.emplace(address_, &port_).second;
    directory.changed.NotifyAll();
    return added;
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
    // The peer waits in Connect, so it is told, and nothing is logged.
    if (!CheckMayJoin(options, peer->connection->ends[0].hello).ok()) {
      peer->refused = true;
      directory.changed.NotifyAll();
      return TryAgain();
    }
    LoopbackEnd& end = peer->connection->ends[1];
    end.window = std::move(window);
    end.hello = options.hello;
    end.waker = port_.waker;
    peer->accepted = true;
    directory.changed.NotifyAll();
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

  Result<std::unique_ptr<Endpoint>> Connect(const std::string& address,
                                            const EndpointOptions& options,
                                            Deadline deadline) override;

  bool Arm() override {
    waker_->Arm();
    for (LoopbackEndpoint* endpoint : endpoints_) {
      if (endpoint->HasWork()) return false;
    }
    for (LoopbackListener* listener : listeners_) {
      if (listener->HasWork()) return false;
    }
    return true;
  }

  int event_fd() const override { return waker_->fd(); }

 private:
  // Shared: see LoopbackEnd.
  const std::shared_ptr<LoopbackWaker> waker_ = std::make_shared<LoopbackWaker>();
  std::vector<LoopbackEndpoint*> endpoints_;
  std::vector<LoopbackListener*> listeners_;
};

Result<std::unique_ptr<Endpoint>> LoopbackFabric::Connect(const std::string& address,
                                                          const EndpointOptions& options,
                                                          Deadline deadline) {
  LAMINA_RETURN_IF_ERROR(CheckOptions(options, kLimits));
  WaitingPeer peer{.connection = std::make_shared<LoopbackConnection>()};
  LoopbackEnd& end = peer.connection->ends[0];
  LAMINA_ASSIGN_OR_RETURN(end.window, Mapping::Anonymous(options.window_bytes));
  end.hello = options.hello;
  end.waker = waker_;

  Directory& directory = TheDirectory();
  MutexLock lock(directory.mutex);
  while (!directory.ports.contains(address)) {
    if (!directory.changed.WaitUntil(lock, deadline.at()))
      return TimedOut("loopback " + address + ": nobody listens there");
  }
  Port& port = *directory.ports.at(address);
  port.waiting.push_back(&peer);
  port.waker->Notify();
  // `port` is not used below unless the listener still has this peer in its queue: a listener that
  // goes refuses those in there.
  while (!peer.accepted && !peer.refused) {
    if (directory.changed.WaitUntil(lock, deadline.at())) continue;
    std::erase(port.waiting, &peer);
    return TimedOut("loopback " + address + ": the peer listens but does not accept");
  }
  if (peer.refused)
    return PeerLost("loopback " + address + ": the listener refused this peer, or went away");
  return std::unique_ptr<Endpoint>(std::make_unique<LoopbackEndpoint>(
      peer.connection, 0, "loopback " + address, kLimits, endpoints_));
}

}  // namespace

std::unique_ptr<Fabric> OpenLoopbackFabric() { return std::make_unique<LoopbackFabric>(); }

}  // namespace lamina
