#include "api/http_client.h"

#include <boost/asio/error.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/client_stream.h"
#include "base/net_address.h"
#include "transport/name_lookup.h"

namespace lamina {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;

// Whether an answer that is no HTTP begins as a record of TLS does: with its type and version.
bool BeginsAsTls(const beast::flat_buffer& answer) {
  const asio::const_buffer bytes = answer.cdata();
  const auto* const first = static_cast<const unsigned char*>(bytes.data());
  constexpr unsigned char kFirstType = 0x14, kLastType = 0x17, kMajorVersion = 3;
  return bytes.size() >= 2 && first[0] >= kFirstType && first[0] <= kLastType &&
         first[1] == kMajorVersion;
}

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
  Status BeginTls(const ClientTls& tls, const std::string& host, Clock::duration timeout) {
    LAMINA_RETURN_IF_ERROR(stream_.BeginTls(tls, host));
    is_tls_ = true;
    const error_code error =
        Run(timeout, [&](auto handler) { stream_.async_handshake(std::move(handler)); });
    if (!error || error == beast::error::timeout)
      return ToStatus(error, address_ + ": TLS handshake", timeout);
    return stream_.HandshakeError(error, address_);
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
    if (error && !is_tls_) LAMINA_RETURN_IF_ERROR(MissingTls(error));
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

  // Whether a server that was asked without TLS, and gave no answer, seems to speak TLS; ok if not.
  Status MissingTls(const error_code& error) const {
    constexpr char kAdvice[] = "its URL begins with https://";
    if (BeginsAsTls(buffer_)) return Corrupt(address_ + " speaks TLS; " + kAdvice);
    // Some that speak TLS close without a word.
    const bool is_closed =
        error == http::error::end_of_stream || error == asio::error::connection_reset;
    if (!is_closed || buffer_.size() > 0) return OkStatus();
    return PeerLost(address_ +
                    ": the server closed the connection without an answer; if it speaks HTTPS, " +
                    kAdvice);
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
    if (IsCutTls(error)) return PeerLost(doing + ": the server closed the connection");
    return PeerLost(doing + ": " + error.message());
  }

  asio::io_context io_;
  ClientStream stream_{io_};
  // A header, or the frame of one chunk, must fit: a server could go on with them for ever.
  beast::flat_buffer buffer_{128 << 10};
  const std::string address_;
  bool is_tls_ = false;
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

std::string HttpUrl::text() const {
  return (is_https ? "https://" : "http://") + address() + prefix;
}

Result<HttpClient> HttpClient::Create(const std::string& url, const HttpClientOptions& options) {
  HttpClient client;
  LAMINA_ASSIGN_OR_RETURN(client.url_, HttpUrl::Parse(url));
  client.options_ = options;
  if (client.url_.is_https) {
    LAMINA_ASSIGN_OR_RETURN(client.tls_,
                            ClientTls::Create(options.ca_file, options.check_certificate));
  }
  return client;
}

Result<HttpResponse> HttpClient::Send(const Call& call) const {
  Connection connection(address());
  const Deadline connected = Deadline::After(options_.connect_timeout);
  LAMINA_RETURN_IF_ERROR(connection.Connect(url_.host, url_.port, options_.connect_timeout));
  if (tls_ != nullptr)
    LAMINA_RETURN_IF_ERROR(connection.BeginTls(*tls_, url_.host, connected.Remaining()));

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
