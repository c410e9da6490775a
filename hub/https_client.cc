#include "hub/https_client.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <cstdlib>
#include <exception>
#include <utility>

#include "transport/name_lookup.h"
#include "transport/server_trust.h"

namespace lamina {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;

constexpr int kMaxRedirects = 8;
// A header must fit, with the signed URLs that content networks use, or the frame of one chunk.
constexpr size_t kMaxBufferedBytes = 128 << 10;
constexpr std::uint32_t kMaxHeaderBytes = 32 << 10;

bool IsRedirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

// What somebody whose machines reach the internet through a proxy has to know.
std::string ProxyAdvice() {
  for (const char* name : {"HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"}) {
    const char* const value = std::getenv(name);
    if (value != nullptr && *value != '\0')
      return std::string("; ") + name + " is set, and lamina connects without a proxy";
  }
  return "";
}

// A connection and the answer that comes over it. Every operation ends by itself after a time:
// Beast's time-outs need asynchronous operations, so each is started and the loop run until it is
// over.
class HubConnection final : public HttpsResponse {
 public:
  HubConnection(asio::ssl::context& context, HttpsUrl url, const HttpsOptions& options)
      : stream_(io_, context), url_(std::move(url)), options_(options) {
    parser_.body_limit(boost::none);  // whoever reads it counts
    parser_.header_limit(kMaxHeaderBytes);
  }

  Status Connect();
  Status Ask(const HttpsRequest& request, bool with_token);

  int status() const override { return static_cast<int>(parser_.get().result_int()); }
  std::string Header(const std::string& name) const override {
    return std::string(parser_.get()[name]);
  }
  const HttpsUrl& url() const override { return url_; }
  Result<std::string_view> Read() override;

 private:
  template <typename Start>
  error_code Run(Clock::duration timeout, Start start) {
    error_code result;
    beast::get_lowest_layer(stream_).expires_after(timeout);
    start([&result](error_code error, auto&&...) { result = error; });
    io_.restart();
    io_.run();
    return result;
  }

  Status Handshake(Clock::duration timeout);
  Status Failure(const error_code& error, const std::string& doing, Clock::duration timeout) const;

  asio::io_context io_;
  asio::ssl::stream<beast::tcp_stream> stream_;
  const HttpsUrl url_;
  const HttpsOptions& options_;  // of the client, which outlives its answers
  beast::flat_buffer buffer_{kMaxBufferedBytes};
  http::response_parser<http::string_body> parser_;
  std::string read_;
};

Status HubConnection::Failure(const error_code& error, const std::string& doing,
                              Clock::duration timeout) const {
  const std::string what = url_.authority() + ": " + doing;
  if (error == beast::error::timeout)
    return TimedOut(what + ": nothing for " +
                    std::to_string(std::chrono::duration_cast<milliseconds>(timeout).count()) +
                    " ms");
  const bool is_cut = error == http::error::end_of_stream ||
                      error == http::error::partial_message ||
                      error == asio::ssl::error::stream_truncated;
  if (is_cut) return PeerLost(what + ": the server closed the connection");
  if (error.category() == http::make_error_code(http::error::bad_version).category())
    return Corrupt(what + ": " + error.message());
  return PeerLost(what + ": " + error.message());
}

Status HubConnection::Handshake(Clock::duration timeout) {
  const error_code error = Run(timeout, [this](auto handler) {
    stream_.async_handshake(asio::ssl::stream_base::client, std::move(handler));
  });
  if (!error) return OkStatus();
  LAMINA_RETURN_IF_ERROR(RefusalOf(stream_.native_handle(), url_.authority()));
  return Failure(error, "TLS handshake", timeout);
}

Status HubConnection::Connect() {
  const Deadline deadline = Deadline::After(options_.connect_timeout);
  const auto endpoints = LookUp(url_.host, url_.port, options_.connect_timeout);
  if (!endpoints.ok())
    return {endpoints.status().code(), endpoints.status().message() + ProxyAdvice()};
  const error_code error = Run(deadline.Remaining(), [&](auto handler) {
    beast::get_lowest_layer(stream_).async_connect(*endpoints, std::move(handler));
  });
  if (error) {
    const Status failed = Failure(error, "cannot connect", options_.connect_timeout);
    return {failed.code(), failed.message() + ProxyAdvice()};
  }
  LAMINA_RETURN_IF_ERROR(ExpectHost(stream_.native_handle(), url_.host));
  return Handshake(deadline.Remaining());
}

Status HubConnection::Ask(const HttpsRequest& request, bool with_token) {
  http::request<http::empty_body> message(http::verb::get, url_.target, 11);
  message.set(http::field::host, url_.authority());
  message.set(http::field::user_agent, "lamina");
  message.set(http::field::accept, "*/*");
  message.set(http::field::accept_encoding, "identity");
  message.set(http::field::connection, "close");
  if (request.from_byte > 0)
    message.set(http::field::range, "bytes=" + std::to_string(request.from_byte) + "-");
  if (with_token && !request.token.empty())
    message.set(http::field::authorization, "Bearer " + request.token);
  error_code error = Run(options_.silence_timeout, [&](auto handler) {
    http::async_write(stream_, message, std::move(handler));
  });
  if (error) return Failure(error, "sending the request", options_.silence_timeout);
  error = Run(options_.silence_timeout, [&](auto handler) {
    http::async_read_header(stream_, buffer_, parser_, std::move(handler));
  });
  return error ? Failure(error, "waiting for an answer", options_.silence_timeout) : OkStatus();
}

Result<std::string_view> HubConnection::Read() {
  while (true) {
    read_.clear();
    std::swap(read_, parser_.get().body());
    if (!read_.empty() || parser_.is_done()) return std::string_view(read_);
    const error_code error = Run(options_.silence_timeout, [this](auto handler) {
      http::async_read_some(stream_, buffer_, parser_, std::move(handler));
    });
    if (error) return Failure(error, "reading the answer", options_.silence_timeout);
  }
}

}  // namespace

struct HttpsClient::State {
  explicit State(const HttpsOptions& client_options) : options(client_options) {}

  const HttpsOptions options;
  // OpenSSL counts the connections that use it, which only read it.
  asio::ssl::context context{asio::ssl::context::tls_client};
};

HttpsClient::HttpsClient(std::unique_ptr<State> state) : state_(std::move(state)) {}
HttpsClient::~HttpsClient() = default;

Result<std::unique_ptr<HttpsClient>> HttpsClient::Create(const HttpsOptions& options) {
  try {
    auto state = std::make_unique<State>(options);
    LAMINA_RETURN_IF_ERROR(TrustCas(state->context.native_handle(), options.ca_file));
    return std::unique_ptr<HttpsClient>(new HttpsClient(std::move(state)));
  } catch (const std::exception& error) {
    return InternalError(std::string("libssl cannot be used: ") + error.what());
  }
}

Result<std::unique_ptr<HttpsResponse>> HttpsClient::Get(const HttpsRequest& request) const {
  HttpsUrl url = request.url;
  for (int redirects = 0; redirects <= kMaxRedirects; ++redirects) {
    std::unique_ptr<HubConnection> connection;
    try {
      connection = std::make_unique<HubConnection>(state_->context, url, state_->options);
    } catch (const std::exception& error) {
      return InternalError(std::string("libssl cannot make a connection: ") + error.what());
    }
    LAMINA_RETURN_IF_ERROR(connection->Connect());
    LAMINA_RETURN_IF_ERROR(connection->Ask(request, url.origin() == request.url.origin()));
    if (!IsRedirect(connection->status()))
      return std::unique_ptr<HttpsResponse>(std::move(connection));
    Result<HttpsUrl> next = url.Follow(connection->Header("Location"));
    if (!next.ok()) return next.status().WithContext("a redirect from " + url.authority());
    url = *std::move(next);
  }
  return InvalidArgument(request.url.authority() + " redirects in a circle: more than " +
                         std::to_string(kMaxRedirects) + " times");
}

Result<std::string> ReadBody(HttpsResponse& response, size_t max_bytes, Deadline deadline) {
  std::string body;
  while (true) {
    LAMINA_ASSIGN_OR_RETURN(const std::string_view bytes, response.Read());
    if (bytes.empty()) return body;
    if (body.size() + bytes.size() > max_bytes)
      return OutOfSpace(response.url().authority() + ": the answer has more than " +
                        std::to_string(max_bytes) + " bytes");
    body += bytes;
    if (deadline.Passed())
      return TimedOut(response.url().authority() + ": the answer does not end");
  }
}

}  // namespace lamina
