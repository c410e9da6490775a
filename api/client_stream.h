// A client's connection, plain TCP or TLS over it, as Beast reads and writes it, and what its TLS
// needs.
#pragma once

#include <boost/asio/async_result.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/system/error_code.hpp>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "base/status.h"

namespace lamina {

// Whom a client believes. Immutable. Thread: any.
class ClientTls {
 public:
  // A server must show a certificate of the host that was asked for, which comes from a CA in
  // `ca_file` (PEM form) or, if that is "", from one that the system trusts. Without
  // `check_certificate` whoever answers is believed. kInvalidArgument if the file of CAs cannot be
  // used.
  static Result<std::shared_ptr<const ClientTls>> Create(const std::string& ca_file,
                                                         bool check_certificate);
  ~ClientTls();

 private:
  friend class ClientStream;
  struct Context;
  explicit ClientTls(std::unique_ptr<Context> context);

  std::unique_ptr<Context> context_;
};

// Whether a connection over TLS ended without the message by which TLS ends one.
bool IsCutTls(const boost::system::error_code& error);

// What is called back is behind a function, so that the templates of TLS are compiled once and not
// for each of Beast's operations. Thread: that of `io`.
class ClientStream {
 public:
  using executor_type = boost::beast::tcp_stream::executor_type;

  explicit ClientStream(boost::asio::io_context& io);
  ~ClientStream();

  executor_type get_executor() { return tcp_.get_executor(); }
  // To connect, and to limit the time of what follows, which ends with its time-out over TLS too.
  boost::beast::tcp_stream& tcp() { return tcp_; }

  // From now on everything goes through TLS; the handshake is to come first. `host` is whom the
  // certificate has to be for: kInvalidArgument if none can be. kInternal if memory is short.
  // REQUIRES: it is connected.
  Status BeginTls(const ClientTls& tls, const std::string& host);
  template <typename Token>
  auto async_handshake(Token&& token) {
    return boost::asio::async_initiate<Token, void(boost::system::error_code)>(
        [this](auto&& handler) { Handshake(Erased<HandshakeDone>(handler)); }, token);
  }
  // What was wrong if the handshake with `authority` ("host:port") ended with `error`:
  // kInvalidArgument if this end has refused the certificate, kCorrupt if the server speaks no TLS,
  // else kPeerLost. REQUIRES: BeginTls was called.
  Status HandshakeError(const boost::system::error_code& error, const std::string& authority) const;

  template <typename Buffers, typename Token>
  auto async_read_some(const Buffers& buffers, Token&& token) {
    return boost::asio::async_initiate<Token, void(boost::system::error_code, size_t)>(
        [this](auto&& handler, boost::asio::mutable_buffer into) {
          Read(into, Erased<Done>(handler));
        },
        token, *boost::asio::buffer_sequence_begin(buffers));
  }
  template <typename Buffers, typename Token>
  auto async_write_some(const Buffers& buffers, Token&& token) {
    return boost::asio::async_initiate<Token, void(boost::system::error_code, size_t)>(
        [this](auto&& handler, boost::asio::const_buffer from) {
          Write(from, Erased<Done>(handler));
        },
        token, *boost::asio::buffer_sequence_begin(buffers));
  }

 private:
  struct Tls;
  using Done = std::function<void(boost::system::error_code, size_t)>;
  using HandshakeDone = std::function<void(boost::system::error_code)>;

  template <typename Function, typename Handler>
  static Function Erased(Handler& handler) {
    const auto shared = std::make_shared<std::remove_const_t<Handler>>(std::move(handler));
    return [shared](auto... results) { (*shared)(results...); };
  }
  void Handshake(HandshakeDone done);
  void Read(boost::asio::mutable_buffer into, Done done);
  void Write(boost::asio::const_buffer from, Done done);

  boost::beast::tcp_stream tcp_;
  std::unique_ptr<Tls> tls_;  // null: plain
};

}  // namespace lamina
