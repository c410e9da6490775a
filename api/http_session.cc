#include "api/http_session.h"

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

#include "api/cors.h"
#include "api/http_connection.h"
#include "api/http_exchange.h"
#include "api/http_wire.h"
#include "api/protocols/protocol_errors.h"
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
// Holds the largest header; bodies are read through it piece by piece.
constexpr size_t kReadBufferBytes = 128 << 10;
// Of requests that a client sends before it has the answer to the first.
constexpr size_t kMaxAheadBytes = 64 << 10;
constexpr size_t kMaxOpenBodyBytes = 4 << 10;  // paths that need no API key need no body
constexpr auto kLastPlaceTimeout = std::chrono::seconds(5);
// Of a connection: a client that is mistaken stops, one that guesses has to connect anew.
constexpr int kMaxWrongKeys = 3;

// The first pause between probes of a client whose input has ended (Session::Probe); each further
// one is twice as long.
constexpr auto kProbePause = std::chrono::seconds(1);

// That of a connection that begins; null: plain HTTP.
std::shared_ptr<const TlsContext> TlsOf(const SessionContext& context) {
  return context.certificate != nullptr ? context.certificate->Current(Clock::now()) : nullptr;
}

}  // namespace

// One connection. Two coroutines work on it beside those of HttpConnection: Run reads requests and
// waits for each one's answer, and Watch notices a client that leaves while its answer is made.
class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(tcp::socket socket, SessionContext& context, std::string origin)
      : context_(context),
        connection_(
            std::make_shared<HttpConnection>(std::move(socket), TlsOf(context), context.options)),
        stream_(connection_->stream()),
        place_(context.places, std::move(origin), [this] { connection_->Lose(); }),
        probing_(stream_.get_executor()) {
    context_.sessions.insert(this);
  }
  ~Session() {
    Leave();
    context_.bodies->GiveBack();
  }

  void Start() {
    connection_->NotifyLost([weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->OnLost();
    });
    asio::co_spawn(stream_.get_executor(), Run(shared_from_this()), asio::detached);
  }

  // The server stops: ends the connection as soon as what is queued is sent.
  void Shutdown() { connection_->EndSoon(); }

  // Of the body that is being read.
  size_t body_bytes() const { return reading_ != nullptr ? reading_->bytes() : 0; }

 private:
  // Held by a coroutine: keeps the session alive while it runs.
  using Self = std::shared_ptr<Session>;
  using Parser = http::request_parser<http::string_body>;

  asio::awaitable<void> Run(Self self);
  asio::awaitable<bool> ReadRequest();
  asio::awaitable<error_code> ReadBody(Parser& parser, BodyMemory::Share& share);
  asio::awaitable<void> Watch(Self self, uint64_t answer);
  asio::awaitable<void> Probe(uint64_t answer);
  asio::awaitable<void> Linger();

  void BeginWaiting();
  InboundRequest TakeHeader(const Parser& parser);
  bool Screen(const InboundRequest& request, Parser& parser);
  void Dispatch(InboundRequest request, BodyMemory::Share body);
  void RefuseLargestBody();
  bool RefuseRequest(const error_code& error);
  void Refuse(OutboundResponse response);
  void OnLost();
  void Close();
  void Leave();

  SessionContext& context_;
  const std::shared_ptr<HttpConnection> connection_;  // shared with its coroutines
  HttpStream& stream_;                                // the connection's
  ConnectionPlaces::Place place_;
  boost::beast::flat_buffer buffer_{kReadBufferBytes};
  BodyMemory::Share* reading_ = nullptr;  // the body that is being read
  bool refused_body_ = false;             // ... and for which there is no memory
  asio::steady_timer probing_;

  std::shared_ptr<HttpExchange> current_;
  // Of the request that was read last.
  WireOptions wire_;
  std::string path_;
  int num_wrong_keys_ = 0;
};

asio::awaitable<void> Session::Run(Self) {
  while (!connection_->closed()) {
    // g++ 12 miscompiles co_await inside a condition with || (it awaits in any case): every
    // co_await here stands alone in its statement.
    BeginWaiting();
    const bool open = co_await ReadRequest();
    place_.EndWaiting();
    if (!open) break;
    co_await connection_->Sent();
    if (!wire_.keep_alive || context_.stopping) {
      co_await Linger();
      break;
    }
    current_ = nullptr;
  }
  Close();
}

void Session::BeginWaiting() {
  if (buffer_.size() == 0) buffer_.shrink_to_fit();
  context_.bodies->GiveBack();
  place_.BeginWaiting();
}

// Returns false if the connection is over. Else an answer was queued or will be.
asio::awaitable<bool> Session::ReadRequest() {
  Parser parser;
  parser.body_limit(context_.options.max_body_bytes);
  parser.header_limit(context_.options.max_header_bytes);
  wire_ = {};
  connection_->Arm(place_.is_last() ? std::min<Clock::duration>(kLastPlaceTimeout,
                                                                context_.options.request_timeout)
                                    : context_.options.request_timeout);
  error_code error;
  co_await http::async_read_header(stream_, buffer_, parser,
                                   asio::redirect_error(asio::use_awaitable, error));
  if (connection_->closed()) co_return false;
  const auto target = parser.get().target();
  path_ = PathOfTarget({target.data(), target.size()});
  if (error) co_return RefuseRequest(error);
  InboundRequest request = TakeHeader(parser);
  if (!Screen(request, parser)) co_return true;
  // HTTP/1.0 knows no interim answers (RFC 9110, section 10.1.1).
  if (parser.get().version() >= 11 &&
      boost::beast::iequals(parser.get()[http::field::expect], "100-continue")) {
    co_await asio::async_write(stream_, asio::buffer(kContinue.data(), kContinue.size()),
                               asio::redirect_error(asio::use_awaitable, error));
  }
  BodyMemory::Share share(context_.bodies);
  if (!error) error = co_await ReadBody(parser, share);
  connection_->Disarm();
  if (connection_->closed()) co_return false;
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
    co_await http::async_read_some(stream_, buffer_, parser,
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
  largest->stream_.socket().cancel(ignored);
}

InboundRequest Session::TakeHeader(const Parser& parser) {
  const auto& message = parser.get();
  const auto text = [](const auto& view) { return std::string(view.data(), view.size()); };
  InboundRequest request;
  request.method = text(message.method_string());
  request.path = path_;
  request.authorization = text(message[http::field::authorization]);
  request.api_key = text(message["X-Api-Key"]);
  wire_ = {message.keep_alive() && !context_.stopping && !place_.is_last(), message.version() >= 11,
           request.method == "HEAD", RequestIdOf(text(message["X-Request-Id"])),
           AllowedOrigin(context_.options.allowed_origins, text(message[http::field::origin]))};
  request.request_id = wire_.request_id;
  if (message.version() < 11) wire_.keep_alive = false;
  return request;
}

// Refuses what can be refused by its header, before its body costs anything. False: it was
// answered.
bool Session::Screen(const InboundRequest& request, Parser& parser) {
  std::optional<OutboundResponse> refusal;
  const auto& header = parser.get();
  if (stream_.lacks_tls()) {
    wire_.keep_alive = false;
    refusal = ErrorResponse({400, "this server speaks HTTPS: ask it with https://", ""});
  }
  const auto encoding = header.find(http::field::transfer_encoding);
  if (!refusal && encoding != header.end() &&
      (header.count(http::field::transfer_encoding) > 1 ||
       !boost::beast::iequals(encoding->value(), "chunked"))) {
    // Where such a body ends is not known, and what it holds is not to be taken for requests.
    wire_.keep_alive = false;
    refusal = ErrorResponse({501, "of Transfer-Encoding only chunked is there", ""});
  }
  // RFC 9112, section 3.2. Whoever stands between a client and this server may have looked at
  // another one of them.
  if (!refusal && header.version() >= 11 && header.count(http::field::host) != 1)
    refusal = ErrorResponse({400, "an HTTP/1.1 request needs exactly one Host header", ""});
  // Browsers ask without a key whether a page may send a request.
  const bool is_preflight = request.method == "OPTIONS" && !wire_.allowed_origin.empty() &&
                            header.find(http::field::access_control_request_method) != header.end();
  if (!refusal && is_preflight) {
    const auto asked = header[http::field::access_control_request_headers];
    refusal = PreflightResponse({asked.data(), asked.size()});
  }
  if (!refusal) refusal = context_.service.Screen(request);
  const bool is_open = ApiService::IsOpen(request.path);
  if (!refusal && place_.is_last() && !is_open)
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
  connection_->Disarm();
  if (!parser.is_done()) wire_.keep_alive = false;  // its body would be taken for a request
  if (refusal->status == 401 && ++num_wrong_keys_ >= kMaxWrongKeys) wire_.keep_alive = false;
  Refuse(*std::move(refusal));
  return false;
}

void Session::Dispatch(InboundRequest request, BodyMemory::Share body) {
  const uint64_t answer = connection_->Begin(wire_);
  current_ =
      std::make_shared<HttpExchange>(connection_, answer, std::move(request), std::move(body));
  try {
    context_.service.Handle(current_);
  } catch (const std::exception& exception) {
    // Out of memory, for example: this request fails, not the server.
    LAMINA_LOG_ERROR("a request to {} failed: {}", current_->request().path, exception.what());
    current_->Respond(ErrorResponse({500, "the server could not work on this request", ""}));
  }
  if (!connection_->complete())
    asio::co_spawn(stream_.get_executor(), Watch(shared_from_this(), answer), asio::detached);
}

// Waits until there is something to read. Data is the client's next request, sent ahead: it is
// kept, so that the end of the connection behind it is seen; a client that sends too much of it is
// cut off.
asio::awaitable<void> Session::Watch(Self, uint64_t answer) {
  while (connection_->Takes(answer)) {
    error_code error;
    co_await stream_.socket().async_wait(tcp::socket::wait_read,
                                         asio::redirect_error(asio::use_awaitable, error));
    if (error || !connection_->Takes(answer)) co_return;
    const size_t room = kMaxAheadBytes - std::min(kMaxAheadBytes, buffer_.size());
    char byte = 0;
    const auto into = room > 0 ? buffer_.prepare(room) : asio::mutable_buffer(&byte, 1);
    const Result<size_t> got = stream_.ReadNow({static_cast<char*>(into.data()), into.size()});
    const bool has_come = got.ok() && *got > 0;
    buffer_.commit(room > 0 && has_come ? *got : 0);
    if (has_come && room > 0) continue;
    if (got.ok() && !has_come && connection_->CanProbe()) {
      co_await Probe(answer);
      co_return;
    }
    if (has_come)
      LAMINA_LOG_WARN("a client sent more than {} bytes behind its request; it is cut off",
                      kMaxAheadBytes);
    if (got.status().code() != StatusCode::kTryAgain) connection_->Lose();
  }
}

// The client says no more. Whether it waits for its answer or is gone is not to be seen (TCP's FIN
// says both), so something is sent that means nothing: the system of a client that is gone resets
// the connection. A relay on the way may notice only by the second.
asio::awaitable<void> Session::Probe(uint64_t answer) {
  stream_.socket().async_wait(tcp::socket::wait_error,
                              [weak = std::weak_ptr(connection_), answer](const error_code& error) {
                                const auto connection = weak.lock();
                                if (!error && connection != nullptr && connection->Takes(answer))
                                  connection->Lose();
                              });
  for (Clock::duration pause = kProbePause; connection_->Takes(answer); pause *= 2) {
    connection_->Probe();
    error_code ignored;
    probing_.expires_after(pause);
    co_await probing_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
}

bool Session::RefuseRequest(const error_code& error) {
  connection_->Disarm();
  ApiError refusal;
  if (refused_body_) {
    refusal = {503,
               "the server has as many bytes of requests under way as it takes, " +
                   std::to_string(context_.bodies->limit_bytes()) +
                   "; send it again later, or less at a time",
               ""};
  } else if (error == http::error::body_limit) {
    refusal = {413,
               "the request body is larger than " +
                   std::to_string(context_.options.max_body_bytes) + " bytes",
               ""};
  } else if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    refusal = {431,
               "the request header is larger than " +
                   std::to_string(context_.options.max_header_bytes) + " bytes",
               ""};
  } else if (error == http::error::end_of_stream || error == http::error::partial_message ||
             error.category() != http::make_error_code(http::error::bad_method).category()) {
    return false;  // the client closed, or the connection broke
  } else {
    refusal = {400, "this is no valid HTTP request: " + error.message(), ""};
  }
  wire_.keep_alive = false;
  Refuse(ErrorResponse(refusal));
  return true;
}

// An answer that needs no handler.
void Session::Refuse(OutboundResponse response) {
  connection_->Begin(wire_);
  connection_->Respond(InProtocolOf(path_, std::move(response)));
}

asio::awaitable<void> Session::Linger() {
  if (connection_->closed() || context_.stopping) co_return;
  error_code error;
  stream_.EndOutput();
  connection_->Arm(kLingerTimeout);
  BeginWaiting();
  for (size_t total = 0; !error && !connection_->closed() && total < kMaxLingerBytes;) {
    const size_t count = co_await stream_.async_read_some(
        asio::buffer(context_.discarded), asio::redirect_error(asio::use_awaitable, error));
    total += count;
  }
}

// Whoever works for the client is told.
void Session::OnLost() {
  Close();
  if (current_ == nullptr || connection_->complete()) return;
  if (const auto on_gone = current_->TakeOnGone()) on_gone();
}

void Session::Leave() {
  context_.sessions.erase(this);
  place_.Leave();
}

void Session::Close() {
  connection_->Close();
  Leave();
  probing_.cancel();
}

void StartSession(tcp::socket socket, SessionContext& context) {
  error_code error;
  const tcp::endpoint peer = socket.remote_endpoint(error);
  if (error) return;  // gone already
  std::make_shared<Session>(std::move(socket), context, OriginOf(AddressText(peer)))->Start();
}

void ShutdownSessions(SessionContext& context) {
  context.stopping = true;
  // A session that ends leaves the set.
  const std::vector<Session*> sessions(context.sessions.begin(), context.sessions.end());
  for (Session* session : sessions) session->Shutdown();
}

}  // namespace lamina
