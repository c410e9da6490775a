// Keep-alive HTTP/1.1 connections to one server, for answers that stream: many at a time on one
// thread.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "api/http_client.h"
#include "base/clock.h"
#include "base/status.h"

namespace lamina {

class ClientTls;

// How a streamed answer ended.
struct StreamEnd {
  // "" if it ended well; else a few words that are the same for all errors of a kind, such as
  // "timed out" or "HTTP 503".
  std::string error_kind;
  std::string error;  // what happened exactly

  bool ok() const { return error_kind.empty(); }
};

// A pool of connections. A request takes an idle one or opens another. Thread: that of `io`.
class HttpConnections {
 public:
  // Gets one server-sent event, "[DONE]" included, and when its bytes had come. The data is valid
  // during the call only.
  using OnEvent = std::function<void(std::string_view data, TimePoint at)>;

  // Looks up the host. `api_key` is sent as a bearer token unless it is empty. With https the
  // server's certificate must come from a CA in `ca_file`, or if that is "" from one that the
  // system trusts. Borrows `io`. kPeerLost if the host is unknown, kTimeout if that is not known
  // within five seconds; kInvalidArgument if `ca_file` cannot be used.
  static Result<std::unique_ptr<HttpConnections>> Create(boost::asio::io_context& io, HttpUrl url,
                                                         const std::string& api_key,
                                                         const std::string& ca_file);
  ~HttpConnections();

  // Posts `json` and hands over the events of the answer until it ends or `deadline` passes. A
  // connection that the server has closed while it was idle is replaced by another one. `path`,
  // `json` and `on_event` must outlive the coroutine.
  boost::asio::awaitable<StreamEnd> PostForEvents(const std::string& path, const std::string& json,
                                                  TimePoint deadline, const OnEvent& on_event);

  // Connections opened so far.
  int num_opened() const { return num_opened_; }

 private:
  struct Connection;
  HttpConnections(boost::asio::io_context& io, HttpUrl url, std::string api_key);

  // Connects, with the TLS handshake if there is one. `connection` has a time limit.
  boost::asio::awaitable<StreamEnd> Open(Connection& connection);
  // One request and its answer on a connection.
  boost::asio::awaitable<StreamEnd> Exchange(Connection& connection, const std::string& path,
                                             const std::string& json, const OnEvent& on_event);

  boost::asio::io_context& io_;
  const HttpUrl url_;
  const std::string api_key_;
  std::shared_ptr<const ClientTls> tls_;  // null: plain HTTP
  boost::asio::ip::tcp::resolver::results_type endpoints_;
  // The one used last is at the end, and is used first.
  std::vector<std::unique_ptr<Connection>> idle_;
  int num_opened_ = 0;
};

}  // namespace lamina
