#include "transport/control_listener.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "base/log.h"
#include "transport/control_connection.h"
#include "transport/tcp_socket.h"

namespace lamina {
namespace {

constexpr auto kGreetingDeadline = std::chrono::seconds(5);  // for all of it, however slowly it trickles in
constexpr size_t kMaxPendingGreetings = 256;                 // strangers that say nothing hold no more sockets than this

}  // namespace

TcpControlListener::TcpControlListener(UniqueFd socket, std::string address, const ControlOptions& options, OnAccept on_accept)
    : address_(std::move(address)), options_(options), on_accept_(std::move(on_accept)), socket_(std::move(socket)), thread_([this] {
        Run();
      }) {}

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
  std::vector<pollfd> entries = {{wake_.fd(), POLLIN, 0}};
  if (pending_.size() < kMaxPendingGreetings) entries.push_back({socket_.get(), POLLIN, 0});
  for (const Pending& pending : pending_) entries.push_back({pending.stream->fd(), pending.stream->wanted_events(), 0});
  int timeout_ms = -1;  // the destructor wakes
  if (!pending_.empty()) timeout_ms = pending_.front().deadline.RemainingMs();
  poll(entries.data(), entries.size(), timeout_ms);
}

void TcpControlListener::TakeNewPeers() {
  while (!stop_ && pending_.size() < kMaxPendingGreetings) {
    Tcp::endpoint peer;
    auto size = static_cast<socklen_t>(peer.capacity());
    UniqueFd socket(accept4(socket_.get(), peer.data(), &size, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket.valid()) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno == EAGAIN) return;
      LAMINA_LOG_WARN("control {}: {}", address_, ErrnoText("accept"));
      PauseBeforeRetry(Deadline::After(milliseconds(5)));  // out of descriptors: the peer stays in the backlog
      return;
    }
    std::string name = AddressText(peer);
    Status status = TuneSocket(socket.get());
    Result<std::unique_ptr<ControlStream>> stream = MakeControlStream(std::move(socket), ControlRole::kListener, "", options_);
    if (status.ok()) status = stream.status();
    Result<ControlGreeting> greeting = ControlGreeting::Create(ControlRole::kListener, options_);
    if (status.ok()) status = greeting.status();
    if (!status.ok()) {
      LAMINA_LOG_WARN("control {}: dropped {}: {}", address_, name, status.message());
      continue;
    }
    pending_.push_back({std::move(*stream), std::move(name), Deadline::After(kGreetingDeadline), std::move(*greeting)});
  }
}

void TcpControlListener::AdvancePending() {
  for (auto entry = pending_.begin(); entry != pending_.end() && !stop_;) {
    const Status status = entry->greeting.Advance(*entry->stream);
    if (status.code() == StatusCode::kTryAgain && !entry->deadline.Passed()) {
      ++entry;
      continue;
    }
    Pending pending = std::move(*entry);
    entry = pending_.erase(entry);
    if (status.ok()) {
      on_accept_(std::make_unique<TcpControlConnection>(std::move(pending.stream),
                                                        TcpControlConnection::Peer{pending.greeting.peer_hello(), pending.name}, options_));
    } else {
      LAMINA_LOG_WARN("control {}: dropped {}: {}", address_, pending.name, status.message());
    }
  }
}

}  // namespace lamina
