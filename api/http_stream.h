// A client's connection as Asio and Beast read and write it: plain TCP, or inside TLS.
#pragma once

#include <boost/asio/async_result.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/compose.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "base/status.h"
#include "transport/control_stream.h"
#include "transport/tls_context.h"

namespace lamina {

// Thread: the server's. Outlives what was begun with it.
class HttpStream {
 public:
  using executor_type = boost::asio::ip::tcp::socket::executor_type;

  // `tls`: this end's certificate; null for plain TCP. A client that speaks plain HTTP where TLS is
  // expected is read as if there was none, so that it can be told (lacks_tls).
  HttpStream(boost::asio::ip::tcp::socket socket, std::shared_ptr<const TlsContext> tls);
  ~HttpStream() { Close(); }
  HttpStream(const HttpStream&) = delete;
  HttpStream& operator=(const HttpStream&) = delete;

  executor_type get_executor() { return socket_.get_executor(); }
  // For its options, and to wait for it. Reading or writing it would pass TLS by.
  boost::asio::ip::tcp::socket& socket() { return socket_; }
  bool lacks_tls() const { return lacks_tls_; }

  // The operations of Beast's AsyncStream. With TLS the first read waits for the handshake too; an
  // error of TLS comes as asio::error::connection_reset.
  template <typename Buffers, typename Token>
  auto async_read_some(const Buffers& buffers, Token&& token) {
    return boost::asio::async_initiate<Token, void(boost::system::error_code, size_t)>(
        [this](auto&& handler, const Buffers& into) {
          if (tls_ == nullptr) {
            socket_.async_read_some(into, std::forward<decltype(handler)>(handler));
            return;
          }
          const boost::asio::mutable_buffer first = *boost::asio::buffer_sequence_begin(into);
          Try(boost::asio::ip::tcp::socket::wait_read, std::move(handler), [this, first] {
            return ReadNow({static_cast<char*>(first.data()), first.size()});
          });
        },
        token, buffers);
  }
  template <typename Buffers, typename Token>
  auto async_write_some(const Buffers& buffers, Token&& token) {
    return boost::asio::async_initiate<Token, void(boost::system::error_code, size_t)>(
        [this](auto&& handler, const Buffers& from) {
          if (tls_ == nullptr) {
            socket_.async_write_some(from, std::forward<decltype(handler)>(handler));
            return;
          }
          const boost::asio::const_buffer first = *boost::asio::buffer_sequence_begin(from);
          Try(boost::asio::ip::tcp::socket::wait_write, std::move(handler), [this, first] {
            return WriteNow({static_cast<const char*>(first.data()), first.size()});
          });
        },
        token, buffers);
  }

  // What has come, without waiting: as ControlStream::Read.
  Result<size_t> ReadNow(std::span<char> into);
  // Tells the client that nothing more comes; it can still be read from.
  void EndOutput();
  // What waits ends with asio::error::operation_aborted.
  void Close();

 private:
  using Wait = boost::asio::ip::tcp::socket::wait_type;

  // Calls `attempt` until it returns something else than kTryAgain.
  template <typename Attempt>
  struct Operation {
    HttpStream& stream;
    Attempt attempt;
    Wait wait;
    bool waited = false, done = false;
    boost::system::error_code result = {};
    size_t count = 0;

    template <typename Self>
    void operator()(Self& self, boost::system::error_code error = {}) {
      if (!done) {
        if (!error && !stream.socket_.is_open()) error = boost::asio::error::operation_aborted;
        const Result<size_t> got = error ? Result<size_t>(size_t{0}) : attempt();
        if (got.status().code() == StatusCode::kTryAgain) {
          waited = true;
          HttpStream& waiting = stream;  // `this` moves with `self`
          waiting.socket_.async_wait(waiting.Awaited(wait), std::move(self));
          return;
        }
        done = true;
        result = error;
        if (!got.ok()) result = boost::asio::error::connection_reset;
        if (got.ok()) count = *got;
        if (!error && got.ok() && count == 0 && wait == Wait::wait_read)
          result = boost::asio::error::eof;
        if (!waited) {  // nobody is called back from inside the call that began it
          boost::asio::post(stream.get_executor(), std::move(self));
          return;
        }
      }
      self.complete(result, count);
    }
  };

  template <typename Handler, typename Attempt>
  void Try(Wait wait, Handler handler, Attempt attempt) {
    boost::asio::async_compose<Handler, void(boost::system::error_code, size_t)>(
        Operation<Attempt>{*this, std::move(attempt), wait}, handler, socket_);
  }

  Result<size_t> WriteNow(std::string_view bytes);
  // TLS may have to read before it can write, and the other way round.
  Wait Awaited(Wait wait) const;

  boost::asio::ip::tcp::socket socket_;
  // Owns the socket too: closed by Close, which takes it away from socket_ first. Null: plain TCP.
  std::unique_ptr<ControlStream> tls_;
  bool heard_ = false;  // the client's first byte
  bool lacks_tls_ = false;
};

}  // namespace lamina
