// The chat template of a model that was downloaded works for its author: it keeps the manager's
// threads busy for as long as it can.
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "tests/support/paths.h"
#include "tests/support/sanitized.h"
#include "tests/support/server_process.h"
#include "tests/support/temporary_folder.h"

// What is freed stays in memory for a while, and all memory has a shadow.
namespace lamina::testing {
namespace {

using nlohmann::json;
using std::chrono::seconds;

// The shipped model with another template.
void MakeModel(const TemporaryFolder& folder, const std::string& chat_template) {
  for (const auto& entry :
       std::filesystem::directory_iterator(SourcePath("/models/tiny-stories"))) {
    if (entry.is_regular_file())
      std::filesystem::copy(entry.path(), folder / entry.path().filename().string());
  }
  WriteFile(folder / "chat_template.jinja", chat_template);
}

// Binds 8,000 names in one scope 300 times: ten billion comparisons in 600 statements.
std::string SlowTemplate() {
  std::string names = "a";
  for (int i = 0; i < 8000; ++i) names += ", a" + std::to_string(i);
  return "{% set l = range(8001) %}{% for i in range(300) %}{% set " + names +
         " = l %}{% endfor %}ok";
}

const json kChat = {{"messages", {{{"role", "user"}, {"content", "hi"}}}}};

TEST(HostileModel, ItsTemplateKeepsNeitherOthersNorAShutdownWaiting) {
  const TemporaryFolder folder;
  MakeModel(folder, SlowTemplate());
  auto started =
      ServerProcess::Start({folder.path(), "--memory-nodes", "1", "--drain-timeout", "5"});
  ASSERT_TRUE(started.ok()) << started.status();
  ServerProcess& server = **started;
  std::atomic<int> num_refused = 0;
  std::vector<std::thread> clients;
  const auto ask = [&] {
    const auto answer = server.client().PostJson("/tokenize", kChat.dump());
    num_refused += answer.ok() && answer->status == 400;
  };
  for (int i = 0; i < 8; ++i) clients.emplace_back(ask);
  const auto plain = server.client().PostJson("/tokenize", R"({"prompt": "Once upon a time"})");
  EXPECT_TRUE(plain.ok() && plain->status == 200) << plain.status();  // behind the templates
  EXPECT_EQ(server.Health(), 200);
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(num_refused, 8);
  clients.clear();
  for (int i = 0; i < 8; ++i) clients.emplace_back(ask);
  server.process().Kill(SIGTERM);
  EXPECT_TRUE(server.process().Wait(Deadline::After(seconds(20))));
  for (std::thread& client : clients) client.join();
}

// Keeps 220 MB of texts in a list, which is just allowed for one conversation.
TEST(HostileModel, ItsTemplateWorksForOneConversationAtATime) {
  if (kSanitized)
    GTEST_SKIP() << "a sanitizer keeps what is freed: its memory says nothing about lamina's";
  const TemporaryFolder folder;
  MakeModel(folder,
            "{% set ns = namespace(t='x', l=[]) %}{% for i in range(20) %}{% set ns.t = ns.t + "
            "ns.t %}{% endfor %}"
            "{% for i in range(205) %}{% set ns.l = ns.l + [ns.t + 'a'] %}{% endfor %}{{ ns.l | "
            "length }}");
  auto started = ServerProcess::Start({folder.path(), "--memory-nodes", "1"});
  ASSERT_TRUE(started.ok()) << started.status();
  ServerProcess& server = **started;
  const int64_t before = MemoryMib(server.process().pid(), "VmRSS");
  std::atomic<int> num_answered = 0;
  std::vector<std::thread> clients;
  for (int i = 0; i < 8; ++i) {
    clients.emplace_back([&] {
      const auto answer = server.client().PostJson("/tokenize", kChat.dump());
      num_answered += answer.ok() && answer->status == 200;
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(num_answered, 8);
  const int64_t most = MemoryMib(server.process().pid(), "VmHWM") - before;
  EXPECT_GT(most, 150);
  EXPECT_LT(most, 400);  // of two at a time it would be more
}

}  // namespace
}  // namespace lamina::testing
