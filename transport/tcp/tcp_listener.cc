#include "transport/tcp/tcp_listener.h"

#include <sys/epoll.h>

#include "base/descriptors.h"
#include "base/log.h"
#include "transport/checks.h"
#include "transport/rare_warning.h"

namespace lamina {
namespace {

using boost::system::error_code;
namespace asio = boost::asio;

constexpr auto kTcpHandshakeDeadline = std::chrono::seconds(5);
// Peers that have not greeted hold at most so many sockets.
constexpr size_t kMaxPendingOnTcp = 64;

RareWarning tcp_full_warning;
RareLines tcp_dropped_lines;

}  // namespace

TcpListener::TcpListener(TcpContext& context, Tcp::acceptor acceptor, std::string address)
    : context_(context), acceptor_(std::move(acceptor)), address_(std::move(address)) {
  context_.poll_set.Add(acceptor_.native_handle(), EPOLLIN, nullptr);
}

TcpListener::~TcpListener() {
  for (Pending& pending : pending_) context_.poll_set.Remove(pending.socket.native_handle());
  context_.poll_set.Remove(acceptor_.native_handle());
}

Status TcpListener::TakeNewPeers() {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    const bool full =
        pending_.size() >= kMaxPendingOnTcp || (!pending_.empty() && DescriptorsAreScarce());
    const auto goes = full ? FindRoom(pending_) : pending_.end();
    if (full && goes == pending_.end()) return OkStatus();
    Tcp::socket socket(context_.io);
    error_code error;
    Tcp::endpoint peer;
    acceptor_.accept(socket, peer, error);
    if (error == asio::error::would_block) return OkStatus();
    if (error == asio::error::connection_aborted) continue;
    if (error) return OutOfSpace("accept on " + address_ + ": " + error.message());
    if (goes != pending_.end()) Drop(goes);
    if (!TuneSocket(socket).ok()) continue;  // the peer is gone already
    context_.poll_set.Add(socket.native_handle(), EPOLLIN, nullptr);
    std::string name = AddressText(peer);
    std::string origin = OriginOf(name);
    pending_.push_back({std::move(socket), std::move(name), std::move(origin), Clock::now(), {}});
  }
  return OkStatus();
}

void TcpListener::Drop(std::list<Pending>::iterator stranger) {
  if (tcp_full_warning.IsDue())
    LAMINA_LOG_WARN("tcp {}: {} peers have not greeted yet: {}, and others from now on, make room",
                    address_, pending_.size(), stranger->name);
  context_.poll_set.Remove(stranger->socket.native_handle());
  pending_.erase(stranger);
}

Result<std::unique_ptr<Endpoint>> TcpListener::Accept(const EndpointOptions& options) {
  LAMINA_RETURN_IF_ERROR(CheckOptions(options, kTcpLimits));
  // Before others are taken: who has greeted makes no room for a stranger.
  Result<std::unique_ptr<Endpoint>> greeted = TakeGreeted(options);
  if (greeted.status().code() != StatusCode::kTryAgain) return greeted;
  LAMINA_RETURN_IF_ERROR(TakeNewPeers());
  return TakeGreeted(options);
}

Result<std::unique_ptr<Endpoint>> TcpListener::TakeGreeted(const EndpointOptions& options) {
  for (auto entry = pending_.begin(); entry != pending_.end();) {
    Status status = entry->greeting.Advance(entry->socket);
    if (status.code() == StatusCode::kTryAgain &&
        Clock::now() - entry->since < kTcpHandshakeDeadline) {
      ++entry;
      continue;
    }
    context_.poll_set.Remove(entry->socket.native_handle());
    Pending pending = std::move(*entry);
    entry = pending_.erase(entry);
    const bool has_greeted = status.ok();
    if (status.ok()) status = CheckMayJoin(options, pending.greeting.hello());
    if (status.ok()) {
      Result<std::unique_ptr<Endpoint>> endpoint = Finish(std::move(pending), options);
      if (endpoint.ok() || endpoint.status().code() != StatusCode::kPeerLost) return endpoint;
      status = endpoint.status();
    } else if (!has_greeted) {
      // An empty greeting tells a peer of another version which one this end speaks. It may not get
      // through; the connection ends anyway.
      (void)SendTcpGreeting(pending.socket, {});
    }
    if (const auto rest = tcp_dropped_lines.Admit())
      LAMINA_LOG_WARN("tcp {}: dropped {} during its handshake: {}{}", address_, pending.name,
                      status.message(), *rest);
  }
  return TryAgain();
}

Result<std::unique_ptr<Endpoint>> TcpListener::Finish(Pending pending,
                                                      const EndpointOptions& options) {
  LAMINA_ASSIGN_OR_RETURN(Mapping window, Mapping::Anonymous(options.window_bytes));
  LAMINA_RETURN_IF_ERROR(SendTcpGreeting(pending.socket, options));
  TcpEndpoint::Peer peer{std::move(pending.name), pending.greeting.hello(),
                         pending.greeting.window_bytes()};
  return std::unique_ptr<Endpoint>(std::make_unique<TcpEndpoint>(
      context_, std::move(pending.socket), std::move(window), std::move(peer)));
}

}  // namespace lamina
