#include "api/http_connection.h"

#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio.hpp>
#include <utility>

#include "base/log.h"

namespace lamina {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

constexpr auto kShutdownWriteTimeout = std::chrono::seconds(2);

// How much of an answer the system may keep unsent for a client. Without a limit it keeps up to
// 4 MB: a client that reads nothing then seems to have taken them, and one that reads at 20 KB/s
// seems to take nothing for a minute, because room is only reported when a third is free.
constexpr int kMaxUnsentBytes = 128 << 10;

}  // namespace

HttpConnection::HttpConnection(tcp::socket socket, std::shared_ptr<const TlsContext> tls,
                               const ServerOptions& options)
    : stream_(std::move(socket), std::move(tls)),
      options_(options),
      deadline_(stream_.get_executor()),
      silence_(stream_.get_executor()),
      wake_(stream_.get_executor(), asio::steady_timer::time_point::max()) {
  error_code ignored;
  stream_.socket().set_option(tcp::no_delay(true), ignored);
  setsockopt(stream_.socket().native_handle(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kMaxUnsentBytes,
             sizeof(kMaxUnsentBytes));
}

void HttpConnection::Arm(Clock::duration timeout) {
  deadline_.expires_after(timeout);
  deadline_.async_wait([weak = weak_from_this()](const error_code& error) {
    const auto self = weak.lock();
    // Cancelled, or armed anew in the meantime.
    if (error || self == nullptr || self->deadline_.expiry() > Clock::now()) return;
    self->Lose();
  });
}

void HttpConnection::Lose() {
  if (closed_) return;
  Close();
  if (on_lost_) on_lost_();
}

void HttpConnection::Close() {
  closed_ = true;
  write_piece_ = nullptr;
  stream_.Close();
  deadline_.cancel();
  silence_.cancel();
  wake_.cancel();
}

void HttpConnection::EndSoon() {
  stopping_ = true;
  if (writing_) return Arm(kShutdownWriteTimeout);
  Lose();
}

uint64_t HttpConnection::Begin(WireOptions wire) {
  wire_ = std::move(wire);
  patience_ = NewPatience();
  stream_begun_ = complete_ = sent_ = false;
  return ++answer_;
}

asio::awaitable<void> HttpConnection::Sent() {
  while (!sent_ && !closed_) {
    error_code ignored;
    co_await wake_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
}

void HttpConnection::Respond(const OutboundResponse& response) {
  Finish(WriteResponse(response, wire_));
}

// Small answers go as one, with their length.
void HttpConnection::RespondInPieces(Exchange::PieceWriter write_piece) {
  std::string first;
  if (write_piece(first)) return Respond({200, "application/json", std::move(first), {}});
  queue_ += WritePiecesHeader(wire_) + WritePiece(first, wire_);
  write_piece_ = std::move(write_piece);
  StartWriting();
}

void HttpConnection::ExpectStream(StreamKind kind) {
  wire_.stream = kind;
  asio::co_spawn(stream_.get_executor(), SendComments(shared_from_this(), answer_), asio::detached);
}

// "" but for the first time.
std::string HttpConnection::TakeStreamHeader() {
  return std::exchange(stream_begun_, true) ? "" : WriteStreamHeader(wire_);
}

void HttpConnection::SendEvent(std::string_view data, std::string_view name) {
  Send(TakeStreamHeader() + WriteEvent(data, name, wire_));
}

void HttpConnection::EndStream() { Finish(WriteStreamEnd(wire_)); }

void HttpConnection::Probe() {
  if (write_piece_) return;  // the answer itself is on its way
  Send(stream_begun_ ? WriteComment("", wire_) : std::string(kContinue));
}

// Whether the client lets too much wait; then it is cut off.
bool HttpConnection::QueueIsFull() {
  if (queue_.size() - burst_bytes_ <= options_.max_send_queue_bytes) return false;
  LAMINA_LOG_WARN("a client reads its stream too slowly: more than {} bytes wait; it is cut off",
                  options_.max_send_queue_bytes);
  too_slow_ = true;
  asio::post(stream_.get_executor(), [self = shared_from_this()] { self->Lose(); });
  return true;
}

void HttpConnection::Send(std::string_view bytes) {
  queue_ += bytes;
  if (!QueueIsFull()) StartWriting();
}

void HttpConnection::SendEvents(const std::vector<StreamEvent>& events) {
  if (QueueIsFull()) return;
  std::string bytes = TakeStreamHeader();
  for (const StreamEvent& event : events) bytes += WriteEvent(event.data, event.name, wire_);
  queue_ += bytes;
  burst_bytes_ += bytes.size();
  StartWriting();
}

void HttpConnection::Finish(std::string_view bytes) {
  queue_ += bytes;
  complete_ = true;
  silence_.cancel();
  StartWriting();
}

void HttpConnection::StartWriting() {
  if (!std::exchange(writing_, true))
    asio::co_spawn(stream_.get_executor(), Write(shared_from_this()), asio::detached);
}

void HttpConnection::TakePiece() {
  std::string piece;
  const bool last = write_piece_(piece);
  queue_ += WritePiece(piece, wire_);
  if (!last) return;
  write_piece_ = nullptr;
  queue_ += WriteStreamEnd(wire_);
  complete_ = true;
}

// Whether the client has made room for more: else what is sent waits for it, and not for this
// thread, which may be busy.
bool HttpConnection::TakesBytes() {
  pollfd takes{stream_.socket().native_handle(), POLLOUT, 0};
  return poll(&takes, 1, 0) != 0;
}

asio::awaitable<void> HttpConnection::Write(Self) {
  while ((!queue_.empty() || write_piece_) && !closed_) {
    if (queue_.empty()) TakePiece();
    const std::string sending = std::exchange(queue_, {});
    burst_bytes_ = 0;
    for (size_t sent = 0; sent < sending.size() && !closed_;) {
      Arm(stopping_ ? Clock::duration(kShutdownWriteTimeout) : patience_.left());
      error_code error;
      const auto rest = asio::buffer(sending.data() + sent, sending.size() - sent);
      const bool waits = !TakesBytes();
      const TimePoint begin = Clock::now();
      const size_t count =
          co_await stream_.async_write_some(rest, asio::redirect_error(asio::use_awaitable, error));
      sent_at_ = waits ? Clock::now() : begin;
      patience_.Took(count, sent_at_ - begin);
      sent += count;
      if (error) Lose();
    }
    deadline_.cancel();
  }
  writing_ = false;
  if (!complete_ && !stopping_) co_return;
  sent_ = true;
  wake_.cancel();
}

// Tokens do not touch the timer: it expires once in an interval, and the time at which bytes were
// last sent then says whether the stream is silent.
asio::awaitable<void> HttpConnection::SendComments(Self, uint64_t answer) {
  const Clock::duration interval = options_.comment_interval;
  TimePoint due = Clock::now() + interval;
  while (Takes(answer)) {
    error_code ignored;
    silence_.expires_at(due);
    co_await silence_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    const TimePoint now = Clock::now();
    due = std::max(due, sent_at_ + interval);
    if (now < due) continue;
    // Bytes that wait for the client break the silence once it takes them: comments would pile up.
    if (!writing_ && Takes(answer)) Send(TakeStreamHeader() + WriteComment(" waiting", wire_));
    due = now + interval;
  }
}

}  // namespace lamina
