#include "transport/control_connection.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "base/log.h"
#include "base/mutex.h"
#include "base/printable.h"

namespace lamina {
namespace {

constexpr size_t kMaxUnsentBytes = size_t{256} << 20;
constexpr size_t kReadBytes = size_t{256} << 10;  // per Read
constexpr size_t kShownHelloBytes = 100;          // who a node says it is takes a few words

}  // namespace

Result<std::unique_ptr<ControlConnection>> TcpControlConnection::Create(
    std::unique_ptr<ControlStream> stream, Peer peer, const ControlOptions& options) {
  LAMINA_ASSIGN_OR_RETURN(WakeFd wake, WakeFd::Create());
  try {
    return std::unique_ptr<ControlConnection>(
        new TcpControlConnection(std::move(stream), std::move(peer), options, std::move(wake)));
  } catch (const std::system_error& error) {  // from std::thread
    return OutOfSpace(std::string("starting a connection's thread: ") + error.what());
  }
}

TcpControlConnection::TcpControlConnection(std::unique_ptr<ControlStream> stream, Peer peer,
                                           const ControlOptions& options, WakeFd wake)
    : peer_{Briefly(peer.hello, kShownHelloBytes), std::move(peer.address)},
      options_(options),
      wake_(std::move(wake)),
      stream_(std::move(stream)),
      last_sent_(Clock::now()),
      read_buffer_(kReadBytes, '\0'),
      last_heard_(last_sent_),
      thread_([this] { Run(); }) {}

TcpControlConnection::~TcpControlConnection() {
  Abort();
  MutexLock lock(join_mutex_);
  if (thread_.joinable()) thread_.join();
}

void TcpControlConnection::Abort() {
  {
    MutexLock lock(mutex_);
    wish_.abort = true;
  }
  wake_.Signal();
}

void TcpControlConnection::Start(Callbacks callbacks) {
  {
    MutexLock lock(mutex_);
    callbacks_ = std::move(callbacks);
    wish_.started = true;
  }
  wake_.Signal();
}

Status TcpControlConnection::Send(uint16_t type, std::string payload) {
  if (type < kFirstUserType)
    return InvalidArgument("frame type " + std::to_string(type) +
                           " belongs to the control channel");
  if (payload.size() > kMaxFrameBytes) {
    return InvalidArgument("frame of " + std::to_string(payload.size()) + " bytes; at most " +
                           std::to_string(kMaxFrameBytes));
  }
  MutexLock lock(mutex_);
  if (!lost_.ok()) return PeerLost(lost_.message());
  if (wish_.close_deadline.has_value())
    return PeerLost(peer_.hello + " at " + peer_.address + ": the connection is closed");
  if (unsent_bytes_ > kMaxUnsentBytes) {
    return OutOfSpace(peer_.hello + " at " + peer_.address +
                      " does not read: " + std::to_string(unsent_bytes_) + " bytes are unsent");
  }
  const bool was_empty = outbox_.empty();
  Enqueue(type, std::move(payload));
  if (!was_empty) return OkStatus();  // the thread waits to write what is queued already
  WriteQueued();                      // at once, which saves waking the thread
  if (!outbox_.empty()) wake_.Signal();
  return OkStatus();
}

void TcpControlConnection::Enqueue(uint16_t type, std::string payload) {
  outbox_.push_back(
      {EncodeControlHeader(type, static_cast<uint32_t>(payload.size())), std::move(payload)});
  unsent_bytes_ += outbox_.back().bytes();
}

void TcpControlConnection::Close(Deadline deadline) {
  {
    MutexLock lock(mutex_);
    // The first call's deadline holds: the thread may have acted on it.
    if (!wish_.close_deadline.has_value()) wish_.close_deadline = deadline;
  }
  wake_.Signal();
  MutexLock lock(join_mutex_);
  if (thread_.joinable()) thread_.join();
}

size_t TcpControlConnection::WriteSome(const OutgoingFrame& frame) {
  const size_t header_done = std::min(front_sent_bytes_, frame.header.size());
  const size_t payload_done = front_sent_bytes_ - header_done;
  const Result<size_t> sent =
      stream_->Write({frame.header.data() + header_done, frame.header.size() - header_done},
                     {frame.payload.data() + payload_done, frame.payload.size() - payload_done});
  if (sent.ok()) return *sent;
  wants_writable_ = sent.status().code() == StatusCode::kTryAgain;
  if (!wants_writable_) lost_ = sent.status().WithContext(peer_.hello + " at " + peer_.address);
  return 0;
}

void TcpControlConnection::WriteQueued() {
  wants_writable_ = false;
  while (lost_.ok() && !outbox_.empty()) {
    const size_t sent = WriteSome(outbox_.front());
    if (wants_writable_) return;
    last_sent_ = Clock::now();
    front_sent_bytes_ += sent;
    if (front_sent_bytes_ < outbox_.front().bytes()) continue;
    unsent_bytes_ -= outbox_.front().bytes();
    front_sent_bytes_ = 0;
    outbox_.pop_front();
  }
  if (!lost_.ok()) outbox_.clear();
}

void TcpControlConnection::Run() {
  while (Step()) {
  }
  // Whoever owns this may take a while to let it go.
  decoder_ = ControlFrameDecoder();
  // Under the mutex, as a Send of another thread may be using the stream.
  MutexLock lock(mutex_);
  if (lost_.ok())
    lost_ = PeerLost(peer_.hello + " at " + peer_.address + ": the connection is closed");
  outbox_.clear();
  stream_.reset();
}

bool TcpControlConnection::Step() {
  Plan plan;
  if (!WriteAndPlan(plan)) return false;
  // poll ignores a negative descriptor. With the socket's own a hang-up would end every wait, even
  // one that asks for no event of it.
  pollfd entries[2] = {{plan.events == 0 ? -1 : stream_->fd(), plan.events, 0},
                       {wake_.fd(), POLLIN, 0}};
  poll(entries, 2, plan.has_buffered ? 0 : plan.timeout_ms);
  if (entries[1].revents != 0) wake_.Clear();
  if ((plan.events & POLLIN) != 0 && (plan.has_buffered || entries[0].revents != 0)) Receive();
  if (!over_) CheckSilence();
  return !over_;
}

bool TcpControlConnection::WriteAndPlan(Plan& plan) {
  MutexLock lock(mutex_);
  // The time before Start does not count as silence of the peer: nothing was read then.
  if (wish_.started && !seen_.started) last_heard_ = Clock::now();
  seen_ = wish_;
  if (seen_.abort) return false;
  if (seen_.close_deadline.has_value() && !closing_) StartClosing();
  if (!closing_ && outbox_.empty() && lost_.ok() && Clock::now() - last_sent_ >= options_.heartbeat)
    Enqueue(kControlHeartbeat, "");
  WriteQueued();
  if (closing_) {
    if (!lost_.ok() || seen_.close_deadline->Passed()) return false;
    if (outbox_.empty() && !said_all_) {
      // From now on wait for the peer to close. Closing first, with bytes unread, would make the
      // kernel reset the connection, and the peer would lose what is in flight.
      said_all_ = true;
      shutdown(stream_->fd(), SHUT_WR);
    }
  }
  plan = MakePlan();
  return true;
}

TcpControlConnection::Plan TcpControlConnection::MakePlan() const {
  // A second at most; Start, Close, Send and the destructor signal wake_.
  TimePoint next = Clock::now() + std::chrono::seconds(1);
  if (closing_) {
    next = std::min(next, seen_.close_deadline->at());
  } else {
    if (outbox_.empty() && lost_.ok()) next = std::min(next, last_sent_ + options_.heartbeat);
    if (seen_.started) next = std::min(next, last_heard_ + options_.peer_timeout);
  }
  // Before Start frames stay in the socket, as there is nobody to give them to.
  const bool reads = seen_.started || closing_;
  return {static_cast<short>((reads ? POLLIN : 0) | (wants_writable_ ? POLLOUT : 0)),
          Deadline(next).RemainingMs(), reads && stream_->has_buffered()};
}

void TcpControlConnection::StartClosing() {
  closing_ = true;
  if (lost_.ok()) Enqueue(kControlGoodbye, "");
}

void TcpControlConnection::CheckSilence() {
  if (!seen_.started || seen_.close_deadline.has_value()) return;
  const auto silence = Clock::now() - last_heard_;
  if (silence < options_.peer_timeout) return;
  // If it was this process that hung, or a callback that took long, the peer's heartbeats wait in
  // the socket.
  int unread = 0;
  if (ioctl(stream_->fd(), FIONREAD, &unread) == 0 && unread > 0) return Receive();
  Lose(TimedOut("no sign of life for " +
                std::to_string(std::chrono::duration_cast<milliseconds>(silence).count()) + " ms"));
}

Result<size_t> TcpControlConnection::ReadSome() {
  MutexLock lock(mutex_);
  return stream_->Read(read_buffer_);
}

void TcpControlConnection::Receive() {
  const Result<size_t> got = ReadSome();
  if (got.status().code() == StatusCode::kTryAgain) return;
  if (!got.ok()) return Lose(got.status());
  if (*got == 0) return Lose(PeerLost("its end of the connection closed without a goodbye"));
  last_heard_ = Clock::now();
  // After Close, reads only find out that the peer has closed too; what it sends is dropped.
  if (seen_.close_deadline.has_value()) return;
  decoder_.Append({read_buffer_.data(), *got});
  decoder_.Limit(max_payload_bytes_);  // another thread may have called LimitFrames
  // Asked before every frame: no callback may begin once Close was called or the destructor runs.
  while (!over_ && MayCallBack()) {
    Result<ControlFrame> frame = decoder_.Next();
    if (frame.ok()) {
      Handle(std::move(frame).value());
    } else {
      if (frame.status().code() != StatusCode::kTryAgain) Lose(frame.status());
      return TellPartial();
    }
  }
}

void TcpControlConnection::TellPartial() {
  if (over_ || decoder_.available_bytes() == told_partial_bytes_) return;
  told_partial_bytes_ = decoder_.available_bytes();
  if (callbacks_.on_partial) callbacks_.on_partial(told_partial_bytes_);
}

void TcpControlConnection::Handle(ControlFrame frame) {
  if (frame.type >= kFirstUserType) {
    told_partial_bytes_ = 0;
    if (callbacks_.on_frame) callbacks_.on_frame(std::move(frame));
  } else if (frame.type == kControlGoodbye) {
    Lose(PeerLost("closed the connection"));
  } else if (frame.type != kControlHeartbeat) {
    Lose(Corrupt("unexpected frame of the channel's own type " + std::to_string(frame.type)));
  }
}

bool TcpControlConnection::MayCallBack() {
  MutexLock lock(mutex_);
  return wish_.started && !wish_.abort && !wish_.close_deadline.has_value();
}

void TcpControlConnection::Lose(Status cause) {
  over_ = true;
  // The end of a connection that was closed here is no loss.
  if (seen_.close_deadline.has_value()) return;
  const Status status = cause.WithContext(peer_.hello + " at " + peer_.address);
  {
    MutexLock lock(mutex_);
    lost_ = status;
  }
  LAMINA_LOG_DEBUG("control: {}", status.ToString());
  if (MayCallBack() && callbacks_.on_lost) callbacks_.on_lost(status);
}

}  // namespace lamina
