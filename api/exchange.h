// One HTTP request and its answer, as the API handlers see them: they know no sockets.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lamina {

struct InboundRequest {
  std::string method;         // "GET", "POST", ...
  std::string path;           // without the query
  std::string authorization;  // header of that name, "" if absent
  std::string api_key;        // header X-Api-Key, "" if absent
  std::string request_id;     // the header X-Request-Id, or one that was drawn
  std::string body;
};

struct OutboundResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;  // further ones
};

// What a stream is made of: server-sent events, or lines that are JSON each.
enum class StreamKind { kEvents, kLines };

struct StreamEvent {
  std::string data, name;
};

// Thread: the server's. Exactly one of Respond, RespondInPieces and (SendEvent ..., EndStream)
// answers the request; calls after the client has gone do nothing.
class Exchange {
 public:
  virtual ~Exchange() = default;

  virtual const InboundRequest& request() const = 0;

  // Moves the body out of the request. Until then it counts as memory of the server's that bodies
  // may take, so that others are refused: whoever has parsed it needs it no more.
  virtual std::string TakeBody() = 0;

  // The whole answer.
  virtual void Respond(OutboundResponse response) = 0;

  // A whole answer of JSON with status 200 that need not be in memory as a whole. `write_piece`
  // appends the next piece to its argument and returns true if it was the last; it is called when
  // the connection can take one, and dropped with what it holds when nobody needs it.
  using PieceWriter = std::function<bool(std::string& piece)>;
  virtual void RespondInPieces(PieceWriter write_piece) = 0;

  // Says that events will answer the request, or Respond if it fails before the first of them.
  // Until the answer is complete, also before the first event, a comment is sent whenever nothing
  // else was for ServerOptions::comment_interval; clients read past it. REQUIRES: called once at
  // most.
  virtual void ExpectStream(StreamKind kind) = 0;

  // One server-sent event, "data: <data>", with "event: <name>" before it unless the name is empty;
  // or a line, `data` alone. `data` has no line break. Whatever is first in a stream, an event or a
  // comment, sends the header of a 200 before it.
  virtual void SendEvent(std::string_view data, std::string_view name) = 0;
  void SendEvent(std::string_view data) { SendEvent(data, ""); }

  // Several events at once. Together they may have more bytes than a client may let wait.
  virtual void SendEvents(const std::vector<StreamEvent>& events) = 0;
  virtual void EndStream() = 0;

  // Whether a stream's header was sent. Then the client can be told an error by an event only, and
  // not by Respond.
  virtual bool stream_begun() const = 0;

  // `on_gone` is called once if the client goes, or reads too slowly, before the answer is
  // complete; never from inside the calls above.
  virtual void NotifyGone(std::function<void()> on_gone) = 0;
};

}  // namespace lamina
