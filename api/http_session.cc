#include "api/http_session.h"

#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <cerrno>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "api/client_patience.h"
#include "api/http_wire.h"
#include "base/descriptors.h"
#include "base/log.h"
#include "transport/strangers.h"
#include "transport/tcp_socket.h"

namespace lamina {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

// Before a connection is closed what the client still sends is read and thrown away, so that it
// sees the answer and not a reset connection.
constexpr auto kLingerTimeout = std::chrono::seconds(5);
constexpr size_t kMaxLingerBytes = size_t{64} << 20;
constexpr auto kShutdownWriteTimeout = std::chrono::seconds(2);
// Holds the largest header; bodies are read through it piece by piece.
constexpr size_t kReadBufferBytes = 128 << 10;
// Of requests that a client sends before it has the answer to the first.
constexpr size_t kMaxAheadBytes = 64 << 10;
constexpr size_t kMaxOpenBodyBytes = 4 << 10;  // paths that need no API key need no body
constexpr size_t kLastPlaces = 32;             // for /health when all other places are taken
constexpr auto kLastPlaceTimeout = std::chrono::seconds(5);
// Of a connection: a client that is mistaken stops, one that guesses has to connect anew.
constexpr int kMaxWrongKeys = 3;
constexpr auto kWarningInterval = std::chrono::seconds(60);

// The first pause between probes of a client whose input has ended (Session::Probe); each further
// one is twice as long.
constexpr auto kProbePause = std::chrono::seconds(1);

// How much of an answer the system may keep unsent for a client. Without a limit it keeps up to
// 4 MB: a client that reads nothing then seems to have taken them, and one that reads at 20 KB/s
// seems to take nothing for a minute, because room is only reported when a third is free.
constexpr int kMaxUnsentBytes = 128 << 10;

constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
constexpr std::string_view kComment = ": waiting\n\n";  // in a stream that is silent

// The request that a session is working on; lives as long as its handler wants.
class SessionExchange final : public Exchange {
 public:
  SessionExchange(std::weak_ptr<Session> session, InboundRequest request, BodyMemory::Share body)
      : session_(std::move(session)), request_(std::move(request)), body_(std::move(body)) {}

  const InboundRequest& request() const override { return request_; }
  std::string TakeBody() override {
    body_.Set(0);
    return std::exchange(request_.body, {});
  }
  void Respond(OutboundResponse response) override;
  void RespondInPieces(PieceWriter write_piece) override;
  void ExpectStream() override;
  void SendEvent(std::string_view data) override;
  void EndStream() override;
  bool stream_begun() const override { return stream_begun_; }
  void NotifyGone(std::function<void()> on_gone) override { on_gone_ = std::move(on_gone); }

  // Bytes that a client reads past: an interim response before the answer, a comment in a stream.
  // HTTP/1.0 knows no such responses.
  bool CanProbe(const WireOptions& wire) const { return stream_begun_ || wire.chunked; }
  std::string Probe(const WireOptions& wire) const {
    return stream_begun_ ? WritePiece(":\n\n", wire) : std::string(kContinue);
  }

  void SendComment();

  std::function<void()> TakeOnGone() { return std::exchange(on_gone_, nullptr); }

 private:
  std::shared_ptr<Session> Live();
  std::string TakeStreamHeader(const WireOptions& wire);

  std::weak_ptr<Session> session_;
  InboundRequest request_;
  BodyMemory::Share body_;
  std::function<void()> on_gone_;
  bool stream_begun_ = false;
};

}  // namespace

// One connection. Up to four coroutines work on it: Run reads requests and waits for each one's
// answer, Write sends what is queued, Watch notices a client that leaves while its answer is made,
// and SendComments breaks the silence of a stream.
class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(tcp::socket socket, SessionContext& context, std::string origin)
      : socket_(std::move(socket)),
        context_(context),
        origin_(std::move(origin)),
        deadline_(socket_.get_executor()),
        probing_(socket_.get_executor()),
        silence_(socket_.get_executor()),
        wake_(socket_.get_executor(), asio::steady_timer::time_point::max()) {
    context_.sessions.insert(this);
  }
  ~Session() {
    Leave();
    context_.bodies->GiveBack();
  }

  void Start() { asio::co_spawn(socket_.get_executor(), Run(shared_from_this()), asio::detached); }
  void TakeLastPlace() {
    last_place_ = context_.last_places.insert(context_.last_places.end(), this);
  }

  // Makes room for another connection.
  void GiveWay() { Lose(); }

  // The server stops: ends the connection as soon as what is queued is sent.
  void Shutdown() {
    if (writing_) return Arm(kShutdownWriteTimeout);
    Lose();
  }

  // For the exchange.
  bool IsCurrent(const SessionExchange* exchange) const {
    return current_.get() == exchange && !answered_ && !broken_ && !too_slow_;
  }
  const WireOptions& wire() const { return wire_; }
  void Queue(std::string bytes, bool last);
  void QueuePieces(std::string bytes, Exchange::PieceWriter write_piece);
  void StartComments();

  // Of the body that is being read.
  size_t body_bytes() const { return reading_ != nullptr ? reading_->bytes() : 0; }

 private:
  // Held by a coroutine: keeps the session alive while it runs.
  using Self = std::shared_ptr<Session>;
  using Parser = http::request_parser<http::string_body>;

  asio::awaitable<void> Run(Self self);
  asio::awaitable<bool> ReadRequest();
  asio::awaitable<error_code> ReadBody(Parser& parser, BodyMemory::Share& share);
  asio::awaitable<void> Write(Self self);
  void StartWriting();
  bool TakesBytes();
  void TakePiece();
  asio::awaitable<void> Watch(Self self, std::shared_ptr<SessionExchange> exchange);
  asio::awaitable<void> Probe(std::shared_ptr<SessionExchange> exchange);
  asio::awaitable<void> SendComments(Self self, std::shared_ptr<SessionExchange> exchange);
  asio::awaitable<void> Linger();

  void BeginWaiting();
  void EndWaiting();
  InboundRequest TakeHeader(const Parser& parser);
  bool Screen(const InboundRequest& request, Parser& parser);
  void Dispatch(InboundRequest request, BodyMemory::Share body);
  void RefuseLargestBody();
  bool RefuseRequest(const error_code& error);
  void Refuse(const ApiError& error);
  void Lose();
  void Close();
  void Leave();
  void Arm(Clock::duration timeout);

  tcp::socket socket_;
  SessionContext& context_;
  const std::string origin_;
  std::optional<std::list<Session*>::iterator> waiting_;     // its place in context_.waiting
  std::optional<std::list<Session*>::iterator> last_place_;  // in context_.last_places
  boost::beast::flat_buffer buffer_{kReadBufferBytes};
  BodyMemory::Share* reading_ = nullptr;  // the body that is being read
  bool refused_body_ = false;             // ... and for which there is no memory
  asio::steady_timer deadline_;
  asio::steady_timer probing_;
  asio::steady_timer silence_;  // of a stream; cancelled at its end
  // Never expires; cancelled when the answer was written or the client is gone.
  asio::steady_timer wake_;

  std::shared_ptr<SessionExchange> current_;
  WireOptions wire_;
  bool answered_ = false;  // the whole answer is queued
  bool written_ = false;   // ... and sent
  bool too_slow_ = false;  // about to be closed: nothing more is queued
  bool broken_ = false;    // closed
  int num_wrong_keys_ = 0;

  std::string queue_;
  Exchange::PieceWriter write_piece_;  // writes what follows queue_; null: nothing
  bool writing_ = false;
  TimePoint sent_at_;  // when the system last took bytes
  // For this answer.
  ClientPatience patience_{context_.options.write_timeout, context_.options.min_bytes_per_second};
};

std::shared_ptr<Session> SessionExchange::Live() {
  std::shared_ptr<Session> session = session_.lock();
  return session != nullptr && session->IsCurrent(this) ? session : nullptr;
}

void SessionExchange::Respond(OutboundResponse response) {
  if (const auto session = Live())
    session->Queue(WriteResponse(response, session->wire()), /*last=*/true);
}

// Small answers go as one, with their length.
void SessionExchange::RespondInPieces(PieceWriter write_piece) {
  const auto session = Live();
  if (session == nullptr) return;
  std::string first;
  if (write_piece(first)) return Respond({200, "application/json", std::move(first), {}});
  session->QueuePieces(WritePiecesHeader(session->wire()) + WritePiece(first, session->wire()),
                       std::move(write_piece));
}

void SessionExchange::ExpectStream() {
  if (const auto session = Live()) session->StartComments();
}

// "" but for the first time.
std::string SessionExchange::TakeStreamHeader(const WireOptions& wire) {
  return std::exchange(stream_begun_, true) ? "" : WriteStreamHeader(wire);
}

void SessionExchange::SendEvent(std::string_view data) {
  const auto session = Live();
  if (session == nullptr) return;
  const WireOptions& wire = session->wire();
  session->Queue(TakeStreamHeader(wire) + WriteEvent(data, wire), /*last=*/false);
}

void SessionExchange::SendComment() {
  const auto session = Live();
  if (session == nullptr) return;
  const WireOptions& wire = session->wire();
  session->Queue(TakeStreamHeader(wire) + WritePiece(kComment, wire), /*last=*/false);
}

void SessionExchange::EndStream() {
  if (const auto session = Live()) session->Queue(WriteStreamEnd(session->wire()), /*last=*/true);
}

void Session::Queue(std::string bytes, bool last) {
  queue_ += bytes;
  if (last) {
    answered_ = true;
    silence_.cancel();
    if (current_) current_->TakeOnGone();
  } else if (queue_.size() > context_.options.max_send_queue_bytes) {
    LAMINA_LOG_WARN("a client reads its stream too slowly: more than {} bytes wait; it is cut off",
                    context_.options.max_send_queue_bytes);
    too_slow_ = true;
    asio::post(socket_.get_executor(), [self = shared_from_this()] { self->Lose(); });
    return;
  }
  StartWriting();
}

void Session::QueuePieces(std::string bytes, Exchange::PieceWriter write_piece) {
  queue_ += bytes;
  write_piece_ = std::move(write_piece);
  StartWriting();
}

void Session::StartWriting() {
  if (!std::exchange(writing_, true))
    asio::co_spawn(socket_.get_executor(), Write(shared_from_this()), asio::detached);
}

void Session::TakePiece() {
  std::string piece;
  const bool last = write_piece_(piece);
  queue_ += WritePiece(piece, wire_);
  if (!last) return;
  write_piece_ = nullptr;
  queue_ += WriteStreamEnd(wire_);
  answered_ = true;
  if (current_) current_->TakeOnGone();
}

// Whether the client has made room for more: else what is sent waits for it, and not for this
// thread, which may be busy.
bool Session::TakesBytes() {
  pollfd takes{socket_.native_handle(), POLLOUT, 0};
  return poll(&takes, 1, 0) != 0;
}

asio::awaitable<void> Session::Write(Self) {
  while ((!queue_.empty() || write_piece_) && !broken_) {
    if (queue_.empty()) TakePiece();
    const std::string sending = std::exchange(queue_, {});
    for (size_t sent = 0; sent < sending.size() && !broken_;) {
      Arm(context_.stopping ? Clock::duration(kShutdownWriteTimeout) : patience_.left());
      error_code error;
      const auto rest = asio::buffer(sending.data() + sent, sending.size() - sent);
      const bool waits = !TakesBytes();
      const TimePoint begin = Clock::now();
      const size_t count =
          co_await socket_.async_write_some(rest, asio::redirect_error(asio::use_awaitable, error));
      sent_at_ = waits ? Clock::now() : begin;
      patience_.Took(count, sent_at_ - begin);
      sent += count;
      if (error) Lose();
    }
    deadline_.cancel();
  }
  writing_ = false;
  if (!answered_ && !context_.stopping) co_return;
  written_ = true;
  wake_.cancel();
}

asio::awaitable<void> Session::Run(Self) {
  while (!broken_) {
    // g++ 12 miscompiles co_await inside a condition with || (it awaits in any case): every
    // co_await here stands alone in its statement.
    BeginWaiting();
    const bool open = co_await ReadRequest();
    EndWaiting();
    if (!open) break;
    while (!written_ && !broken_) {
      error_code error;
      co_await wake_.async_wait(asio::redirect_error(asio::use_awaitable, error));
    }
    if (!wire_.keep_alive || context_.stopping) break;
    current_ = nullptr;
    answered_ = written_ = false;
    patience_ = {context_.options.write_timeout, context_.options.min_bytes_per_second};
  }
  if (!broken_ && written_ && !context_.stopping) co_await Linger();
  Close();
}

// From here on the connection may be closed for another.
void Session::BeginWaiting() {
  if (buffer_.size() == 0) buffer_.shrink_to_fit();
  context_.bodies->GiveBack();
  if (broken_ || last_place_) return;
  std::list<Session*>& of_origin = context_.waiting[origin_];
  waiting_ = of_origin.insert(of_origin.end(), this);
}

void Session::EndWaiting() {
  if (!waiting_) return;
  const auto of_origin = context_.waiting.find(origin_);
  of_origin->second.erase(*waiting_);
  if (of_origin->second.empty()) context_.waiting.erase(of_origin);
  waiting_.reset();
}

// Returns false if the connection is over. Else an answer was queued or will be.
asio::awaitable<bool> Session::ReadRequest() {
  Parser parser;
  parser.body_limit(context_.options.max_body_bytes);
  parser.header_limit(context_.options.max_header_bytes);
  wire_ = {};
  Arm(last_place_ ? std::min<Clock::duration>(kLastPlaceTimeout, context_.options.request_timeout)
                  : context_.options.request_timeout);
  error_code error;
  co_await http::async_read_header(socket_, buffer_, parser,
                                   asio::redirect_error(asio::use_awaitable, error));
  if (broken_) co_return false;
  if (error) co_return RefuseRequest(error);
  InboundRequest request = TakeHeader(parser);
  if (!Screen(request, parser)) co_return true;
  // HTTP/1.0 knows no interim answers (RFC 9110, section 10.1.1).
  if (parser.get().version() >= 11 &&
      boost::beast::iequals(parser.get()[http::field::expect], "100-continue")) {
    co_await asio::async_write(socket_, asio::buffer(kContinue.data(), kContinue.size()),
                               asio::redirect_error(asio::use_awaitable, error));
  }
  BodyMemory::Share share(context_.bodies);
  if (!error) error = co_await ReadBody(parser, share);
  deadline_.cancel();
  if (broken_) co_return false;
  if (error || refused_body_) co_return RefuseRequest(error);
  request.body = std::move(parser.get().body());
  Dispatch(std::move(request), std::move(share));
  co_return true;
}

// Piece by piece: what has come counts, not what was announced, which costs a client nothing.
asio::awaitable<error_code> Session::ReadBody(Parser& parser, BodyMemory::Share& share) {
  error_code error;
  reading_ = &share;
  while (!error && !parser.is_done() && !refused_body_) {
    co_await http::async_read_some(socket_, buffer_, parser,
                                   asio::redirect_error(asio::use_awaitable, error));
    if (refused_body_) break;
    share.Set(parser.get().body().size());
    if (context_.bodies->full()) RefuseLargestBody();
  }
  reading_ = nullptr;
  co_return error;
}

// There is no memory for all the bodies that are coming in: the largest of them goes, so that small
// requests are served on.
void Session::RefuseLargestBody() {
  const auto less = [](const Session* a, const Session* b) {
    return a->body_bytes() < b->body_bytes();
  };
  Session* largest = *std::ranges::max_element(context_.sessions, less);
  if (largest->reading_ == nullptr) return;  // all of it is of requests that came whole
  largest->refused_body_ = true;
  largest->reading_->Set(0);
  if (largest == this) return;
  error_code ignored;
  largest->socket_.cancel(ignored);
}

InboundRequest Session::TakeHeader(const Parser& parser) {
  const auto& message = parser.get();
  const auto text = [](const auto& view) { return std::string(view.data(), view.size()); };
  InboundRequest request;
  request.method = text(message.method_string());
  request.path = PathOfTarget({message.target().data(), message.target().size()});
  request.authorization = text(message[http::field::authorization]);
  wire_ = {message.keep_alive() && !context_.stopping && !last_place_, message.version() >= 11,
           request.method == "HEAD", SafeRequestId(text(message["X-Request-Id"]))};
  if (message.version() < 11) wire_.keep_alive = false;
  return request;
}

// Refuses what can be refused by its header, before its body costs anything. False: it was
// answered.
bool Session::Screen(const InboundRequest& request, Parser& parser) {
  std::optional<OutboundResponse> refusal;
  const auto& header = parser.get();
  const auto encoding = header.find(http::field::transfer_encoding);
  if (encoding != header.end() && (header.count(http::field::transfer_encoding) > 1 ||
                                   !boost::beast::iequals(encoding->value(), "chunked"))) {
    // Where such a body ends is not known, and what it holds is not to be taken for requests.
    wire_.keep_alive = false;
    refusal = ErrorResponse({501, "of Transfer-Encoding only chunked is there", ""});
  }
  // RFC 9112, section 3.2. Whoever stands between a client and this server may have looked at
  // another one of them.
  if (!refusal && header.version() >= 11 && header.count(http::field::host) != 1)
    refusal = ErrorResponse({400, "an HTTP/1.1 request needs exactly one Host header", ""});
  if (!refusal) refusal = context_.service.Screen(request);
  const bool is_open = ApiService::IsOpen(request.path);
  if (!refusal && last_place_ && !is_open)
    refusal = ErrorResponse(
        {503, "the server has as many requests under way as it has places for connections", ""});
  if (!refusal && is_open && parser.content_length().value_or(0) > kMaxOpenBodyBytes)
    refusal = ErrorResponse(
        {413, "the request body is larger than " + std::to_string(kMaxOpenBodyBytes) + " bytes",
         ""});
  if (!refusal) {
    if (is_open) parser.body_limit(kMaxOpenBodyBytes);
    return true;
  }
  deadline_.cancel();
  if (!parser.is_done()) wire_.keep_alive = false;  // its body would be taken for a request
  if (refusal->status == 401 && ++num_wrong_keys_ >= kMaxWrongKeys) wire_.keep_alive = false;
  Queue(WriteResponse(*refusal, wire_), /*last=*/true);
  return false;
}

void Session::Dispatch(InboundRequest request, BodyMemory::Share body) {
  current_ =
      std::make_shared<SessionExchange>(weak_from_this(), std::move(request), std::move(body));
  try {
    context_.service.Handle(current_);
  } catch (const std::exception& exception) {
    // Out of memory, for example: this request fails, not the server.
    LAMINA_LOG_ERROR("a request to {} failed: {}", current_->request().path, exception.what());
    current_->Respond(ErrorResponse({500, "the server could not work on this request", ""}));
  }
  if (!answered_)
    asio::co_spawn(socket_.get_executor(), Watch(shared_from_this(), current_), asio::detached);
}

// Waits until there is something to read. Data is the client's next request, sent ahead: it is
// kept, so that the end of the connection behind it is seen; a client that sends too much of it is
// cut off.
asio::awaitable<void> Session::Watch(Self, std::shared_ptr<SessionExchange> exchange) {
  while (IsCurrent(exchange.get())) {
    error_code error;
    co_await socket_.async_wait(tcp::socket::wait_read,
                                asio::redirect_error(asio::use_awaitable, error));
    if (error || !IsCurrent(exchange.get())) co_return;
    const size_t room = kMaxAheadBytes - std::min(kMaxAheadBytes, buffer_.size());
    char byte = 0;
    const auto into = room > 0 ? buffer_.prepare(room) : asio::mutable_buffer(&byte, 1);
    const ssize_t got = recv(socket_.native_handle(), into.data(), into.size(), MSG_DONTWAIT);
    buffer_.commit(room > 0 && got > 0 ? static_cast<size_t>(got) : 0);
    if (got > 0 && room > 0) continue;
    if (got == 0 && exchange->CanProbe(wire_)) {
      co_await Probe(exchange);
      co_return;
    }
    if (got > 0)
      LAMINA_LOG_WARN("a client sent more than {} bytes behind its request; it is cut off",
                      kMaxAheadBytes);
    if (got >= 0 || (errno != EAGAIN && errno != EINTR)) Lose();
  }
}

// The client says no more. Whether it waits for its answer or is gone is not to be seen (TCP's FIN
// says both), so something is sent that means nothing: the system of a client that is gone resets
// the connection. A relay on the way may notice only by the second.
asio::awaitable<void> Session::Probe(std::shared_ptr<SessionExchange> exchange) {
  socket_.async_wait(tcp::socket::wait_error,
                     [weak = weak_from_this(), exchange](const error_code& error) {
                       const auto self = weak.lock();
                       if (!error && self != nullptr && self->IsCurrent(exchange.get()))
                         self->Lose();
                     });
  for (Clock::duration pause = kProbePause; IsCurrent(exchange.get()); pause *= 2) {
    // Else the answer itself is on its way.
    if (!write_piece_) Queue(exchange->Probe(wire_), /*last=*/false);
    error_code ignored;
    probing_.expires_after(pause);
    co_await probing_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
}

void Session::StartComments() {
  asio::co_spawn(socket_.get_executor(), SendComments(shared_from_this(), current_),
                 asio::detached);
}

// Tokens do not touch the timer: it expires once in an interval, and the time at which bytes were
// last sent then says whether the stream is silent.
asio::awaitable<void> Session::SendComments(Self, std::shared_ptr<SessionExchange> exchange) {
  const Clock::duration interval = context_.options.comment_interval;
  TimePoint due = Clock::now() + interval;
  while (IsCurrent(exchange.get())) {
    error_code ignored;
    silence_.expires_at(due);
    co_await silence_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    const TimePoint now = Clock::now();
    due = std::max(due, sent_at_ + interval);
    if (now < due) continue;
    // Bytes that wait for the client break the silence once it takes them: comments would pile up.
    if (!writing_) exchange->SendComment();
    due = now + interval;
  }
}

bool Session::RefuseRequest(const error_code& error) {
  deadline_.cancel();
  if (refused_body_) {
    Refuse({503,
            "the server has as many bytes of requests under way as it takes, " +
                std::to_string(context_.bodies->limit_bytes()) +
                "; send it again later, or less at a time",
            ""});
  } else if (error == http::error::body_limit) {
    Refuse({413,
            "the request body is larger than " + std::to_string(context_.options.max_body_bytes) +
                " bytes",
            ""});
  } else if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    Refuse({431,
            "the request header is larger than " +
                std::to_string(context_.options.max_header_bytes) + " bytes",
            ""});
  } else if (error == http::error::end_of_stream || error == http::error::partial_message ||
             error.category() != http::make_error_code(http::error::bad_method).category()) {
    return false;  // the client closed, or the connection broke
  } else {
    Refuse({400, "this is no valid HTTP request: " + error.message(), ""});
  }
  return true;
}

// An answer without a request; the connection ends with it.
void Session::Refuse(const ApiError& error) {
  wire_.keep_alive = false;
  Queue(WriteResponse(ErrorResponse(error), wire_), /*last=*/true);
}

asio::awaitable<void> Session::Linger() {
  error_code error;
  socket_.shutdown(tcp::socket::shutdown_send, error);
  Arm(kLingerTimeout);
  BeginWaiting();
  for (size_t total = 0; !error && !broken_ && total < kMaxLingerBytes;) {
    const size_t count = co_await socket_.async_read_some(
        asio::buffer(context_.discarded), asio::redirect_error(asio::use_awaitable, error));
    total += count;
  }
}

// The client is gone or too slow: whoever works for it is told.
void Session::Lose() {
  if (broken_) return;
  Close();
  if (current_ == nullptr) return;
  if (const auto on_gone = current_->TakeOnGone()) on_gone();
}

// Its place is free.
void Session::Leave() {
  context_.sessions.erase(this);
  EndWaiting();
  if (last_place_) context_.last_places.erase(*last_place_);
  last_place_.reset();
}

void Session::Close() {
  broken_ = true;
  Leave();
  write_piece_ = nullptr;
  error_code ignored;
  socket_.close(ignored);
  deadline_.cancel();
  probing_.cancel();
  silence_.cancel();
  wake_.cancel();
}

void Session::Arm(Clock::duration timeout) {
  deadline_.expires_after(timeout);
  deadline_.async_wait([weak = weak_from_this()](const error_code& error) {
    const auto self = weak.lock();
    // Cancelled, or armed anew in the meantime.
    if (error || self == nullptr || self->deadline_.expiry() > Clock::now()) return;
    self->Lose();
  });
}

namespace {

// Closes the connection that waits longest, of the origin that has most. False if none waits.
bool MakeRoom(SessionContext& context) {
  const auto less = [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); };
  const auto largest = std::ranges::max_element(context.waiting, less);
  if (largest == context.waiting.end()) return false;
  if (Clock::now() >= context.next_warning) {
    LAMINA_LOG_WARN(
        "all {} places for HTTP connections are taken, {} by connections from {} that wait: they "
        "are closed for new ones",
        context.sessions.size(), largest->second.size(), largest->first);
    context.next_warning = Clock::now() + kWarningInterval;
  }
  largest->second.front()->GiveWay();
  return true;
}

}  // namespace

void StartSession(tcp::socket socket, SessionContext& context) {
  error_code error;
  const tcp::endpoint peer = socket.remote_endpoint(error);
  if (error) return;  // gone already
  socket.set_option(tcp::no_delay(true), error);
  setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kMaxUnsentBytes,
             sizeof(kMaxUnsentBytes));
  const bool full =
      context.sessions.size() >= static_cast<size_t>(context.options.max_connections) ||
      DescriptorsAreScarce();
  const bool has_place = !full || MakeRoom(context);
  if (!has_place && context.last_places.size() >= kLastPlaces)
    context.last_places.front()->GiveWay();
  const auto session =
      std::make_shared<Session>(std::move(socket), context, OriginOf(AddressText(peer)));
  if (!has_place) session->TakeLastPlace();
  session->Start();
}

void ShutdownSessions(SessionContext& context) {
  context.stopping = true;
  // A session that ends leaves the set.
  const std::vector<Session*> sessions(context.sessions.begin(), context.sessions.end());
  for (Session* session : sessions) session->Shutdown();
}

}  // namespace lamina
