// A server that streams answers whose times a test decides: keep-alive, a thread for each
// connection.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "api/http_client.h"
#include "base/clock.h"

namespace lamina::testing {

// Bytes of an answer and how long after the request, or after the bytes before, they are sent.
struct TimedPiece {
  milliseconds after{0};
  std::string bytes;
};

struct TimedAnswer {
  std::vector<TimedPiece> pieces;
  bool close = false;  // the connection, after it
};

inline std::string Chunk(const std::string& bytes) {
  std::array<char, 20> size{};
  snprintf(size.data(), size.size(), "%zx\r\n", bytes.size());
  return size.data() + bytes + "\r\n";
}

constexpr char kStreamHead[] =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
constexpr char kTokenEvent[] = "data: {\"choices\":[{\"index\":0,\"text\":\"x\"}]}\n\n";

inline std::string UsageAndDone(int prompt_tokens, int output_tokens) {
  return "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":" + std::to_string(prompt_tokens) +
         ",\"completion_tokens\":" + std::to_string(output_tokens) + "}}\n\ndata: [DONE]\n\n";
}

// `count` tokens, the first after `first` and the others `gap` apart.
inline TimedAnswer Tokens(int count, milliseconds first, milliseconds gap) {
  TimedAnswer answer;
  for (int i = 0; i < count; ++i)
    answer.pieces.push_back(
        {i == 0 ? first : gap, (i == 0 ? kStreamHead : "") + Chunk(kTokenEvent)});
  answer.pieces.push_back({milliseconds(0), Chunk(UsageAndDone(7, count)) + "0\r\n\r\n"});
  return answer;
}

inline TimedAnswer Plain(const std::string& bytes) { return {{{milliseconds(0), bytes}}, false}; }

class TimedServer {
 public:
  // On the connection's thread.
  using Script = std::function<TimedAnswer(const std::string& request)>;

  explicit TimedServer(Script script) : script_(std::move(script)) {
    fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), length), 0);
    EXPECT_EQ(getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &length), 0);
    EXPECT_EQ(listen(fd_, 256), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Accept(); });
  }

  ~TimedServer() {
    stopping_ = true;
    shutdown(fd_, SHUT_RDWR);  // wakes accept
    thread_.join();
    {
      std::lock_guard lock(mutex_);
      for (const int connection : connections_) shutdown(connection, SHUT_RDWR);
    }
    for (std::thread& thread : threads_) thread.join();
    for (const int connection : connections_) close(connection);
    close(fd_);
  }

  int port() const { return port_; }
  std::string url_text() const { return "http://127.0.0.1:" + std::to_string(port_); }
  HttpUrl url() const { return *HttpUrl::Parse(url_text()); }
  int most_at_a_time() const { return most_; }
  std::vector<TimePoint> request_times() const {
    std::lock_guard lock(mutex_);
    return times_;
  }

 private:
  void Accept() {
    while (!stopping_) {
      const int connection = accept(fd_, nullptr, nullptr);
      if (connection < 0) continue;
      const int on = 1;
      setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
      std::lock_guard lock(mutex_);
      connections_.push_back(connection);
      threads_.emplace_back([this, connection] { Serve(connection); });
    }
  }

  void Serve(int connection) {
    std::string buffer;
    while (ReadRequest(connection, buffer)) {
      const TimePoint now = Clock::now();
      const int at_a_time = ++open_;
      {
        std::lock_guard lock(mutex_);
        times_.push_back(now);
        most_ = std::max<int>(most_, at_a_time);
      }
      const TimedAnswer answer = script_(buffer);
      TimePoint at = now;
      for (size_t i = 0; i < answer.pieces.size(); ++i) {
        at += answer.pieces[i].after;
        std::this_thread::sleep_until(at);
        const std::string& bytes = answer.pieces[i].bytes;
        if (i + 1 == answer.pieces.size()) --open_;
        [[maybe_unused]] const ssize_t sent =
            send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      }
      if (answer.close) {
        shutdown(connection, SHUT_RDWR);
        return;
      }
    }
  }

  // One request with its body; false at the end of the connection.
  static bool ReadRequest(int connection, std::string& request) {
    request.clear();
    std::array<char, 4096> bytes{};
    while (true) {
      const size_t head_end = request.find("\r\n\r\n");
      if (head_end != std::string::npos) {
        const size_t field = request.find("Content-Length: ");
        const size_t body =
            field < head_end ? std::stoul(request.substr(field + strlen("Content-Length: "))) : 0;
        if (request.size() >= head_end + 4 + body) return true;
      }
      const ssize_t count = recv(connection, bytes.data(), bytes.size(), 0);
      if (count <= 0) return false;
      request.append(bytes.data(), static_cast<size_t>(count));
    }
  }

  Script script_;
  int fd_ = -1;
  int port_ = 0;
  std::atomic<bool> stopping_{false};
  std::atomic<int> open_{0};
  mutable std::mutex mutex_;  // guards what follows
  int most_ = 0;
  std::vector<TimePoint> times_;
  std::vector<int> connections_;
  std::vector<std::thread> threads_;
  std::thread thread_;
};

}  // namespace lamina::testing
