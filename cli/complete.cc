#include <iostream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/api_session.h"
#include "cli/commands.h"

namespace lamina {
namespace {

struct CompleteOptions {
  std::string prompt;
  RequestOptions request;
};

Status Complete(CompleteOptions options) {
  if (options.prompt == "-") options.prompt.assign(std::istreambuf_iterator<char>(std::cin), {});
  LAMINA_ASSIGN_OR_RETURN(ApiSession session, ApiSession::Open(options.request));
  const Result<std::string> text = session.Stream("/v1/completions", {{"prompt", options.prompt}});
  return text.status();
}

}  // namespace

void RegisterComplete(CLI::App& app) {
  auto options = std::make_shared<CompleteOptions>();
  options->request.max_tokens = 256;
  CLI::App* command = app.add_subcommand("complete", "Let a running server go on with a text");
  command->add_option("PROMPT", options->prompt, "The text; - reads it from stdin")->required();
  options->request.AddTo(*command);
  command->footer(
      "Example:\n  lamina complete \"Once upon a time\" --max-tokens 64 --temperature 0");
  OnRun(*command, "lamina", [options] { return Complete(*options); });
}

}  // namespace lamina
