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
  uint16_t port = 8000;  // 0: any free one
  ServiceOptions service;

  size_t max_body_bytes = size_t{8} << 20;  // larger requests get 413
  uint32_t max_header_bytes = 32 << 10;
  // How much of one stream may wait for its client beyond the socket's own buffer. A client that
  // reads so slowly is cut off, and its request aborted.
  size_t max_send_queue_bytes = size_t{1} << 20;
  // Beyond, one that waits for its client is closed for a new one (http_session.h).
  int max_connections = 4096;
  // What requests under way may hold of bodies that are not parsed yet: 8 of the longest, or some
  // thousands of ordinary ones. Beyond, the one that holds most gets 503.
  size_t max_body_bytes_in_flight = size_t{64} << 20;
  // A connection's wait for a request, and the time to receive it.
  Clock::duration request_timeout = std::chrono::seconds(75);
  Clock::duration write_timeout = std::chrono::seconds(30);  // without a byte taken by the client
  // Of an answer that waits for its client, beyond the time above: what slow mobile links give
  // (EDGE, 128 kbit/s). An answer of a megabyte is then kept for a minute and a half at most.
  size_t min_bytes_per_second = size_t{16} << 10;
};

// What to warn of when a server listens on `address`: anybody who reaches it may use the model. ""
// if an API key is asked for, or only this machine reaches it.
std::string OpenServerWarning(const std::string& address, bool has_api_key);

// Thread: Create, Start, Stop and the destructor from one owner; SetEngine and port from any.
class HttpServer {
 public:
  // Listens, but does not answer before Start. kInvalidArgument: the host is unknown, or the port
  // is in use or not permitted. `metrics` and what `model` points to are borrowed and outlive the
  // server.
  static Result<std::unique_ptr<HttpServer>> Create(const ServerOptions& options, ServedModel model,
                                                    Metrics& metrics);

  ~HttpServer();  // Stop(zero) if it runs
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Serves on an own thread: health, metrics and models at once, text when there is an engine.
  void Start();

  // The engine that new requests go to; nullptr: none, requests under way fail. When this returns
  // the former engine is not used any more. Not from a sink.
  void SetEngine(Engine* engine);

  // New requests get 503 while those under way may end within `grace`; then what is left fails and
  // all connections close. The engine is not used afterwards. Returns how many requests failed
  // since the call, of those that were under way; 0 if it does not run.
  size_t Stop(Clock::duration grace);

  uint16_t port() const;

 private:
  class Loop;
  explicit HttpServer(std::unique_ptr<Loop> loop);
  std::unique_ptr<Loop> loop_;
};

}  // namespace lamina
