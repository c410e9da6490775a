#include "cli/api_options.h"

#include <cstdlib>
#include <vector>

#include "api/cors.h"
#include "base/log.h"
#include "cli/commands.h"

namespace lamina {
namespace {

std::vector<std::string> WithAuto(std::vector<std::string> words) {
  words.insert(words.begin(), {"auto", "none"});
  return words;
}

}  // namespace

void ApiOptions::AddTo(CLI::App& command) {
  AddOption(command, "--tool-call-parser", tool_call_parser,
            "How the model writes calls of tools; auto: as its chat template shows")
      ->check(CLI::IsMember(WithAuto(ToolFormatNames())));
  // vLLM has a word for each family of models; all of these write <think>...</think>.
  AddOption(command, "--reasoning-parser", reasoning_parser,
            "How the model reasons before it answers; think: <think>...</think>; openai_gptoss: in "
            "a channel; auto: as its chat template shows")
      ->check(CLI::IsMember(WithAuto({"think", "qwen3", "deepseek_r1", "openai_gptoss"})));
  AddOption(command, "--ssl-certfile", ssl_certfile,
            "Serve HTTPS with the certificate in this PEM file, behind which those between it and "
            "its CA stand; default: the YAML's, else HTTP")
      ->type_name("FILE");
  AddOption(command, "--ssl-keyfile", ssl_keyfile,
            "PEM file of mode 600 with the certificate's key")
      ->type_name("FILE");
  AddOption(command, "--allowed-origins", allowed_origins,
            "Web pages that may use the API from a browser, such as https://example.org, with "
            "commas between; *: all; default: none");
  AddOption(command, "--log-requests", log_requests,
            "A line in the log for each request: its id, tokens and time");
  AddOption(command, "--log-level", log_level,
            "Least important lines of the log; default: that of LAMINA_LOG, or info")
      ->check(CLI::IsMember({"trace", "debug", "info", "warning", "error", "critical", "off"}));
}

void ApiOptions::Complete(const ClusterConfig& config) {
  if (!ssl_certfile.empty() || !ssl_keyfile.empty()) return;
  ssl_certfile = config.https.certificate;
  ssl_keyfile = config.https.key;
}

Status ApiOptions::ApplyTo(ServerOptions& server, ServedModel& model) const {
  const std::string source =
      model.chat_template != nullptr ? model.chat_template->source() : std::string();
  model.tool_format =
      tool_call_parser == "auto" ? ToolFormatOfTemplate(source) : ToolFormatNamed(tool_call_parser);
  model.reasoning =
      reasoning_parser == "auto" ? TemplateHasReasoning(source) : reasoning_parser != "none";
  server.service.log_requests = log_requests;
  server.ssl_certfile = ssl_certfile;
  server.ssl_keyfile = ssl_keyfile;
  const Result<std::vector<std::string>> origins = ParseOrigins(allowed_origins);
  if (!origins.ok()) return origins.status().WithContext("--allowed-origins");
  server.allowed_origins = *origins;
  if (!log_level.empty()) {
    spdlog::set_level(spdlog::level::from_str(log_level));
    setenv("LAMINA_LOG", log_level.c_str(), /*overwrite=*/1);
  }
  return OkStatus();
}

}  // namespace lamina
