#include "transport/shm/shm_fabric.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <list>
#include <optional>

#include "base/descriptors.h"
#include "base/log.h"
#include "transport/checks.h"
#include "transport/rare_warning.h"
#include "transport/sealed_memory.h"
#include "transport/shm/shm_endpoint.h"
#include "transport/strangers.h"

namespace lamina {
namespace {

constexpr auto kShmHandshakeDeadline = std::chrono::seconds(5);
// Peers that have not greeted hold at most so many sockets (strangers.h).
constexpr size_t kMaxPendingOnShm = 64;

RareWarning shm_full_warning;
RareLines shm_dropped_lines;

// Makes this end's segment, hands it to the peer with the greeting, and returns its mapping.
Result<Mapping> OfferSegment(int socket, const EndpointOptions& options, int wake) {
  const size_t bytes = kShmControlBytes + options.window_bytes;
  LAMINA_ASSIGN_OR_RETURN(const UniqueFd segment, CreateSealedMemory(bytes));
  LAMINA_ASSIGN_OR_RETURN(Mapping mapping, Mapping::Shared(segment.get(), bytes));
  LAMINA_RETURN_IF_ERROR(SendShmGreeting(socket, options, segment.get(), wake));
  return mapping;
}

class ShmListener final : public Listener {
 public:
  ShmListener(ShmContext& context, UniqueFd socket, std::string name)
      : context_(context), socket_(std::move(socket)), name_(std::move(name)) {
    context_.poll_set.Add(socket_.get(), EPOLLIN, nullptr);
  }

  ~ShmListener() override {
    for (Pending& pending : pending_) context_.poll_set.Remove(pending.socket.get());
    context_.poll_set.Remove(socket_.get());
  }

  Result<std::unique_ptr<Endpoint>> Accept(const EndpointOptions& options) override;
  const std::string& address() const override { return name_; }

 private:
  // A peer whose greeting has not come.
  struct Pending {
    UniqueFd socket;
    int pid;
    std::string origin;  // the process id, for FindRoom
    TimePoint since;
  };

  Status TakeNewPeers();
  // The next peer that has greeted, of those that were taken.
  Result<std::unique_ptr<Endpoint>> TakeGreeted(const EndpointOptions& options);
  Result<std::unique_ptr<Endpoint>> Finish(UniqueFd socket, ShmPeer peer,
                                           const EndpointOptions& options);

  ShmContext& context_;
  UniqueFd socket_;
  const std::string name_;
  std::list<Pending> pending_;
};

Status ShmListener::TakeNewPeers() {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    const bool full =
        pending_.size() >= kMaxPendingOnShm || (!pending_.empty() && DescriptorsAreScarce());
    const auto goes = full ? FindRoom(pending_) : pending_.end();
    if (full && goes == pending_.end()) return OkStatus();
    UniqueFd socket(accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket.valid()) {
      if (errno == EAGAIN) return OkStatus();
      if (errno == EINTR || errno == ECONNABORTED) continue;
      return OutOfSpace(ErrnoText("accept on shm " + name_));
    }
    // Before another peer is dropped for it: no other user can take anybody's place.
    int pid = 0;
    if (const Status status = CheckShmCredentials(socket.get(), pid); !status.ok()) {
      if (const auto rest = shm_dropped_lines.Admit())
        LAMINA_LOG_WARN("shm {}: dropped a peer: {}{}", name_, status.message(), *rest);
      continue;
    }
    if (goes != pending_.end()) {
      if (shm_full_warning.IsDue())
        LAMINA_LOG_WARN(
            "shm {}: {} peers have not greeted yet: process {}, and others from now on, make room",
            name_, pending_.size(), goes->pid);
      context_.poll_set.Remove(goes->socket.get());
      pending_.erase(goes);
    }
    context_.poll_set.Add(socket.get(), EPOLLIN, nullptr);
    pending_.push_back({std::move(socket), pid, std::to_string(pid), Clock::now()});
  }
  return OkStatus();
}

Result<std::unique_ptr<Endpoint>> ShmListener::Accept(const EndpointOptions& options) {
  LAMINA_RETURN_IF_ERROR(CheckOptions(options, kShmLimits));
  // Before others are taken: who has greeted makes no room for a stranger.
  Result<std::unique_ptr<Endpoint>> greeted = TakeGreeted(options);
  if (greeted.status().code() != StatusCode::kTryAgain) return greeted;
  LAMINA_RETURN_IF_ERROR(TakeNewPeers());
  return TakeGreeted(options);
}

Result<std::unique_ptr<Endpoint>> ShmListener::TakeGreeted(const EndpointOptions& options) {
  for (auto entry = pending_.begin(); entry != pending_.end();) {
    Result<ShmPeer> peer = ReceiveShmGreeting(entry->socket.get());
    Status status = peer.status();
    if (status.code() == StatusCode::kTryAgain &&
        Clock::now() - entry->since < kShmHandshakeDeadline) {
      ++entry;
      continue;
    }
    context_.poll_set.Remove(entry->socket.get());
    Pending pending = std::move(*entry);
    entry = pending_.erase(entry);
    if (peer.ok()) status = CheckMayJoin(options, peer->hello);
    if (status.ok()) {
      peer->name = name_ + " (process " + std::to_string(pending.pid) + ")";
      Result<std::unique_ptr<Endpoint>> endpoint =
          Finish(std::move(pending.socket), std::move(peer).value(), options);
      if (endpoint.ok() || endpoint.status().code() != StatusCode::kPeerLost) return endpoint;
      status = endpoint.status();
    } else if (!peer.ok()) {
      // An empty greeting tells a peer of another version which one this end speaks. It may not get
      // through; the connection ends anyway.
      const ShmGreeting greeting;
      (void)send(pending.socket.get(), &greeting, sizeof(greeting), MSG_NOSIGNAL);
    }
    if (const auto rest = shm_dropped_lines.Admit())
      LAMINA_LOG_WARN("shm {}: dropped process {} during its handshake: {}{}", name_, pending.pid,
                      status.message(), *rest);
  }
  return TryAgain();
}

Result<std::unique_ptr<Endpoint>> ShmListener::Finish(UniqueFd socket, ShmPeer peer,
                                                      const EndpointOptions& options) {
  LAMINA_ASSIGN_OR_RETURN(Mapping segment, OfferSegment(socket.get(), options, context_.wake.fd()));
  return ShmEndpoint::Create(context_, std::move(socket), std::move(segment), std::move(peer));
}

// Connects the socket, which takes no time while somebody listens, and exchanges greetings on it.
class ShmConnecting final : public Connecting {
 public:
  ShmConnecting(ShmContext& context, const std::string& name, const EndpointOptions& options,
                Deadline deadline)
      : context_(context), name_(name), options_(options), deadline_(deadline) {}

  Result<std::unique_ptr<Endpoint>> Poll() override {
    if (!socket_.valid()) LAMINA_RETURN_IF_ERROR(Reach());
    Result<ShmPeer> peer = ReceiveShmGreeting(socket_.get());
    if (peer.status().code() == StatusCode::kTryAgain) {
      if (!deadline_.Passed()) return peer.status();
      return TimedOut("shm " + name_ + ": connected, but the peer does not accept");
    }
    if (!peer.ok()) return peer.status().WithContext("shm " + name_);
    peer->name = "shm " + name_;
    entry_.reset();
    return ShmEndpoint::Create(context_, std::move(socket_), std::move(segment_),
                               std::move(peer).value());
  }

  TimePoint wake_at() const override {
    return socket_.valid() ? deadline_.at() : std::min(next_attempt_, deadline_.at());
  }

 private:
  // Ok once this end has greeted; kTryAgain while nobody listens.
  Status Reach();

  ShmContext& context_;
  const std::string name_;
  const EndpointOptions options_;
  const Deadline deadline_;
  TimePoint next_attempt_{};
  UniqueFd socket_;                 // invalid until it is connected
  std::optional<PollEntry> entry_;  // of socket_; after it, to be given up before
  Mapping segment_;
};

Status ShmConnecting::Reach() {
  if (Clock::now() < next_attempt_ && !deadline_.Passed()) return TryAgain();
  Result<UniqueFd> socket = TryConnectShm(name_);
  if (socket.status().code() == StatusCode::kTryAgain) {
    if (deadline_.Passed()) return TimedOut(socket.status().message());
    next_attempt_ = Clock::now() + kRetryPause;
    return TryAgain();
  }
  LAMINA_RETURN_IF_ERROR(socket.status());
  socket_ = *std::move(socket);
  entry_.emplace(context_.poll_set, socket_.get(), EPOLLIN);
  // Any user's process may listen at an abstract name, and this end hands over its memory.
  int pid = 0;
  LAMINA_RETURN_IF_ERROR(CheckShmCredentials(socket_.get(), pid).WithContext("shm " + name_));
  Result<Mapping> segment = OfferSegment(socket_.get(), options_, context_.wake.fd());
  if (!segment.ok()) return segment.status().WithContext("shm " + name_);
  segment_ = *std::move(segment);
  return OkStatus();
}

class ShmFabric final : public Fabric {
 public:
  std::string_view name() const override { return "shm"; }
  const Limits& limits() const override { return kShmLimits; }
  Result<std::unique_ptr<Buffer>> Allocate(size_t bytes) override {
    return AllocateMappedBuffer(bytes);
  }

  Result<std::unique_ptr<Listener>> Listen(const std::string& address) override {
    LAMINA_ASSIGN_OR_RETURN(UniqueFd socket, ListenShm(address));
    return std::unique_ptr<Listener>(
        std::make_unique<ShmListener>(context_, std::move(socket), address));
  }

  Result<std::unique_ptr<Connecting>> StartConnect(const std::string& address,
                                                   const EndpointOptions& options,
                                                   Deadline deadline) override {
    LAMINA_RETURN_IF_ERROR(CheckOptions(options, kShmLimits));
    return std::unique_ptr<Connecting>(
        std::make_unique<ShmConnecting>(context_, address, options, deadline));
  }

  bool Arm() override {
    // Cleared before the announcements, so that a signal which answers one of them stays.
    context_.wake.Clear();
    // All announcements before the first look: see ShmControl.
    for (ShmEndpoint* endpoint : context_.endpoints) endpoint->AnnounceSleep();
    for (ShmEndpoint* endpoint : context_.endpoints) {
      if (endpoint->HasWork()) return false;
    }
    context_.may_have_slept = true;
    return true;
  }

  int event_fd() const override { return context_.poll_set.fd(); }

 private:
  ShmContext context_;
};

}  // namespace

std::unique_ptr<Fabric> OpenShmFabric() { return std::make_unique<ShmFabric>(); }

}  // namespace lamina
