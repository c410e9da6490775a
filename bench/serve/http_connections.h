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

// How a streamed answer ended.
struct StreamEnd {
  // "": well; else a few words that are the same for all errors of a kind, such as "timed out" or
  // "HTTP 503".
  std::string error_kind;
  std::string error;  // what happened exactly

  bool ok() const { return error_kind.empty(); }
};

// Thread: that of `io`.
class HttpConnections {
 public:
  // One server-sent event, "[DONE]" included, and when its bytes were there. What it points to is
  // gone after the call.
  using OnEvent = std::function<void(std::string_view data, TimePoint at)>;

  // Looks the host up. `api_key` is sent as a bearer token unless empty. kPeerLost: no such host.
  static Result<std::unique_ptr<HttpConnections>> Create(boost::asio::io_context& io, HttpUrl url,
                                                         const std::string& api_key);
  ~HttpConnections();

  // A connection that the server closed while it was idle is replaced, once. `path`, `json` and
  // `on_event` must live until the end.
  boost::asio::awaitable<StreamEnd> PostForEvents(const std::string& path, const std::string& json,
                                                  TimePoint deadline, const OnEvent& on_event);

  int num_opened() const { return num_opened_; }  // connections so far

 private:
  struct Connection;
  HttpConnections(boost::asio::io_context& io, HttpUrl url, std::string api_key);

  boost::asio::awaitable<StreamEnd> Exchange(Connection& connection, const std::string& path,
                                             const std::string& json, const OnEvent& on_event);

  boost::asio::io_context& io_;
  const HttpUrl url_;
  const std::string api_key_;
  boost::asio::ip::tcp::resolver::results_type endpoints_;
  std::vector<std::unique_ptr<Connection>> idle_;  // the last used last
  int num_opened_ = 0;
};

}  // namespace lamina
