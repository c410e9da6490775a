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
#include "tests/support/server_process.h"
#include "tests/support/temporary_folder.h"

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

}  // namespace
}  // namespace lamina::testing
