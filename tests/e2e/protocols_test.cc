// Clients that others wrote against `lamina serve`: those of Anthropic's, OpenAI's and Ollama's
// makers, frameworks around them, and the page to chat.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/paths.h"
#include "tests/support/server_process.h"
#include "tests/support/temporary_folder.h"

namespace lamina::testing {
namespace {

struct Clients {
  const char* name;
  const char* script;
  const char* modules;
};

class Protocols : public ::testing::TestWithParam<Clients> {};

// With a chat template that knows tools.
TEST_P(Protocols, ClientsWorkUnchanged) {
  const char* chosen = std::getenv("LAMINA_CLIENTS_PYTHON");
  const std::string python = chosen != nullptr ? chosen : "python3";
  const Result<CommandOutput> packages =
      RunCommand({python, "-c", std::string("import ") + GetParam().modules},
                 Deadline::After(std::chrono::seconds(100)));
  if (!packages.ok() || packages->exit_status != 0)
    GTEST_SKIP() << python << " has not the modules " << GetParam().modules
                 << "; LAMINA_CLIENTS_PYTHON names a Python that has";

  const TemporaryFolder folder;
  std::filesystem::copy(SourcePath("/models/tiny-stories"), folder / "stories");
  std::ifstream golden(SourcePath("/tests/text/tool_calls_golden.json"));
  WriteFile(folder / "stories/chat_template.jinja",
            nlohmann::json::parse(golden)["hermes"]["template"].get<std::string>());
  const auto server = ServerProcess::Start({folder / "stories", "--memory-nodes", "2"});
  ASSERT_TRUE(server.ok()) << server.status();
  const Result<CommandOutput> output =
      RunCommand({python, SourcePath("/tests/e2e/") + GetParam().script, (*server)->url()},
                 Deadline::After(std::chrono::seconds(200)));
  ASSERT_TRUE(output.ok()) << output.status();
  EXPECT_EQ(output->exit_status, 0) << output->out << output->err;
}

INSTANTIATE_TEST_SUITE_P(Packages, Protocols,
                         ::testing::Values(Clients{"Protocols", "protocol_clients.py",
                                                   "anthropic, ollama, openai"},
                                           Clients{"Frameworks", "framework_clients.py",
                                                   "langchain_openai, litellm, llm"},
                                           Clients{"OpenWebUi", "open_webui_calls.py", "json"}),
                         [](const auto& info) { return info.param.name; });

TEST(ChatPage, Works) {
  const auto soon = Deadline::After(std::chrono::seconds(20));
  const Result<CommandOutput> node = RunCommand({"node", "--version"}, soon);
  if (!node.ok() || node->exit_status != 0)
    GTEST_SKIP() << "there is no Node, which runs its script";
  const auto server = ServerProcess::Start(
      {SourcePath("/models/tiny-stories"), "--memory-nodes", "1", "--api-key", "sesame"});
  ASSERT_TRUE(server.ok()) << server.status();
  const Result<CommandOutput> output =
      RunCommand({"node", SourcePath("/tests/e2e/chat_page.mjs"), (*server)->url(), "sesame"},
                 Deadline::After(std::chrono::seconds(100)));
  ASSERT_TRUE(output.ok()) << output.status();
  EXPECT_EQ(output->exit_status, 0) << output->out << output->err;
}

}  // namespace
}  // namespace lamina::testing
