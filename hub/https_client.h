// Reads files over HTTPS: HTTP/1.1, TLS 1.2 or 1.3, one connection for each request.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"
#include "hub/https_url.h"

namespace lamina {

struct HttpsOptions {
  // A file of CA certificates in PEM form that are trusted instead of the system's. "": those of
  // the system, for which OpenSSL looks at $SSL_CERT_FILE and $SSL_CERT_DIR first.
  std::string ca_file;
  // For the look-up of a host, its connection and the TLS handshake together.
  Clock::duration connect_timeout = std::chrono::seconds(20);
  // Between two bytes of an answer, or before the first.
  Clock::duration silence_timeout = std::chrono::seconds(30);
};

struct HttpsRequest {
  HttpsUrl url;
  std::string token;      // sent as "Authorization: Bearer", only to the host and port of `url`
  int64_t from_byte = 0;  // more than 0: asks for the rest of the file from here
};

// An answer whose header is here and whose body is still to be read. Thread: one owner.
class HttpsResponse {
 public:
  virtual ~HttpsResponse() = default;

  virtual int status() const = 0;                                 // 200, 404, ...
  virtual std::string Header(const std::string& name) const = 0;  // "" if there is none
  virtual const HttpsUrl& url() const = 0;                        // behind all redirects

  // The next bytes of the body, valid until the next call; none at its end. kPeerLost: the
  // connection is gone before the end; kTimeout: nothing came for too long; kCorrupt: this is no
  // HTTP. Messages name the host.
  virtual Result<std::string_view> Read() = 0;
};

// Thread: any; immutable.
class HttpsClient {
 public:
  // kInvalidArgument if the file of CA certificates cannot be used.
  static Result<std::unique_ptr<HttpsClient>> Create(const HttpsOptions& options);
  ~HttpsClient();

  // Asks and follows redirects, to https URLs only and without the token where they lead to another
  // host. Every other status is a response. kPeerLost, kTimeout and kCorrupt as those of Read;
  // kInvalidArgument if the host's certificate is refused or a redirect leads nowhere.
  Result<std::unique_ptr<HttpsResponse>> Get(const HttpsRequest& request) const;

 private:
  struct State;
  explicit HttpsClient(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// The whole body. kOutOfSpace if it has more than `max_bytes`, kTimeout if it is not complete at
// the deadline; else errors of Read.
Result<std::string> ReadBody(HttpsResponse& response, size_t max_bytes, Deadline deadline);

}  // namespace lamina
