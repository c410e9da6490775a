#include "api/http_client.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <exception>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <type_traits>
#include <utility>

#include "base/net_address.h"
#include "transport/name_lookup.h"
#include "transport/server_trust.h"

namespace lamina {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;

// Plain TCP, or TLS over it, as Beast reads and writes it. What is called back is behind a
// function, so that the templates of TLS are compiled once and not for each of Beast's operations.
class ClientStream {
 public:
  using executor_type = beast::tcp_stream::executor_type;
  using Done = std::function<void(error_code, size_t)>;

  explicit ClientStream(asio::io_context& io) : tcp_(io) {}

  executor_type get_executor() { return tcp_.get_executor(); }
  beast::tcp_stream& tcp() { return tcp_; }
  asio::ssl::stream<beast::tcp_stream&>& BeginTls(asio::ssl::context& context) {
    return tls_.emplace(tcp_, context);
  }

  template <typename Buffers, typename Token>
  auto async_read_some(const Buffers& buffers, Token&& token) {
    return asio::async_initiate<Token, void(error_code, size_t)>(
        [this](auto&& handler, asio::mutable_buffer into) { Read(into, Erased(handler)); }, token,
        *asio::buffer_sequence_begin(buffers));
  }
  template <typename Buffers, typename Token>
  auto async_write_some(const Buffers& buffers, Token&& token) {
    return asio::async_initiate<Token, void(error_code, size_t)>(
        [this](auto&& handler, asio::const_buffer from) { Write(from, Erased(handler)); }, token,
        *asio::buffer_sequence_begin(buffers));
  }

 private:
  template <typename Handler>
  static Done Erased(Handler& handler) {
    const auto shared = std::make_shared<std::remove_const_t<Handler>>(std::move(handler));
    return [shared](error_code error, size_t count) { (*shared)(error, count); };
  }
  void Read(asio::mutable_buffer into, Done done) {
    if (tls_) return tls_->async_read_some(into, std::move(done));
    tcp_.async_read_some(into, std::move(done));
  }
  void Write(asio::const_buffer from, Done done) {
    if (tls_) return tls_->async_write_some(from, std::move(done));
    tcp_.async_write_some(from, std::move(done));
  }

  beast::tcp_stream tcp_;
  std::optional<asio::ssl::stream<beast::tcp_stream&>> tls_;
};

// A connection whose every operation ends by itself after a time: Beast's time-outs need
// asynchronous operations, so each is started and the loop run until it is over.
class Connection {
 public:
  explicit Connection(std::string address) : address_(std::move(address)) {}

  Status Connect(const std::string& host, const std::string& port, Clock::duration timeout) {
    const Deadline deadline = Deadline::After(timeout);
    LAMINA_ASSIGN_OR_RETURN(const auto endpoints, LookUp(host, port, timeout));
    const error_code error = Run(deadline.Remaining(), [&](auto handler) {
      stream_.tcp().async_connect(endpoints,
                                  [handler](error_code e, const auto&) mutable { handler(e); });
    });
    return ToStatus(error, "cannot connect to " + address_, timeout);
  }

  // What follows goes through TLS. REQUIRES: it is connected.
  Status BeginTls(asio::ssl::context& context, const std::string& host, Clock::duration timeout) {
    try {
      auto& tls = stream_.BeginTls(context);
      LAMINA_RETURN_IF_ERROR(ExpectHost(tls.native_handle(), host));
      const error_code error = Run(timeout, [&](auto handler) {
        tls.async_handshake(asio::ssl::stream_base::client, handler);
      });
      if (!error) return OkStatus();
      LAMINA_RETURN_IF_ERROR(RefusalOf(tls.native_handle(), address_));
      return ToStatus(error, address_ + ": TLS handshake", timeout);
    } catch (const std::exception& error) {
      return InternalError(std::string("libssl cannot make a connection: ") + error.what());
    }
  }

  Status Write(const http::request<http::string_body>& request, Clock::duration timeout) {
    const error_code error =
        Run(timeout, [&](auto handler) { http::async_write(stream_, request, Ignoring(handler)); });
    return ToStatus(error, address_ + ": sending the request", timeout);
  }

  template <typename Parser>
  Status ReadHeader(Parser& parser, Clock::duration timeout) {
    const error_code error = Run(timeout, [&](auto handler) {
      http::async_read_header(stream_, buffer_, parser, Ignoring(handler));
    });
    return ToStatus(error, address_ + ": waiting for an answer", timeout);
  }

  template <typename Parser>
  Status ReadSome(Parser& parser, Clock::duration timeout) {
    const error_code error = Run(timeout, [&](auto handler) {
      http::async_read_some(stream_, buffer_, parser, Ignoring(handler));
    });
    return ToStatus(error, address_ + ": reading the answer", timeout);
  }

 private:
  // Drops the byte count from a completion.
  template <typename Handler>
  static auto Ignoring(Handler handler) {
    return [handler](error_code error, size_t) mutable { handler(error); };
  }

  template <typename Start>
  error_code Run(Clock::duration timeout, Start start) {
    error_code result;
    stream_.tcp().expires_after(timeout);
    start([&result](error_code error) { result = error; });
    io_.restart();
    io_.run();
    return result;
  }

  Status ToStatus(const error_code& error, const std::string& doing,
                  Clock::duration timeout) const {
    if (!error) return OkStatus();
    if (error == beast::error::timeout)
      return TimedOut(doing + ": nothing for " +
                      std::to_string(std::chrono::duration_cast<milliseconds>(timeout).count()) +
                      " ms");
    if (error.category() == http::make_error_code(http::error::bad_version).category()) {
      const bool cut = error == http::error::end_of_stream || error == http::error::partial_message;
      return cut ? PeerLost(doing + ": the server closed the connection")
                 : Corrupt(doing + ": " + error.message());
    }
    if (error == asio::ssl::error::stream_truncated)
      return PeerLost(doing + ": the server closed the connection");
    return PeerLost(doing + ": " + error.message());
  }

  asio::io_context io_;
  ClientStream stream_{io_};
  // A header, or the frame of one chunk, must fit: a server could go on with them for ever.
  beast::flat_buffer buffer_{128 << 10};
  const std::string address_;
};

}  // namespace

struct HttpClient::Call {
  http::verb verb = http::verb::get;
  std::string path;
  std::string body;
  const SseParser::OnData* on_data = nullptr;
};

Result<HttpUrl> HttpUrl::Parse(const std::string& url) {
  constexpr std::string_view kPlain = "http://", kSecure = "https://", kVersionPath = "/v1";
  HttpUrl parsed;
  parsed.is_https = url.starts_with(kSecure);
  // localhost:8000 is short for http://localhost:8000.
  const bool has_scheme = parsed.is_https || url.starts_with(kPlain);
  const bool is_short = url.find("://") == std::string::npos && url.find(':') != std::string::npos;
  if (!has_scheme && !is_short)
    return InvalidArgument("'" + url + "' is not a URL such as http://127.0.0.1:8000");
  std::string rest = has_scheme ? url.substr((parsed.is_https ? kSecure : kPlain).size()) : url;
  const size_t slash = rest.find('/');
  if (slash != std::string::npos) parsed.prefix = rest.substr(slash);
  const auto trim_slashes = [&parsed] {
    while (parsed.prefix.ends_with('/')) parsed.prefix.pop_back();
  };
  trim_slashes();
  if (parsed.prefix.ends_with(kVersionPath))
    parsed.prefix.resize(parsed.prefix.size() - kVersionPath.size());
  trim_slashes();
  rest = rest.substr(0, slash);

  // An IPv6 address.
  const size_t bracket = rest.starts_with('[') ? rest.find(']') : std::string::npos;
  const size_t colon = rest.find(':', bracket == std::string::npos ? 0 : bracket);
  parsed.host = bracket == std::string::npos ? rest.substr(0, colon) : rest.substr(1, bracket - 1);
  parsed.port =
      colon == std::string::npos ? (parsed.is_https ? "443" : "80") : rest.substr(colon + 1);
  const bool has_digits = !parsed.port.empty() && parsed.port.size() <= 5 &&
                          parsed.port.find_first_not_of("0123456789") == std::string::npos;
  const int port = has_digits ? std::stoi(parsed.port) : 0;
  const bool is_port = port >= 1 && port <= 65535;
  if (has_digits && !is_port)
    return InvalidArgument("'" + url + "': there is no port " + parsed.port +
                           "; they are 1 to 65535");
  if (parsed.host.empty() || !is_port)
    return InvalidArgument("'" + url + "' is not a URL such as http://127.0.0.1:8000");
  return parsed;
}

std::string HttpUrl::address() const { return BracketedHost(host) + ":" + port; }

struct HttpClient::Tls {
  asio::ssl::context context{asio::ssl::context::tls_client};
};

Result<HttpClient> HttpClient::Create(const std::string& url, const HttpClientOptions& options) {
  HttpClient client;
  LAMINA_ASSIGN_OR_RETURN(client.url_, HttpUrl::Parse(url));
  client.options_ = options;
  if (client.url_.is_https) {
    try {
      client.tls_ = std::make_shared<Tls>();
    } catch (const std::exception& error) {
      return InternalError(std::string("libssl cannot be used: ") + error.what());
    }
    if (options.check_certificate)
      LAMINA_RETURN_IF_ERROR(TrustCas(client.tls_->context.native_handle(), options.ca_file));
  }
  return client;
}

Result<HttpResponse> HttpClient::Send(const Call& call) const {
  Connection connection(address());
  const Deadline connected = Deadline::After(options_.connect_timeout);
  LAMINA_RETURN_IF_ERROR(connection.Connect(url_.host, url_.port, options_.connect_timeout));
  if (tls_ != nullptr)
    LAMINA_RETURN_IF_ERROR(connection.BeginTls(tls_->context, url_.host, connected.Remaining()));

  http::request<http::string_body> request(call.verb, url_.prefix + call.path, 11, call.body);
  request.set(http::field::host, address());
  request.set(http::field::user_agent, "lamina");
  request.set(http::field::connection, "close");
  if (!options_.api_key.empty())
    request.set(http::field::authorization, "Bearer " + options_.api_key);
  if (call.verb == http::verb::post) request.set(http::field::content_type, "application/json");
  request.prepare_payload();
  const Status sent = connection.Write(request, options_.silence_timeout);

  http::response_parser<http::string_body> parser;
  parser.body_limit(boost::none);  // a stream may be long; what is kept is counted below
  const Status answered = connection.ReadHeader(parser, options_.silence_timeout);
  // A server that refuses a large body may answer and close before it is all sent.
  if (!answered.ok()) return sent.ok() ? answered : sent;
  HttpResponse response;
  response.status = static_cast<int>(parser.get().result_int());

  SseParser events(call.on_data != nullptr ? *call.on_data : SseParser::OnData(),
                   options_.max_body_bytes);
  const bool is_stream = call.on_data != nullptr && response.ok();
  while (true) {
    std::string& body = parser.get().body();
    if (is_stream) {
      const Result<bool> more = events.Feed(body);
      if (!more.ok()) return more.status().WithContext(address());
      if (!*more) return response;
    } else {
      response.body += body;
    }
    body.clear();
    if (response.body.size() > options_.max_body_bytes)
      return OutOfSpace(address() + ": the answer is larger than " +
                        std::to_string(options_.max_body_bytes) + " bytes");
    if (parser.is_done()) return response;
    LAMINA_RETURN_IF_ERROR(connection.ReadSome(parser, options_.silence_timeout));
  }
}

Result<HttpResponse> HttpClient::Get(const std::string& path) const {
  return Send({http::verb::get, path, "", nullptr});
}

Result<HttpResponse> HttpClient::PostJson(const std::string& path, const std::string& json) const {
  return Send({http::verb::post, path, json, nullptr});
}

Result<HttpResponse> HttpClient::PostForEvents(const std::string& path, const std::string& json,
                                               const SseParser::OnData& on_data) const {
  return Send({http::verb::post, path, json, &on_data});
}

bool CanConnect(const std::string& host, int port, Clock::duration timeout) {
  return Connection(host).Connect(host, std::to_string(port), timeout).ok();
}

std::string ErrorMessageOf(const HttpResponse& response) {
  const nlohmann::json body = nlohmann::json::parse(response.body, nullptr, false);
  const nlohmann::json error =
      body.is_object() ? body.value("error", nlohmann::json()) : nlohmann::json();
  const nlohmann::json message =
      error.is_object() ? error.value("message", nlohmann::json()) : nlohmann::json();
  if (message.is_string()) return message.get<std::string>();
  constexpr size_t kMaxShown = 300;
  return response.body.empty() ? "no explanation" : response.body.substr(0, kMaxShown);
}

}  // namespace lamina
