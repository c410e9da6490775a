// A scan from outside of what the processes of a cluster on the loopback listen on, with each
// fabric.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/support/golden_prompts.h"
#include "tests/support/listening.h"
#include "tests/support/server_process.h"
#include "transport/transport.h"

namespace lamina::testing {
namespace {

class Listening : public ::testing::TestWithParam<std::string> {};

TEST_P(Listening, AClusterOnTheLoopbackIsReachedThroughNothingElse) {
  const std::string fabric = GetParam();
  if (const Status status = OpenFabric(fabric).status(); !status.ok()) GTEST_SKIP() << status;
  setenv("UCX_TLS", "all", 1);  // as a site may have set them for other programs
  setenv("UCX_NET_DEVICES", "all", 1);
  const auto started =
      ServerProcess::Start({TinyStoriesDir(), "--memory-nodes", "2", "--transport", fabric});
  ASSERT_TRUE(started.ok()) << started.status();
  ServerProcess& server = **started;
  const nlohmann::json request = {
      {"prompt", "Once upon a time"}, {"max_tokens", 8}, {"temperature", 0}};
  const Result<HttpResponse> answer = server.client().PostJson("/v1/completions", request.dump());
  ASSERT_TRUE(answer.ok() && answer->ok());

  std::vector<pid_t> processes = server.Daemons();
  ASSERT_EQ(processes.size(), 3u);
  processes.push_back(server.process().pid());
  for (const pid_t pid : processes) {
    const std::vector<ListeningSocket> sockets = SocketsOf(pid);
    EXPECT_FALSE(sockets.empty()) << "the scan does not see what process " << pid << " listens on";
    for (const ListeningSocket& socket : sockets)
      EXPECT_TRUE(socket.is_loopback()) << "process " << pid << ": " << ToText(socket);
    EXPECT_THAT(SharedSystemVSegmentsOf(pid), ::testing::IsEmpty()) << "process " << pid;
    EXPECT_THAT(SharedMemoryFilesOf(pid), ::testing::IsEmpty()) << "process " << pid;
  }
}

INSTANTIATE_TEST_SUITE_P(Fabrics, Listening, ::testing::Values("shm", "tcp", "verbs", "ucx"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace lamina::testing
