#include "bench/serve/http_connections.h"

#include <boost/asio/error.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <optional>

#include "api/client_stream.h"
#include "transport/name_lookup.h"

namespace lamina {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;

namespace {

// How much of an answer that is no stream is kept for the error message.
constexpr size_t kMaxErrorBodyBytes = 64 << 10;

constexpr auto kLookUpTime = std::chrono::seconds(5);

}  // namespace

struct HttpConnections::Connection {
  explicit Connection(asio::io_context& io) : stream(io) {}

  ClientStream stream;
  // A header, or the frame of one chunk, must fit: a server could go on with them for ever.
  beast::flat_buffer buffer{128 << 10};
  bool answered = false;  // a byte of the current answer has come
  bool reusable = false;  // the last answer ended so that another request may follow
};

namespace {

StreamEnd ToEnd(const error_code& error, const std::string& doing) {
  if (error == beast::error::timeout)
    return {"timed out", doing + ": the time allowed for the request is over"};
  const bool closed = error == http::error::end_of_stream ||
                      error == http::error::partial_message || error == asio::error::eof ||
                      error == asio::error::connection_reset || error == asio::error::broken_pipe ||
                      IsCutTls(error);
  if (closed) return {"connection lost", doing + ": the server closed the connection"};
  if (error.category() == http::make_error_code(http::error::bad_version).category())
    return {"not HTTP", doing + ": " + error.message()};
  return {"connection lost", doing + ": " + error.message()};
}

}  // namespace

HttpConnections::HttpConnections(asio::io_context& io, HttpUrl url, std::string api_key)
    : io_(io), url_(std::move(url)), api_key_(std::move(api_key)) {}

HttpConnections::~HttpConnections() = default;

Result<std::unique_ptr<HttpConnections>> HttpConnections::Create(asio::io_context& io, HttpUrl url,
                                                                 const std::string& api_key,
                                                                 const std::string& ca_file) {
  LAMINA_ASSIGN_OR_RETURN(auto endpoints, LookUp(url.host, url.port, kLookUpTime));
  std::unique_ptr<HttpConnections> connections(new HttpConnections(io, std::move(url), api_key));
  connections->endpoints_ = std::move(endpoints);
  if (connections->url_.is_https) {
    LAMINA_ASSIGN_OR_RETURN(connections->tls_,
                            ClientTls::Create(ca_file, /*check_certificate=*/true));
  }
  return connections;
}

asio::awaitable<StreamEnd> HttpConnections::Open(Connection& connection) {
  ++num_opened_;
  ClientStream& stream = connection.stream;
  error_code error;
  co_await stream.tcp().async_connect(endpoints_, asio::redirect_error(asio::use_awaitable, error));
  if (error == beast::error::timeout)
    co_return StreamEnd{"timed out", "connecting to " + url_.address()};
  if (error)
    co_return StreamEnd{"cannot connect",
                        "cannot connect to " + url_.address() + ": " + error.message()};
  stream.tcp().socket().set_option(asio::ip::tcp::no_delay(true), error);
  if (tls_ == nullptr) co_return StreamEnd{};

  constexpr char kNoTls[] = "TLS handshake failed";
  const Status begun = stream.BeginTls(*tls_, url_.host);
  if (!begun.ok()) co_return StreamEnd{kNoTls, begun.message()};
  co_await stream.async_handshake(asio::redirect_error(asio::use_awaitable, error));
  if (error == beast::error::timeout)
    co_return StreamEnd{"timed out", "TLS handshake with " + url_.address()};
  if (error) co_return StreamEnd{kNoTls, stream.HandshakeError(error, url_.address()).message()};
  co_return StreamEnd{};
}

asio::awaitable<StreamEnd> HttpConnections::PostForEvents(const std::string& path,
                                                          const std::string& json,
                                                          TimePoint deadline,
                                                          const OnEvent& on_event) {
  while (true) {
    std::unique_ptr<Connection> connection;
    const bool reused = !idle_.empty();
    if (reused) {
      connection = std::move(idle_.back());
      idle_.pop_back();
    } else {
      connection = std::make_unique<Connection>(io_);
    }
    connection->stream.tcp().expires_at(deadline);
    if (!reused) {
      const StreamEnd failed = co_await Open(*connection);
      if (!failed.ok()) co_return failed;
    }
    StreamEnd end = co_await Exchange(*connection, path, json, on_event);
    // The server has most likely closed the idle connection before the request reached it, so the
    // request is sent again.
    if (reused && !connection->answered && end.error_kind == "connection lost") {
      idle_.clear();  // the others have most likely been closed too
      continue;
    }
    if (connection->reusable) idle_.push_back(std::move(connection));
    co_return end;
  }
}

asio::awaitable<StreamEnd> HttpConnections::Exchange(Connection& connection,
                                                     const std::string& path,
                                                     const std::string& json,
                                                     const OnEvent& on_event) {
  connection.answered = connection.reusable = false;
  http::request<http::span_body<const char>> request(http::verb::post, url_.prefix + path, 11);
  request.body() = beast::span<const char>(json.data(), json.size());
  request.set(http::field::host, url_.address());
  request.set(http::field::user_agent, "lamina-bench");
  request.set(http::field::content_type, "application/json");
  request.set(http::field::accept, "text/event-stream");
  if (!api_key_.empty()) request.set(http::field::authorization, "Bearer " + api_key_);
  request.prepare_payload();
  error_code write_error;
  co_await http::async_write(connection.stream, request,
                             asio::redirect_error(asio::use_awaitable, write_error));

  // A server that refuses a large body may answer, and close the connection, before all is sent.
  // Its answer counts, so that a write error is kept until there is none.
  http::response_parser<http::string_body> parser;
  // A stream may be of any length: its events are not kept.
  parser.body_limit(boost::none);
  error_code error;
  co_await http::async_read_header(connection.stream, connection.buffer, parser,
                                   asio::redirect_error(asio::use_awaitable, error));
  if (error) co_return ToEnd(write_error ? write_error : error, "waiting for an answer");
  connection.answered = true;

  HttpResponse response;
  response.status = static_cast<int>(parser.get().result_int());
  TimePoint now = Clock::now();
  SseParser events([&](std::string_view data) {
    on_event(data, now);
    return true;
  });
  while (true) {
    std::string& body = parser.get().body();
    if (response.ok()) {
      const auto fed = events.Feed(body);
      if (!fed.ok()) co_return StreamEnd{"event too large", fed.status().message()};
    } else if (response.body.size() < kMaxErrorBodyBytes) {
      response.body += body;
    }
    body.clear();
    if (parser.is_done()) break;
    co_await http::async_read_some(connection.stream, connection.buffer, parser,
                                   asio::redirect_error(asio::use_awaitable, error));
    now = Clock::now();
    if (error) co_return ToEnd(error, "reading the answer");
  }
  connection.reusable = parser.get().keep_alive() && !write_error;
  if (!response.ok())
    co_return StreamEnd{"HTTP " + std::to_string(response.status), ErrorMessageOf(response)};
  co_return StreamEnd{};
}

}  // namespace lamina
