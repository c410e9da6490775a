// The bytes of HTTP/1.1 answers.
#pragma once

#include <string>
#include <string_view>

#include "api/exchange.h"

namespace lamina {

// What the answer's bytes depend on besides its content.
struct WireOptions {
  bool keep_alive = true;
  // Streams; HTTP/1.0 clients know no chunks: their stream ends with the connection.
  bool chunked = true;
  bool head_only = false;      // HEAD: the header alone
  std::string request_id;      // X-Request-Id, unless empty. REQUIRES: printable ASCII
  std::string allowed_origin;  // of web pages that may read the answer; "": none is named
  StreamKind stream = StreamKind::kEvents;
};

// An interim answer before the answer to a request. HTTP/1.0 knows none (RFC 9110, section 10.1.1).
inline constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

// Header and body.
std::string WriteResponse(const OutboundResponse& response, const WireOptions& options);

// Header of an answer of JSON whose length is not known, and a piece of it.
std::string WritePiecesHeader(const WireOptions& options);
std::string WritePiece(std::string_view piece, const WireOptions& options);

// Header of a stream, one event or line of it, and the end of it or of what has no length.
std::string WriteStreamHeader(const WireOptions& options);
std::string WriteEvent(std::string_view data, std::string_view name, const WireOptions& options);
std::string WriteStreamEnd(const WireOptions& options);

// Bytes of a stream that clients read past: a comment, or white space in front of the next line.
std::string WriteComment(std::string_view text, const WireOptions& options);

// The path that a request's target names, without the query: "/health" of "/health?a" and, as
// requests to proxies are written and servers accept (RFC 9112, section 3.2.2), of
// "http://host:8000/health".
std::string PathOfTarget(std::string_view target);

// The id that a client gives its request, if it is printable ASCII of 1 to 256 bytes, else a new
// one.
std::string RequestIdOf(std::string_view value);

}  // namespace lamina
