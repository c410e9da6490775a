#include "transport/rendezvous.h"

#include <fmt/format.h>
#include <sys/epoll.h>

#include <algorithm>
#include <optional>

#include "base/descriptors.h"
#include "base/log.h"
#include "transport/checks.h"
#include "transport/rare_warning.h"
#include "transport/strangers.h"

namespace lamina {
namespace {

using boost::system::error_code;
namespace asio = boost::asio;

// For the whole handshake of a peer. A NIC takes seconds to register a window of many GB.
constexpr auto kRendezvousDeadline = std::chrono::seconds(20);
// Peers whose handshake is not complete hold at most so many sockets (strangers.h).
constexpr size_t kMaxPendingRendezvous = 64;
// How often to look whether a connection has settled.
constexpr auto kSettlePause = milliseconds(1);

RareWarning rendezvous_full_warning;
RareLines rendezvous_dropped_lines;

// Whether an error ends one peer only: it is gone, too slow, or came over a network for which the
// fabric has no NIC. Other errors are this end's, and Accept returns them.
bool IsThePeersOwn(StatusCode code) {
  return code == StatusCode::kPeerLost || code == StatusCode::kTryAgain ||
         code == StatusCode::kNotFound || code == StatusCode::kTimeout;
}

// The connecting end of a handshake, in the order that rendezvous.h shows.
class RendezvousConnecting final : public Connecting {
 public:
  RendezvousConnecting(RendezvousHost& host, const std::string& address,
                       const EndpointOptions& options, Deadline deadline)
      : host_(host),
        address_(address),
        options_(options),
        deadline_(deadline),
        connector_(host.io(), address, deadline, &host.poll_set()) {}

  Result<std::unique_ptr<Endpoint>> Poll() override {
    if (!link_) {
      LAMINA_ASSIGN_OR_RETURN(Tcp::socket socket, connector_.Poll());
      link_.emplace(std::move(socket), address_);
      entry_.emplace(host_.poll_set(), link_->fd(), EPOLLIN);
    }
    Status status = Advance();
    if (status.code() == StatusCode::kTryAgain) {
      settle_again_ = Clock::now() + kSettlePause;
      if (!deadline_.Passed()) return status;
      status = TimedOut(has_joined_
                            ? "the peer answers over TCP, but the fabric does not get through to it"
                            : "connected, but the peer does not accept");
    }
    if (!status.ok()) return status.WithContext(address_);
    entry_.reset();
    Result<std::unique_ptr<Endpoint>> endpoint = end_->Finish(*std::move(link_));
    if (!endpoint.ok()) return endpoint.status().WithContext(address_);
    return endpoint;
  }

  TimePoint wake_at() const override {
    if (!link_) return connector_.wake_at();
    // Settle has no descriptor to wait for.
    return has_joined_ ? std::min(settle_again_, deadline_.at()) : deadline_.at();
  }

 private:
  // Ok when both ends can finish; kTryAgain while the peer has to do something first.
  Status Advance() {
    if (end_ == nullptr) LAMINA_RETURN_IF_ERROR(Greet());
    if (!has_joined_) LAMINA_RETURN_IF_ERROR(Join());
    const Status settled = end_->Settle();
    if (settled.code() == StatusCode::kTryAgain) LAMINA_RETURN_IF_ERROR(link_->CheckAlive());
    LAMINA_RETURN_IF_ERROR(settled);
    return link_->SendReady();
  }

  Status Greet() {
    LAMINA_ASSIGN_OR_RETURN(const asio::ip::address local, link_->LocalAddress());
    LAMINA_ASSIGN_OR_RETURN(end_, host_.NewEnd(local, options_));
    return link_->SendGreeting(host_.name(), options_, end_->Offer());
  }

  Status Join() {
    LAMINA_RETURN_IF_ERROR(link_->ReceiveGreeting(host_.name()));
    // RendezvousEnd::Join expects a peer that was alive just before.
    LAMINA_RETURN_IF_ERROR(link_->CheckAlive());
    LAMINA_RETURN_IF_ERROR(end_->Join(link_->peer()));
    has_joined_ = true;
    return OkStatus();
  }

  RendezvousHost& host_;
  const std::string address_;
  const EndpointOptions options_;
  const Deadline deadline_;
  TcpConnector connector_;
  std::optional<RendezvousLink> link_;  // empty until the socket is connected
  std::optional<PollEntry> entry_;      // of link_; after it, to be given up before
  std::unique_ptr<RendezvousEnd> end_;  // null until then too
  bool has_joined_ = false;
  TimePoint settle_again_{};
};

}  // namespace

Result<std::unique_ptr<Connecting>> StartRendezvous(RendezvousHost& host,
                                                    const std::string& address,
                                                    const EndpointOptions& options,
                                                    Deadline deadline) {
  LAMINA_RETURN_IF_ERROR(CheckOptions(options, host.limits()));
  return std::unique_ptr<Connecting>(
      std::make_unique<RendezvousConnecting>(host, address, options, deadline));
}

Result<std::unique_ptr<Listener>> RendezvousListener::Create(RendezvousHost& host,
                                                             const std::string& address) {
  LAMINA_ASSIGN_OR_RETURN(Tcp::acceptor acceptor, ListenTcp(host.io(), address));
  error_code error;
  const asio::ip::address local = Unwrapped(acceptor.local_endpoint(error).address());
  // A listener on all interfaces finds out with each peer which NIC leads to it.
  if (!error && !local.is_unspecified()) {
    const Status status = host.CheckAddress(local);
    if (!status.ok()) return status.WithContext(address);
  }
  std::string bound = BoundAddress(acceptor);
  return std::unique_ptr<Listener>(
      new RendezvousListener(host, std::move(acceptor), std::move(bound)));
}

RendezvousListener::RendezvousListener(RendezvousHost& host, Tcp::acceptor acceptor,
                                       std::string address)
    : host_(host), acceptor_(std::move(acceptor)), address_(std::move(address)) {
  host_.poll_set().Add(acceptor_.native_handle(), EPOLLIN, nullptr);
}

RendezvousListener::~RendezvousListener() {
  for (Pending& pending : pending_) host_.poll_set().Remove(pending.link.fd());
  host_.poll_set().Remove(acceptor_.native_handle());
}

Status RendezvousListener::TakeNewPeers() {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    const bool full =
        pending_.size() >= kMaxPendingRendezvous || (!pending_.empty() && DescriptorsAreScarce());
    // A peer that has greeted and may join does not make room for a stranger.
    const auto goes =
        full ? FindRoom(pending_, [](const Pending& peer) { return peer.end == nullptr; })
             : pending_.end();
    if (full && goes == pending_.end()) return OkStatus();
    Tcp::socket socket(host_.io());
    error_code error;
    Tcp::endpoint peer;
    acceptor_.accept(socket, peer, error);
    if (error == asio::error::would_block) return OkStatus();
    if (error == asio::error::connection_aborted) continue;
    if (error) return OutOfSpace("accept on " + address_ + ": " + error.message());
    if (goes != pending_.end()) Drop(goes);
    if (!TuneSocket(socket).ok()) continue;  // the peer is gone already
    host_.poll_set().Add(socket.native_handle(), EPOLLIN, nullptr);
    const std::string name = AddressText(peer);
    pending_.push_back({RendezvousLink(std::move(socket), name), OriginOf(name), Clock::now(),
                        Deadline::After(kRendezvousDeadline)});
  }
  return OkStatus();
}

void RendezvousListener::Drop(std::list<Pending>::iterator stranger) {
  if (rendezvous_full_warning.IsDue())
    LAMINA_LOG_WARN("{} {}: {} peers have not greeted yet: {}, and others from now on, make room",
                    host_.name(), address_, pending_.size(), stranger->link.peer().name);
  host_.poll_set().Remove(stranger->link.fd());
  pending_.erase(stranger);
}

Result<std::unique_ptr<Endpoint>> RendezvousListener::Accept(const EndpointOptions& options) {
  LAMINA_RETURN_IF_ERROR(CheckOptions(options, host_.limits()));
  // Before others are taken: who has greeted makes no room for a stranger.
  Result<std::unique_ptr<Endpoint>> greeted = TakeGreeted(options);
  if (greeted.status().code() != StatusCode::kTryAgain) return greeted;
  LAMINA_RETURN_IF_ERROR(TakeNewPeers());
  return TakeGreeted(options);
}

Result<std::unique_ptr<Endpoint>> RendezvousListener::TakeGreeted(const EndpointOptions& options) {
  for (auto entry = pending_.begin(); entry != pending_.end();) {
    Status status = Advance(*entry, options);
    if (status.code() == StatusCode::kTryAgain && !entry->deadline.Passed()) {
      ++entry;
      continue;
    }
    if (status.code() == StatusCode::kTryAgain)
      status = TimedOut(fmt::format("it is not complete after {} s", kRendezvousDeadline.count()));
    host_.poll_set().Remove(entry->link.fd());
    Pending pending = std::move(*entry);
    entry = pending_.erase(entry);
    const std::string name = pending.link.peer().name;
    if (status.ok()) {
      Result<std::unique_ptr<Endpoint>> endpoint = pending.end->Finish(std::move(pending.link));
      if (endpoint.ok()) return endpoint;
      status = endpoint.status();
    }
    if (!IsThePeersOwn(status.code())) return status.WithContext(name);
    if (const auto rest = rendezvous_dropped_lines.Admit())
      LAMINA_LOG_WARN("{} {}: dropped {} during its handshake: {}{}", host_.name(), address_, name,
                      status.message(), *rest);
  }
  return TryAgain();
}

Status RendezvousListener::Advance(Pending& pending, const EndpointOptions& options) {
  if (!pending.end) {
    const Status status = pending.link.ReceiveGreeting(host_.name());
    if (status.code() == StatusCode::kTryAgain) return status;
    if (!status.ok()) {
      // An empty greeting tells the peer which fabric and version this end speaks. It may not get
      // through; the connection ends anyway.
      (void)pending.link.SendGreeting(host_.name(), {}, {});
      return status;
    }
    LAMINA_RETURN_IF_ERROR(CheckMayJoin(options, pending.link.peer().hello));
    LAMINA_RETURN_IF_ERROR(Answer(pending, options));
  }
  // Settling and the ready byte may come in either order; both are needed.
  const Status settled = pending.end->Settle();
  if (!settled.ok() && settled.code() != StatusCode::kTryAgain) return settled;
  if (pending.is_ready) {
    LAMINA_RETURN_IF_ERROR(pending.link.CheckAlive());
  } else {
    LAMINA_RETURN_IF_ERROR(pending.link.ReceiveReady());
    pending.is_ready = true;
  }
  return settled;
}

Status RendezvousListener::Answer(Pending& pending, const EndpointOptions& options) {
  LAMINA_ASSIGN_OR_RETURN(const asio::ip::address local, pending.link.LocalAddress());
  LAMINA_ASSIGN_OR_RETURN(pending.end, host_.NewEnd(local, options));
  LAMINA_RETURN_IF_ERROR(pending.link.CheckAlive());
  LAMINA_RETURN_IF_ERROR(pending.end->Join(pending.link.peer()));
  // The time that this end took to register its window does not count against the peer.
  pending.deadline = Deadline::After(kRendezvousDeadline);
  return pending.link.SendGreeting(host_.name(), options, pending.end->Offer());
}

}  // namespace lamina
