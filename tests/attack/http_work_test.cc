// Small requests with large answers, and long texts: the manager's memory stays bounded and /health
// quick.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>

#include "base/clock.h"
#include "tests/support/paths.h"
#include "tests/support/server_process.h"

namespace lamina::testing {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::seconds;

const std::string kModel = SourcePath("/models/tiny-stories");

// What came back on a bare socket: its beginning, its end and how much it was in all.
struct Raw {
  std::string begin, end;
  size_t bytes = 0;
};

Raw Exchange(int port, const std::string& path, const std::string& body) {
  Raw raw;
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const timeval patience = {120, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  const std::string request = "POST " + path +
                              " HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: "
                              "application/json\r\nContent-Length: " +
                              std::to_string(body.size()) + "\r\n\r\n" + body;
  bool open = connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  for (size_t sent = 0; open && sent < request.size();) {
    const ssize_t count = send(fd, request.data() + sent, request.size() - sent, MSG_NOSIGNAL);
    open = count > 0;
    if (open) sent += static_cast<size_t>(count);
  }
  std::string piece(size_t{1} << 16, '\0');
  for (ssize_t count = 0; open && (count = recv(fd, piece.data(), piece.size(), 0)) > 0;) {
    const std::string_view got(piece.data(), static_cast<size_t>(count));
    raw.bytes += got.size();
    if (raw.begin.size() < 4096) raw.begin += got;
    raw.end =
        (raw.end + std::string(got))
            .substr(raw.end.size() + got.size() > 4096 ? raw.end.size() + got.size() - 4096 : 0);
  }
  close(fd);
  return raw;
}

// Asks for /health all the time while it lives and keeps the longest wait.
class HealthWatch {
 public:
  explicit HealthWatch(const ServerProcess& server) : thread_([this, &server] { Run(server); }) {}
  ~HealthWatch() { Stop(); }

  void Stop() {
    quit_ = true;
    if (thread_.joinable()) thread_.join();
  }
  milliseconds longest() const { return longest_; }
  int num_bad() const { return num_bad_; }
  int num_asked() const { return num_asked_; }

 private:
  void Run(const ServerProcess& server) {
    while (!quit_) {
      const auto begin = Clock::now();
      num_bad_ += server.Health() != 200;
      longest_ = std::max(longest_, std::chrono::duration_cast<milliseconds>(Clock::now() - begin));
      ++num_asked_;
      std::this_thread::sleep_for(milliseconds(10));  // leaves the cores to the server
    }
  }

  std::atomic<bool> quit_ = false;
  milliseconds longest_{0};
  int num_bad_ = 0;
  int num_asked_ = 0;
  std::thread thread_;
};

// 128 choices of 300 tokens with 20 log-probabilities each: 200 bytes that ask for sixty megabytes.
TEST(HttpWork, ASmallRequestForAHugeAnswerTakesLittleMemory) {
  auto started = ServerProcess::Start(
      {kModel, "--memory-nodes", "1", "--memory", "512MiB", "--max-num-seqs", "128"});
  ASSERT_TRUE(started.ok()) << started.status();
  ServerProcess& server = **started;
  const pid_t pid = server.process().pid();
  const int64_t before = MemoryMib(pid, "VmRSS");
  HealthWatch health(server);
  const std::string chat =
      R"({"messages": [{"role": "user", "content": "Once"}], "n": 128, "max_tokens": 300, "ignore_eos": true, "logprobs": true, "top_logprobs": 20})";
  const Raw answer = Exchange(server.port(), "/v1/chat/completions", chat);
  health.Stop();
  EXPECT_TRUE(answer.begin.starts_with("HTTP/1.1 200")) << answer.begin.substr(0, 1000);
  EXPECT_NE(answer.end.find("\"completion_tokens\":38400"), std::string::npos)
      << answer.end.substr(0, 1000);
  EXPECT_GT(answer.bytes, size_t{50} << 20);
  EXPECT_LT(MemoryMib(pid, "VmHWM") - before, 200);
  // Whole seconds if one thread writes it in one go.
  EXPECT_LT(health.longest(), milliseconds(2500)) << health.num_asked();
  EXPECT_EQ(health.num_bad(), 0);
  EXPECT_EQ(server.AwaitIdle(Deadline::After(seconds(10))), "");
}

// The template makes no difference: what is refused is refused by its size, what is not is worked
// on beside the connections.
TEST(HttpWork, LongTextsDoNotKeepOthersWaiting) {
  auto started = ServerProcess::Start({kModel, "--memory-nodes", "1"});
  ASSERT_TRUE(started.ok()) << started.status();
  ServerProcess& server = **started;
  std::string words;
  while (words.size() < 7'000'000) words += "Once upon a time ";
  HealthWatch health(server);
  for (const std::string path : {"/tokenize", "/v1/completions"}) {
    const Raw refused = Exchange(server.port(), path, json{{"prompt", words}}.dump());
    EXPECT_TRUE(refused.begin.starts_with("HTTP/1.1 400")) << refused.begin.substr(0, 1000);
    EXPECT_NE(refused.begin.find("bytes, which cannot fit into the model's context of"),
              std::string::npos)
        << refused.begin;
  }
  const json chat = {{"messages", {{{"role", "user"}, {"content", words}}}}};
  EXPECT_TRUE(Exchange(server.port(), "/tokenize", chat.dump()).begin.starts_with("HTTP/1.1 400"));
  std::string tokens = R"({"tokens": [3)";
  while (tokens.size() < 7'000'000) tokens += ",3";
  EXPECT_TRUE(
      Exchange(server.port(), "/detokenize", tokens + "]}").begin.starts_with("HTTP/1.1 400"));
  health.Stop();
  EXPECT_LT(health.longest(), milliseconds(2500)) << health.num_asked();
  EXPECT_EQ(health.num_bad(), 0);
}

}  // namespace
}  // namespace lamina::testing
