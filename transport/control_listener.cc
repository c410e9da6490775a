#include "transport/control_listener.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "base/descriptors.h"
#include "base/log.h"
#include "transport/control_connection.h"
#include "transport/rare_warning.h"
#include "transport/tcp_socket.h"

namespace lamina {
namespace {

// For the whole greeting, however slowly its bytes come.
constexpr auto kGreetingDeadline = std::chrono::seconds(5);
// Peers that have not greeted hold at most so many sockets.
constexpr size_t kMaxPendingGreetings = 256;
// How often a full listener looks for a peer that may be closed for another.
constexpr auto kFullPause = milliseconds(10);

RareWarning control_full_warning;
RareLines control_accept_lines, control_dropped_lines;

}  // namespace

TcpControlListener::TcpControlListener(UniqueFd socket, std::string address,
                                       const ControlOptions& options, OnAccept on_accept)
    : address_(std::move(address)),
      options_(options),
      on_accept_(std::move(on_accept)),
      socket_(std::move(socket)),
      thread_([this] { Run(); }) {}

TcpControlListener::~TcpControlListener() {
  stop_ = true;
  wake_.Signal();
  thread_.join();
}

void TcpControlListener::Run() {
  while (!stop_) {
    Wait();
    TakeNewPeers();
    AdvancePending();
  }
}

void TcpControlListener::Wait() {
  const TimePoint now = Clock::now();
  TimePoint next = now + std::chrono::hours(1);  // wake_ ends the wait when the destructor runs
  std::vector<pollfd> entries = {{wake_.fd(), POLLIN, 0}};
  // While no peer can be accepted the backlog must not wake the thread again and again.
  if (!IsFull() || FindRoom(pending_) != pending_.end()) {
    entries.push_back({socket_.get(), POLLIN, 0});
  } else {
    next = now + kFullPause;
  }
  for (const Pending& pending : pending_)
    entries.push_back({pending.stream->fd(), pending.stream->wanted_events(), 0});
  // The first one came first, so its deadline is the next.
  if (!pending_.empty()) next = std::min(next, pending_.front().since + kGreetingDeadline);
  poll(entries.data(), entries.size(), Deadline(next).RemainingMs());
}

bool TcpControlListener::IsFull() const {
  return pending_.size() >= kMaxPendingGreetings || (!pending_.empty() && DescriptorsAreScarce());
}

void TcpControlListener::TakeNewPeers() {
  for (int i = 0; i < kAcceptsPerTurn && !stop_; ++i) {
    const bool full = IsFull();
    const auto goes = full ? FindRoom(pending_) : pending_.end();
    if (full && goes == pending_.end()) return;
    Tcp::endpoint peer;
    auto size = static_cast<socklen_t>(peer.capacity());
    UniqueFd socket(accept4(socket_.get(), peer.data(), &size, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket.valid()) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno == EAGAIN) return;
      const Status status = DescriptorError("accept", errno);
      if (const auto rest = control_accept_lines.Admit())
        LAMINA_LOG_WARN("control {}: {}{}", address_, status.message(), *rest);
      // Out of descriptors: the peer stays in the backlog, and the listener readable. The pause
      // keeps the thread from spinning.
      PauseBeforeRetry(Deadline::After(milliseconds(5)));
      return;
    }
    if (goes != pending_.end()) {
      if (control_full_warning.IsDue())
        LAMINA_LOG_WARN(
            "control {}: {} peers have not greeted yet: {}, and others from now on, make room",
            address_, pending_.size(), goes->name);
      pending_.erase(goes);
    }
    std::string name = AddressText(peer);
    const Status status = Admit(std::move(socket), name);
    if (!status.ok()) TellDropped(name, status);
  }
}

Status TcpControlListener::Admit(UniqueFd socket, const std::string& name) {
  LAMINA_RETURN_IF_ERROR(TuneSocket(socket.get()));
  LAMINA_ASSIGN_OR_RETURN(
      std::unique_ptr<ControlStream> stream,
      MakeControlStream(std::move(socket), ControlRole::kListener, "", options_));
  LAMINA_ASSIGN_OR_RETURN(ControlGreeting greeting,
                          ControlGreeting::Create(ControlRole::kListener, options_));
  pending_.push_back({std::move(stream), name, OriginOf(name), Clock::now(), std::move(greeting)});
  return OkStatus();
}

void TcpControlListener::AdvancePending() {
  for (auto entry = pending_.begin(); entry != pending_.end() && !stop_;) {
    Status status = entry->greeting.Advance(*entry->stream);
    if (status.code() == StatusCode::kTryAgain && Clock::now() - entry->since < kGreetingDeadline) {
      ++entry;
      continue;
    }
    Pending pending = std::move(*entry);
    entry = pending_.erase(entry);
    const std::string name = pending.name;
    if (status.ok()) status = LetIn(std::move(pending));
    if (!status.ok()) TellDropped(name, status);
  }
}

void TcpControlListener::TellDropped(const std::string& name, const Status& why) const {
  if (const auto rest = control_dropped_lines.Admit())
    LAMINA_LOG_WARN("control {}: dropped {}: {}{}", address_, name, why.message(), *rest);
}

Status TcpControlListener::LetIn(Pending pending) {
  TcpControlConnection::Peer peer{pending.greeting.peer_hello(), std::move(pending.name)};
  LAMINA_ASSIGN_OR_RETURN(auto connection, TcpControlConnection::Create(std::move(pending.stream),
                                                                        std::move(peer), options_));
  on_accept_(std::move(connection));
  return OkStatus();
}

}  // namespace lamina
