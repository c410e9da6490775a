// An HTTPS server on the loopback that says what a test tells it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/tls_files.h"

namespace lamina::testing {

struct TlsRequest {
  std::string target;
  std::map<std::string, std::string> headers;  // names in lower case

  std::string Header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? "" : found->second;
  }
};

// Whole bytes of an answer, and then the end of the connection.
struct TlsAnswer {
  std::string bytes;
  bool hang = false;  // no end: the server is silent until the test ends
  // Sent over and over behind the bytes, until the client goes.
  std::string endless = "";
  bool keep = false;  // no end: another request may come

  static TlsAnswer Http(int status, const std::string& body, const std::string& headers = "") {
    return {"HTTP/1.1 " + std::to_string(status) + " X\r\n" + headers +
            "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body};
  }
};

class TlsServer {
 public:
  // Runs on the connection's thread.
  using Script = std::function<TlsAnswer(const TlsRequest&)>;

  // Throws if the files cannot be used.
  TlsServer(const TlsFiles& files, Script script);
  ~TlsServer();

  int port() const;
  std::string url() const { return "https://127.0.0.1:" + std::to_string(port()); }
  std::vector<TlsRequest> requests() const;  // so far

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lamina::testing
