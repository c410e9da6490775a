// The HTTP server in front of the API: one thread for all connections. HTTP/1.1 with keep-alive,
// answers whole or as server-sent events.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "api/api_service.h"
#include "api/metrics.h"
#include "base/clock.h"
#include "base/status.h"
#include "manager/engine.h"

namespace lamina {

struct ServerOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8000;  // 0 takes any free one
  ServiceOptions service;
  // Files of the certificate (with those between it and the CA) and of its key, in PEM form: the
  // server speaks HTTPS. Both empty: HTTP.
  std::string ssl_certfile, ssl_keyfile;

  // Requests with a larger body get 413, and those with a larger header 431.
  size_t max_body_bytes = size_t{8} << 20;
  uint32_t max_header_bytes = 32 << 10;
  // How much of one stream may wait for its client beyond the socket's own buffer. A client that
  // reads so slowly is cut off, and its request aborted.
  size_t max_send_queue_bytes = size_t{1} << 20;
  // When all places are taken, a connection that waits for its client's next request is closed for
  // a new one (connection_places.h).
  int max_connections = 4096;
  // How much memory all bodies together may take that are being received or wait to be parsed. It
  // is enough for 8 of the longest, or for some thousands of ordinary ones. When they take more,
  // the largest of those that are being received is refused with 503.
  size_t max_body_bytes_in_flight = size_t{64} << 20;
  // How long a connection may stay open without a complete request: the wait for its first byte
  // and the time to receive all of it count together.
  Clock::duration request_timeout = std::chrono::seconds(75);
  // How long an answer may wait for its client (client_patience.h), and the rate at which what the
  // client takes earns it further time. The rate is what slow mobile links give (EDGE, 128 kbit/s):
  // an answer of a megabyte is then kept for a minute and a half at most.
  Clock::duration write_timeout = std::chrono::seconds(30);
  size_t min_bytes_per_second = size_t{16} << 10;
  // A stream that has sent nothing for so long sends a comment, because many proxies cut a
  // connection that is silent for a minute. REQUIRES: > 0.
  Clock::duration comment_interval = std::chrono::seconds(10);
  // Web pages that may use the API from a browser, such as "https://example.org"; "*": all.
  std::vector<std::string> allowed_origins = {};
};

// The warning for a server that listens on `address` and that anybody who reaches it may use. It is
// empty if the server asks for an API key, or if `address` is a loopback address, which only this
// machine reaches.
std::string OpenServerWarning(const std::string& address, bool has_api_key);

// Thread: Create, Start and the destructor from one owner; SetEngine, Stop and port from any.
class HttpServer {
 public:
  // Listens, but does not answer before Start. kInvalidArgument: the host is unknown, the port is
  // in use or not permitted, or the certificate cannot be used. `metrics` and what `model` points
  // to are borrowed and outlive the server.
  static Result<std::unique_ptr<HttpServer>> Create(const ServerOptions& options, ServedModel model,
                                                    Metrics& metrics);

  ~HttpServer();  // calls Stop with no grace if the server runs
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Begins to serve on a thread of its own. /health, /metrics and /v1/models are answered at once;
  // requests for text get 503 until there is an engine.
  void Start();

  // Sets the engine that new requests go to; nullptr takes it away. If another one was set before,
  // its requests under way fail, and when this returns it is not used any more. Borrows `engine`
  // until the next call, or until Stop returns. It must not be called from an engine's sink.
  void SetEngine(Engine* engine);

  // Refuses new requests with 503 and gives those under way up to `grace` to end. Then what is left
  // fails, and all connections close. The engine is not used afterwards. Returns how many requests
  // failed, of those that were under way at the call or ServiceOptions::drain_lookback before it; 0
  // if the server does not run. While one thread stops the server, others that call it wait for
  // that and get 0. It must not be called from an engine's sink.
  size_t Stop(Clock::duration grace);

  uint16_t port() const;

 private:
  class Loop;
  explicit HttpServer(std::unique_ptr<Loop> loop);
  std::unique_ptr<Loop> loop_;
};

}  // namespace lamina
