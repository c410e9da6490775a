#include "frontend/openai/http_session.h"

#include <sys/socket.h>

#include <algorithm>
#include <boost/asio.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <cerrno>
#include <memory>
#include <utility>
#include <vector>

#include "base/log.h"
#include "frontend/openai/http_wire.h"

namespace lamina {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

// Before a connection is closed what the client still sends is read and thrown away, so that it sees the answer and not a reset connection.
constexpr auto kLingerTimeout = std::chrono::seconds(5);
constexpr size_t kMaxLingerBytes = size_t{64} << 20;
constexpr auto kShutdownWriteTimeout = std::chrono::seconds(2);
constexpr size_t kReadBufferBytes = 128 << 10;  // holds the largest header; bodies are read through it piece by piece

// The request that a session is working on; lives as long as its handler wants.
class SessionExchange final : public Exchange {
 public:
  SessionExchange(std::weak_ptr<Session> session, InboundRequest request) : session_(std::move(session)), request_(std::move(request)) {}

  const InboundRequest& request() const override { return request_; }
  void Respond(OutboundResponse response) override;
  void RespondInPieces(PieceWriter write_piece) override;
  void SendEvent(std::string_view data) override;
  void EndStream() override;
  void NotifyGone(std::function<void()> on_gone) override { on_gone_ = std::move(on_gone); }

  std::function<void()> TakeOnGone() { return std::exchange(on_gone_, nullptr); }

 private:
  std::shared_ptr<Session> Live();

  std::weak_ptr<Session> session_;
  InboundRequest request_;
  std::function<void()> on_gone_;
  bool stream_begun_ = false;
};

}  // namespace

// One connection. Three coroutines work on it: Run reads requests and waits for each one's answer, Write sends what is queued, and Watch
// notices a client that leaves while its answer is made.
class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(tcp::socket socket, SessionContext& context)
      : socket_(std::move(socket)),
        context_(context),
        deadline_(socket_.get_executor()),
        wake_(socket_.get_executor(), asio::steady_timer::time_point::max()) {
    context_.sessions.insert(this);
  }
  ~Session() { context_.sessions.erase(this); }

  void Start(bool refuse) { asio::co_spawn(socket_.get_executor(), Run(shared_from_this(), refuse), asio::detached); }

  // The server stops: ends the connection as soon as what is queued is sent.
  void Shutdown() {
    if (writing_) return Arm(kShutdownWriteTimeout);
    Lose();
  }

  // For the exchange.
  bool IsCurrent(const SessionExchange* exchange) const { return current_.get() == exchange && !answered_ && !broken_ && !too_slow_; }
  const WireOptions& wire() const { return wire_; }
  void Queue(std::string bytes, bool last);
  void QueuePieces(std::string bytes, Exchange::PieceWriter write_piece);

 private:
  using Self = std::shared_ptr<Session>;  // held by a coroutine: keeps the session alive while it runs
  using Parser = http::request_parser<http::string_body>;

  asio::awaitable<void> Run(Self self, bool refuse);
  asio::awaitable<bool> ReadRequest();
  asio::awaitable<void> Write(Self self);
  void StartWriting();
  void TakePiece();
  asio::awaitable<void> Watch(Self self, std::shared_ptr<SessionExchange> exchange);
  asio::awaitable<void> Linger();

  void Dispatch(Parser& parser);
  bool RefuseRequest(const error_code& error);
  void Refuse(const ApiError& error);
  void Lose();
  void Close();
  void Arm(Clock::duration timeout);

  tcp::socket socket_;
  SessionContext& context_;
  boost::beast::flat_buffer buffer_{kReadBufferBytes};
  asio::steady_timer deadline_;
  asio::steady_timer wake_;  // never expires; cancelled when the answer was written or the client is gone

  std::shared_ptr<SessionExchange> current_;
  WireOptions wire_;
  bool answered_ = false;  // the whole answer is queued
  bool written_ = false;   // ... and sent
  bool too_slow_ = false;  // about to be closed: nothing more is queued
  bool broken_ = false;    // closed

  std::string queue_;
  Exchange::PieceWriter write_piece_;  // writes what follows queue_; null: nothing
  bool writing_ = false;
};

std::shared_ptr<Session> SessionExchange::Live() {
  std::shared_ptr<Session> session = session_.lock();
  return session != nullptr && session->IsCurrent(this) ? session : nullptr;
}

void SessionExchange::Respond(OutboundResponse response) {
  if (const auto session = Live()) session->Queue(WriteResponse(response, session->wire()), /*last=*/true);
}

// Small answers go as one, with their length.
void SessionExchange::RespondInPieces(PieceWriter write_piece) {
  const auto session = Live();
  if (session == nullptr) return;
  std::string first;
  if (write_piece(first)) return Respond({200, "application/json", std::move(first), {}});
  session->QueuePieces(WritePiecesHeader(session->wire()) + WritePiece(first, session->wire()), std::move(write_piece));
}

void SessionExchange::SendEvent(std::string_view data) {
  const auto session = Live();
  if (session == nullptr) return;
  std::string bytes = stream_begun_ ? "" : WriteStreamHeader(session->wire());
  stream_begun_ = true;
  session->Queue(bytes + WriteEvent(data, session->wire()), /*last=*/false);
}

void SessionExchange::EndStream() {
  if (const auto session = Live()) session->Queue(WriteStreamEnd(session->wire()), /*last=*/true);
}

void Session::Queue(std::string bytes, bool last) {
  queue_ += bytes;
  if (last) {
    answered_ = true;
    if (current_) current_->TakeOnGone();
  } else if (queue_.size() > context_.options.max_send_queue_bytes) {
    LAMINA_LOG_WARN("a client reads its stream too slowly: more than {} bytes wait; it is cut off", context_.options.max_send_queue_bytes);
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
  if (!std::exchange(writing_, true)) asio::co_spawn(socket_.get_executor(), Write(shared_from_this()), asio::detached);
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

asio::awaitable<void> Session::Write(Self) {
  while ((!queue_.empty() || write_piece_) && !broken_) {
    if (queue_.empty()) TakePiece();
    const std::string sending = std::exchange(queue_, {});
    for (size_t sent = 0; sent < sending.size() && !broken_;) {
      Arm(context_.stopping ? Clock::duration(kShutdownWriteTimeout) : context_.options.write_timeout);
      error_code error;
      const auto rest = asio::buffer(sending.data() + sent, sending.size() - sent);
      const size_t count = co_await socket_.async_write_some(rest, asio::redirect_error(asio::use_awaitable, error));
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

asio::awaitable<void> Session::Run(Self, bool refuse) {
  if (refuse) Refuse({503, "the server has as many connections as it takes", ""});
  while (!broken_) {
    // g++ 12 miscompiles co_await inside a condition with || (it awaits in any case): every co_await here stands alone in its statement.
    if (!answered_) {
      const bool open = co_await ReadRequest();
      if (!open) break;
    }
    while (!written_ && !broken_) {
      error_code error;
      co_await wake_.async_wait(asio::redirect_error(asio::use_awaitable, error));
    }
    if (!wire_.keep_alive || context_.stopping) break;
    current_ = nullptr;
    answered_ = written_ = false;
  }
  if (!broken_ && written_ && !context_.stopping) co_await Linger();
  Close();
}

// Returns false if the connection is over. Else an answer was queued or will be.
asio::awaitable<bool> Session::ReadRequest() {
  Parser parser;
  parser.body_limit(context_.options.max_body_bytes);
  parser.header_limit(context_.options.max_header_bytes);
  wire_ = {};
  Arm(context_.options.request_timeout);
  error_code error;
  co_await http::async_read_header(socket_, buffer_, parser, asio::redirect_error(asio::use_awaitable, error));
  if (!error && parser.get()[http::field::expect] == "100-continue") {
    static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
    co_await asio::async_write(socket_, asio::buffer(kContinue.data(), kContinue.size()), asio::redirect_error(asio::use_awaitable, error));
  }
  if (!error && !parser.is_done()) co_await http::async_read(socket_, buffer_, parser, asio::redirect_error(asio::use_awaitable, error));
  deadline_.cancel();
  if (broken_) co_return false;
  if (error) co_return RefuseRequest(error);
  Dispatch(parser);
  co_return true;
}

void Session::Dispatch(Parser& parser) {
  auto& message = parser.get();
  const auto text = [](const auto& view) { return std::string(view.data(), view.size()); };
  InboundRequest request;
  request.method = text(message.method_string());
  request.path = text(message.target());
  request.path.resize(std::min(request.path.find('?'), request.path.size()));
  request.authorization = text(message[http::field::authorization]);
  request.body = std::move(message.body());
  wire_ = {message.keep_alive() && !context_.stopping, message.version() >= 11, request.method == "HEAD",
           SafeRequestId(text(message["X-Request-Id"]))};
  if (message.version() < 11) wire_.keep_alive = false;
  current_ = std::make_shared<SessionExchange>(weak_from_this(), std::move(request));
  try {
    context_.service.Handle(current_);
  } catch (const std::exception& exception) {  // out of memory, for example: this request fails, not the server
    LAMINA_LOG_ERROR("a request to {} failed: {}", current_->request().path, exception.what());
    current_->Respond(ErrorResponse({500, "the server could not work on this request", ""}));
  }
  if (!answered_) asio::co_spawn(socket_.get_executor(), Watch(shared_from_this(), current_), asio::detached);
}

// Waits until there is something to read. Data is the client's next request, sent ahead: then this watch ends, and a client that leaves is
// noticed when it is written to.
asio::awaitable<void> Session::Watch(Self, std::shared_ptr<SessionExchange> exchange) {
  while (IsCurrent(exchange.get())) {
    error_code error;
    co_await socket_.async_wait(tcp::socket::wait_read, asio::redirect_error(asio::use_awaitable, error));
    if (error || !IsCurrent(exchange.get())) co_return;
    char byte;
    const ssize_t got = recv(socket_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (got > 0) co_return;
    if (got == 0 || (errno != EAGAIN && errno != EINTR)) Lose();
  }
}

bool Session::RefuseRequest(const error_code& error) {
  if (error == http::error::body_limit) {
    Refuse({413, "the request body is larger than " + std::to_string(context_.options.max_body_bytes) + " bytes", ""});
  } else if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    Refuse({431, "the request header is larger than " + std::to_string(context_.options.max_header_bytes) + " bytes", ""});
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
  std::vector<char> scratch(size_t{64} << 10);
  for (size_t total = 0; !error && !broken_ && total < kMaxLingerBytes;) {
    const size_t count = co_await socket_.async_read_some(asio::buffer(scratch), asio::redirect_error(asio::use_awaitable, error));
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

void Session::Close() {
  broken_ = true;
  write_piece_ = nullptr;
  error_code ignored;
  socket_.close(ignored);
  deadline_.cancel();
  wake_.cancel();
}

void Session::Arm(Clock::duration timeout) {
  deadline_.expires_after(timeout);
  deadline_.async_wait([weak = weak_from_this()](const error_code& error) {
    const auto self = weak.lock();
    if (error || self == nullptr || self->deadline_.expiry() > Clock::now()) return;  // cancelled, or armed anew in the meantime
    self->Lose();
  });
}

void StartSession(tcp::socket socket, SessionContext& context, bool refuse) {
  std::make_shared<Session>(std::move(socket), context)->Start(refuse);
}

void ShutdownSessions(SessionContext& context) {
  context.stopping = true;
  const std::vector<Session*> sessions(context.sessions.begin(), context.sessions.end());  // a session that ends leaves the set
  for (Session* session : sessions) session->Shutdown();
}

}  // namespace lamina
