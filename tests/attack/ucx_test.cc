// A client that is nothing but UCX, and knows no more than ports: it tries to write into the memory
// of the nodes behind them.
#include <gtest/gtest.h>

#if __has_include(<ucp/api/ucp.h>)
#include <fcntl.h>
#include <sys/wait.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>

#include "tests/support/golden_prompts.h"
#include "tests/support/listening.h"
#include "tests/support/server_process.h"
#include "tests/support/serving.h"

namespace lamina::testing {
namespace {

constexpr unsigned kAttackSeconds = 5;
constexpr uint64_t kPattern = 0x6b636174'74410a00;

// UCX over TCP on the loopback. Everything in here may fail or hang: it runs in a process of its
// own, with an alarm.
class Stranger {
 public:
  Stranger() {
    setenv("UCX_TLS", "tcp", 1);
    setenv("UCX_NET_DEVICES", "lo", 1);
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = UCP_FEATURE_RMA | UCP_FEATURE_AM;
    if (ucp_init(&params, nullptr, &context_) != UCS_OK) _exit(2);
    ucp_worker_params_t worker_params{};
    if (ucp_worker_create(context_, &worker_params, &worker_) != UCS_OK) _exit(3);
  }

  // A worker's address is not secret: this is the stranger's own, with the victim's port in it.
  std::string AddressOf(int port) {
    ucp_address_t* address = nullptr;
    size_t bytes = 0;
    if (ucp_worker_get_address(worker_, &address, &bytes) != UCS_OK) _exit(4);
    std::string text(reinterpret_cast<const char*>(address), bytes);
    const std::vector<ListeningSocket> own = SocketsOf(getpid());
    if (own.size() != 1) _exit(5);
    const size_t at = text.rfind(BigEndian(own[0].port));
    if (at == std::string::npos) _exit(6);
    text.replace(at, 2, BigEndian(port));
    // Whose it is: not the stranger.
    for (size_t i = 1; i <= sizeof(uint64_t); ++i) text[i] = static_cast<char>(~text[i]);
    return text;
  }

  void Write(const std::string& worker_address, uint64_t memory_address, uint64_t value) {
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    params.address = reinterpret_cast<const ucp_address_t*>(worker_address.data());
    ucp_ep_h endpoint = nullptr;
    if (ucp_ep_create(worker_, &params, &endpoint) != UCS_OK) return;
    ucp_mem_map_params_t map{};  // its own key: the transport asks for none
    map.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
    map.address = &value;
    map.length = sizeof(value);
    ucp_mem_h memory = nullptr;
    void* packed = nullptr;
    size_t bytes = 0;
    ucp_rkey_h key = nullptr;
    if (ucp_mem_map(context_, &map, &memory) != UCS_OK ||
        ucp_rkey_pack(context_, memory, &packed, &bytes) != UCS_OK ||
        ucp_ep_rkey_unpack(endpoint, packed, &key) != UCS_OK) {
      _exit(7);
    }
    ucp_request_param_t none{};
    (void)ucp_put_nbx(endpoint, &value, sizeof(value), memory_address, key, &none);
    const ucs_status_ptr_t flush = ucp_ep_flush_nbx(endpoint, &none);
    while (UCS_PTR_IS_PTR(flush) && ucp_request_check_status(flush) == UCS_INPROGRESS)
      ucp_worker_progress(worker_);
  }

 private:
  static std::string BigEndian(int port) {
    return {static_cast<char>(port >> 8), static_cast<char>(port)};
  }

  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
};

void Attack(int port, uint64_t memory_address) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(kAttackSeconds);
    // UCX prints where it dies, which it may.
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    dup2(nowhere, STDOUT_FILENO);
    dup2(nowhere, STDERR_FILENO);
    Stranger stranger;
    stranger.Write(stranger.AddressOf(port), memory_address, kPattern);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0)
      << "the stranger could not begin: exit status " << WEXITSTATUS(status);
}

// The last words of the heap: nothing is there yet.
std::optional<uint64_t> EndOfHeap(pid_t pid) {
  std::ifstream maps("/proc/" + std::to_string(pid) + "/maps");
  // "55d0c8a2b000-55d0c8a4c000 rw-p ... [heap]".
  for (std::string line; std::getline(maps, line);) {
    if (line.ends_with("[heap]"))
      return std::stoull(line.substr(line.find('-') + 1), nullptr, 16) - 2 * sizeof(kPattern);
  }
  return std::nullopt;
}

uint64_t WordAt(pid_t pid, uint64_t address) {
  uint64_t word = 0;
  const int file = open(("/proc/" + std::to_string(pid) + "/mem").c_str(), O_RDONLY | O_CLOEXEC);
  EXPECT_EQ(pread(file, &word, sizeof(word), static_cast<off_t>(address)),
            static_cast<ssize_t>(sizeof(word)));
  close(file);
  return word;
}

TEST(UcxStranger, WritesNothingAndKillsNothing) {
  setenv("UCX_TLS", "tcp,self", 1);  // as a site may have set it for other programs
  const auto started =
      ServerProcess::Start({TinyStoriesDir(), "--memory-nodes", "1", "--transport", "ucx"});
  ASSERT_TRUE(started.ok()) << started.status();
  ServerProcess& server = **started;
  const auto complete = [&] {
    const nlohmann::json request = {
        {"prompt", "Once upon a time"}, {"max_tokens", 16}, {"temperature", 0}};
    const Result<HttpResponse> answer = server.client().PostJson("/v1/completions", request.dump());
    if (!answer.ok() || !answer->ok()) return std::string("no answer");
    return nlohmann::json::parse(answer->body)["choices"][0]["text"].get<std::string>();
  };
  const std::string before = complete();
  size_t num_ports = 0;
  for (const pid_t pid : server.Daemons()) {
    const std::optional<uint64_t> target = EndOfHeap(pid);
    ASSERT_TRUE(target.has_value());
    for (const ListeningSocket& socket : SocketsOf(pid)) {
      if (!socket.protocol.starts_with("tcp")) continue;
      ++num_ports;
      Attack(socket.port, *target);
      EXPECT_NE(WordAt(pid, *target), kPattern)
          << "a stranger wrote into the heap of a node through " << ToText(socket);
      Attack(socket.port, 0);
      ASSERT_TRUE(Runs(pid)) << "a stranger killed a node through " << ToText(socket);
    }
  }
  EXPECT_GE(num_ports, 3u);  // control ports of both nodes, and where the memory node is met
  EXPECT_EQ(complete(), before);
}

}  // namespace
}  // namespace lamina::testing

#else
TEST(UcxStranger, WritesNothingAndKillsNothing) {
  GTEST_SKIP() << "this build has no UCX: libucx-dev is not installed";
}
#endif
