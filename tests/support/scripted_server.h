// A server that answers requests with fixed bytes, for tests of HTTP clients.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/timed_server.h"

namespace lamina {

// What a request gets: `answer` of it (head and body), then the end of the connection, or silence
// if `hang`.
struct ScriptedAnswer {
  std::string bytes;
  bool hang = false;
};

class ScriptedServer {
 public:
  // Runs on the connection's thread.
  using Script = std::function<ScriptedAnswer(const std::string& request)>;

  explicit ScriptedServer(Script script)
      : server_([script = std::move(script)](const std::string& request) {
          ScriptedAnswer answer = script(request);
          return testing::TimedAnswer{{{milliseconds(0), std::move(answer.bytes)}}, !answer.hang};
        }) {}

  int port() const { return server_.port(); }
  std::string url() const { return server_.url_text(); }

  static std::string Http(int status, const std::string& body, const std::string& headers = "") {
    return "HTTP/1.1 " + std::to_string(status) + " X\r\n" + headers +
           "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  }

  // A chunked answer with each piece as a chunk.
  static std::string Chunked(const std::vector<std::string>& pieces, bool finished = true) {
    std::string text = testing::kStreamHead;
    for (const std::string& piece : pieces) text += testing::Chunk(piece);
    return text + (finished ? "0\r\n\r\n" : "");
  }

 private:
  testing::TimedServer server_;
};

}  // namespace lamina
