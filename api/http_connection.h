// A client's connection, and the answers that are sent on it one after another.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "api/client_patience.h"
#include "api/exchange.h"
#include "api/http_server.h"
#include "api/http_stream.h"
#include "api/http_wire.h"
#include "base/clock.h"

namespace lamina {

// The owner reads requests from stream(), and answers each of them with Begin and then exactly one
// of Respond, RespondInPieces and (SendEvent ..., EndStream). What the client does not take at once
// waits here. A client that lets it wait too long (client_patience.h), or lets too much of a stream
// wait, is cut off. Thread: the server's.
class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  // `options` outlives the connection. `tls`: null for plain HTTP.
  HttpConnection(boost::asio::ip::tcp::socket socket, std::shared_ptr<const TlsContext> tls,
                 const ServerOptions& options);

  // `on_lost` is called once if the connection is lost; never from inside the calls that answer.
  void NotifyLost(std::function<void()> on_lost) { on_lost_ = std::move(on_lost); }

  HttpStream& stream() { return stream_; }

  // The connection is lost after `timeout`, unless Disarm or another Arm is called before. What is
  // sent arms and disarms it too.
  void Arm(Clock::duration timeout);
  void Disarm() { deadline_.cancel(); }

  // The client is gone or too slow, or its place is needed: closes the connection and says so.
  void Lose();
  void Close();
  bool closed() const { return closed_; }

  // The server stops: the connection ends as soon as what is queued is sent.
  void EndSoon();

  // Begins the answer to the next request and returns its number. REQUIRES: the answer before it
  // was sent.
  uint64_t Begin(WireOptions wire);
  // Whether the answer with this number can go on: it is the latest, it is not complete, and its
  // client is there.
  bool Takes(uint64_t answer) const {
    return answer == answer_ && !complete_ && !closed_ && !too_slow_;
  }
  bool complete() const { return complete_; }  // the whole answer is queued
  boost::asio::awaitable<void> Sent();         // waits until the answer was sent or cannot be

  // As in Exchange. REQUIRES: Takes(the answer that was begun last).
  void Respond(const OutboundResponse& response);
  void RespondInPieces(Exchange::PieceWriter write_piece);
  void ExpectStream(StreamKind kind);
  void SendEvent(std::string_view data, std::string_view name);
  void SendEvents(const std::vector<StreamEvent>& events);
  void EndStream();
  bool stream_begun() const { return stream_begun_; }

  // Sends bytes that a client reads past, so that the system of one that is gone resets the
  // connection: an interim response before the answer, a comment in a stream. HTTP/1.0 knows no
  // such responses.
  bool CanProbe() const { return stream_begun_ || wire_.chunked; }
  void Probe();

 private:
  // Held by a coroutine: keeps the connection alive while it runs.
  using Self = std::shared_ptr<HttpConnection>;

  bool QueueIsFull();
  void Send(std::string_view bytes);
  void Finish(std::string_view bytes);
  std::string TakeStreamHeader();
  void StartWriting();
  boost::asio::awaitable<void> Write(Self self);
  boost::asio::awaitable<void> SendComments(Self self, uint64_t answer);
  bool TakesBytes();
  void TakePiece();
  ClientPatience NewPatience() const {
    return {options_.write_timeout, options_.min_bytes_per_second};
  }

  HttpStream stream_;
  const ServerOptions& options_;
  std::function<void()> on_lost_;
  boost::asio::steady_timer deadline_;
  boost::asio::steady_timer silence_;  // of a stream; cancelled at its end
  // Never expires; cancelled when the answer was sent or the client is gone.
  boost::asio::steady_timer wake_;
  bool closed_ = false;
  bool too_slow_ = false;  // about to be closed: nothing more is queued
  bool stopping_ = false;

  // Of the answer that was begun last.
  uint64_t answer_ = 0;
  WireOptions wire_;
  ClientPatience patience_ = NewPatience();
  bool stream_begun_ = false;
  bool complete_ = false;
  bool sent_ = false;

  std::string queue_;
  size_t burst_bytes_ = 0;             // of queue_: what SendEvents added
  Exchange::PieceWriter write_piece_;  // writes what follows queue_; null: nothing
  bool writing_ = false;
  TimePoint sent_at_;  // when the system last took bytes
};

}  // namespace lamina
