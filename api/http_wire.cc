#include "api/http_wire.h"

#include <algorithm>
#include <boost/beast/core/string.hpp>
#include <cstdio>

#include "base/random_id.h"
#include "base/version.h"

namespace lamina {
namespace {

constexpr size_t kMaxRequestIdBytes = 256;

const char* ReasonPhrase(int status) {
  switch (status) {
    case 200: return "OK";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 413: return "Payload Too Large";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 503: return "Service Unavailable";
    default: return "Status";
  }
}

std::string HeaderStart(int status, const std::string& content_type, const WireOptions& options) {
  std::string header = "HTTP/1.1 " + std::to_string(status) + " " + ReasonPhrase(status) +
                       "\r\nServer: lamina/" + std::string(kVersion) +
                       "\r\nContent-Type: " + content_type +
                       "\r\nConnection: " + (options.keep_alive ? "keep-alive" : "close") + "\r\n";
  if (!options.request_id.empty()) header += "X-Request-Id: " + options.request_id + "\r\n";
  if (!options.allowed_origin.empty())
    header += "Access-Control-Allow-Origin: " + options.allowed_origin +
              "\r\nAccess-Control-Expose-Headers: X-Request-Id\r\nVary: Origin\r\n";
  return header;
}

}  // namespace

std::string WriteResponse(const OutboundResponse& response, const WireOptions& options) {
  std::string bytes = HeaderStart(response.status, response.content_type, options);
  for (const auto& [name, value] : response.headers) bytes += name + ": " + value + "\r\n";
  bytes += "Content-Length: " + std::to_string(response.body.size()) + "\r\n\r\n";
  if (!options.head_only) bytes += response.body;
  return bytes;
}

std::string WritePiecesHeader(const WireOptions& options) {
  return HeaderStart(200, "application/json", options) +
         (options.chunked ? "Transfer-Encoding: chunked\r\n\r\n" : "\r\n");
}

std::string WritePiece(std::string_view piece, const WireOptions& options) {
  if (!options.chunked) return std::string(piece);
  char size[24];
  std::snprintf(size, sizeof(size), "%zx\r\n", piece.size());
  return std::string(size).append(piece).append("\r\n");
}

std::string WriteStreamHeader(const WireOptions& options) {
  const bool lines = options.stream == StreamKind::kLines;
  const char* type = lines ? "application/x-ndjson" : "text/event-stream; charset=utf-8";
  std::string bytes =
      HeaderStart(200, type, options) + "Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\n";
  if (options.chunked) bytes += "Transfer-Encoding: chunked\r\n";
  return bytes + "\r\n";
}

std::string WriteEvent(std::string_view data, std::string_view name, const WireOptions& options) {
  if (options.stream == StreamKind::kLines)
    return WritePiece(std::string(data).append("\n"), options);
  std::string event;
  if (!name.empty()) event.append("event: ").append(name).append("\n");
  return WritePiece(event.append("data: ").append(data).append("\n\n"), options);
}

std::string WriteComment(std::string_view text, const WireOptions& options) {
  if (options.stream == StreamKind::kLines) return WritePiece(" ", options);
  return WritePiece(std::string(":").append(text).append("\n\n"), options);
}

std::string WriteStreamEnd(const WireOptions& options) {
  return options.chunked ? "0\r\n\r\n" : "";
}

std::string PathOfTarget(std::string_view target) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!boost::beast::iequals(target.substr(0, scheme.size()), scheme)) continue;
    target.remove_prefix(std::min(target.find_first_of("/?", scheme.size()), target.size()));
    if (!target.starts_with('/')) return "/";
    break;
  }
  return std::string(target.substr(0, target.find('?')));
}

std::string RequestIdOf(std::string_view value) {
  const bool safe =
      !value.empty() && value.size() <= kMaxRequestIdBytes &&
      std::all_of(value.begin(), value.end(), [](char c) { return c > ' ' && c <= '~'; });
  if (safe) return std::string(value);
  char drawn[33];
  std::snprintf(drawn, sizeof(drawn), "%016llx%016llx", static_cast<unsigned long long>(RandomId()),
                static_cast<unsigned long long>(RandomId()));
  return drawn;
}

}  // namespace lamina
