#include <unistd.h>

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/api_session.h"
#include "cli/commands.h"

namespace lamina {
namespace {

using nlohmann::json;

struct ChatOptions {
  std::string system;
  RequestOptions request;
};

json FirstMessages(const ChatOptions& options) {
  json messages = json::array();
  if (!options.system.empty())
    messages.push_back({{"role", "system"}, {"content", options.system}});
  return messages;
}

// Reads lines until the end of stdin or /quit. A failed turn is told and forgotten, so that the
// next one starts from what both sides know.
Status Chat(const ChatOptions& options) {
  LAMINA_ASSIGN_OR_RETURN(ApiSession session, ApiSession::Open(options.request));
  const bool is_terminal = isatty(STDIN_FILENO) == 1;
  if (is_terminal) std::cout << "/reset starts anew, /quit ends" << std::endl;
  json messages = FirstMessages(options);
  Status last;
  for (std::string line; (is_terminal ? std::cout << "> " << std::flush : std::cout) &&
                         std::getline(std::cin, line);) {
    if (line == "/quit") return OkStatus();
    if (line == "/reset") messages = FirstMessages(options);
    if (line.empty() || line == "/reset") continue;
    messages.push_back({{"role", "user"}, {"content", line}});
    const Result<std::string> answer =
        session.Stream("/v1/chat/completions", {{"messages", messages}});
    last = answer.status();
    if (answer.ok()) {
      messages.push_back({{"role", "assistant"}, {"content", *answer}});
      continue;
    }
    messages.erase(messages.size() - 1);
    if (!is_terminal) return last;
    std::cerr << "lamina: " << last.message() << std::endl;
  }
  return last;
}

}  // namespace

void RegisterChat(CLI::App& app) {
  auto options = std::make_shared<ChatOptions>();
  CLI::App* command =
      app.add_subcommand("chat", "Talk with the model of a running server, line by line");
  AddOption(*command, "--system", options->system, "System message");
  options->request.AddTo(*command);
  command->footer(
      "Example:\n  lamina chat --url http://127.0.0.1:8000 --temperature 0.7\n  echo \"What is a "
      "KV cache?\" | lamina chat");
  OnRun(*command, "lamina", [options] { return Chat(*options); });
}

}  // namespace lamina
