// A small blocking HTTP/1.1 client for the command line, over HTTPS too: JSON in, JSON or
// server-sent events out. No redirects, one connection per call.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "api/sse_parser.h"
#include "base/clock.h"
#include "base/status.h"

namespace lamina {

class ClientTls;

struct HttpResponse {
  int status = 0;  // 200, 404, ...
  std::string body;

  bool ok() const { return status >= 200 && status < 300; }
};

// "http://host[:port][/prefix]", or https. A "/v1" at its end, as base URLs of OpenAI clients have
// it, is left out: paths begin with it.
struct HttpUrl {
  bool is_https = false;
  std::string host, port;
  std::string prefix;  // in front of every path; "" or "/..." without a slash at its end

  // kInvalidArgument says what is wrong with it.
  static Result<HttpUrl> Parse(const std::string& url);

  std::string address() const;  // "host:port"
  std::string text() const;     // "https://host:port/prefix"
};

struct HttpClientOptions {
  std::string api_key;  // sent as "Authorization: Bearer" unless empty
  // With https: a file of CA certificates in PEM form that are trusted instead of the system's; "":
  // those of the system.
  std::string ca_file;
  // False: whoever answers is believed, as a process that asks itself may do.
  bool check_certificate = true;
  // For the look-up of the host, the connection and the TLS handshake together.
  Clock::duration connect_timeout = std::chrono::seconds(5);
  // Between two bytes of the answer, or before the first.
  Clock::duration silence_timeout = std::chrono::seconds(60);
  size_t max_body_bytes = size_t{64} << 20;  // of an answer, or of one event of a stream
};

// Thread: any, one call per object at a time.
class HttpClient {
 public:
  // kInvalidArgument says what is wrong with the URL, or with the file of CA certificates.
  static Result<HttpClient> Create(const std::string& url, const HttpClientOptions& options = {});

  // Any status of the server is a response. kPeerLost if it cannot be reached, or is gone before
  // the answer was complete; kInvalidArgument if its certificate is refused; kTimeout if it says
  // nothing for too long; kCorrupt if the answer is no HTTP, or with https no TLS, or its header
  // has more than 8 KiB; kOutOfSpace if its body has more than `max_body_bytes`. Every message
  // names the address, or the host if that was not found.
  Result<HttpResponse> Get(const std::string& path) const;
  Result<HttpResponse> PostJson(const std::string& path, const std::string& json) const;

  // Hands each event of a 2xx answer to `on_data` as it comes, "[DONE]" included. Returning false
  // from it ends the call with success and closes the connection. The response has a body only if
  // the status is not 2xx. It has the errors of PostJson.
  Result<HttpResponse> PostForEvents(const std::string& path, const std::string& json,
                                     const SseParser::OnData& on_data) const;

  std::string address() const { return url_.address(); }

 private:
  HttpClient() = default;
  struct Call;
  Result<HttpResponse> Send(const Call& call) const;

  HttpUrl url_;
  HttpClientOptions options_;
  std::shared_ptr<const ClientTls> tls_;  // null: plain HTTP
};

// True if something accepts connections there.
bool CanConnect(const std::string& host, int port, Clock::duration timeout);

// What an error answer of an OpenAI-compatible server says ({"error": {"message"}}), else the
// body's beginning.
std::string ErrorMessageOf(const HttpResponse& response);

}  // namespace lamina
