// A server that reads one request per connection and answers with fixed bytes, for tests of HTTP clients.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace lamina {

// What one connection gets: `answer` of the request (head and body), then the end of the connection, or silence if `hang`.
struct ScriptedAnswer {
  std::string bytes;
  bool hang = false;
};

class ScriptedServer {
 public:
  using Script = std::function<ScriptedAnswer(const std::string& request)>;  // runs on the server's thread

  explicit ScriptedServer(Script script) : script_(std::move(script)) {
    fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), length), 0);
    EXPECT_EQ(getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &length), 0);
    EXPECT_EQ(listen(fd_, 16), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Loop(); });
  }

  ~ScriptedServer() {
    stopping_ = true;
    shutdown(fd_, SHUT_RDWR);  // wakes accept
    thread_.join();
    close(fd_);
  }

  int port() const { return port_; }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }

  static std::string Http(int status, const std::string& body, const std::string& headers = "") {
    return "HTTP/1.1 " + std::to_string(status) + " X\r\n" + headers + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  }

  // A chunked answer with each piece as a chunk.
  static std::string Chunked(const std::vector<std::string>& pieces, bool finished = true) {
    std::string text = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (const std::string& piece : pieces) {
      std::array<char, 20> size;
      snprintf(size.data(), size.size(), "%zx\r\n", piece.size());
      text += size.data() + piece + "\r\n";
    }
    return text + (finished ? "0\r\n\r\n" : "");
  }

 private:
  void Loop() {
    while (!stopping_) {
      const int connection = accept(fd_, nullptr, nullptr);
      if (connection < 0) continue;
      const ScriptedAnswer answer = script_(ReadRequest(connection));
      [[maybe_unused]] const ssize_t sent = send(connection, answer.bytes.data(), answer.bytes.size(), MSG_NOSIGNAL);
      if (answer.hang) WaitForEnd(connection);
      close(connection);
    }
  }

  static std::string ReadRequest(int connection) {
    std::string request;
    std::array<char, 4096> buffer;
    while (true) {
      const size_t head_end = request.find("\r\n\r\n");
      if (head_end != std::string::npos) {
        const size_t field = request.find("Content-Length: ");
        const size_t body_bytes = field < head_end ? std::stoul(request.substr(field + strlen("Content-Length: "))) : 0;
        if (request.size() >= head_end + 4 + body_bytes) return request;
      }
      const ssize_t count = recv(connection, buffer.data(), buffer.size(), 0);
      if (count <= 0) return request;
      request.append(buffer.data(), static_cast<size_t>(count));
    }
  }

  // Until the client closes, or the server ends.
  void WaitForEnd(int connection) const {
    pollfd poll_fd{connection, POLLIN, 0};
    while (!stopping_ && poll(&poll_fd, 1, 10) == 0) {
    }
  }

  Script script_;
  int fd_ = -1;
  int port_ = 0;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace lamina
