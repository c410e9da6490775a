#include <algorithm>
#include <cctype>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <string_view>
#include <utility>
#include <vector>

#include "base/log.h"
#include "cli/commands.h"
#include "cli/help_formatter.h"
#include "cli/other_names.h"
#include "cli/suggestion.h"

namespace lamina {
namespace {

int exit_status = 0;

constexpr char kVersionText[] = "lamina 0.1.0";
constexpr char kExample[] =
    "Examples:\n"
    "  lamina serve models/tiny-stories --memory-nodes 2\n"
    "  lamina pull Qwen/Qwen3-0.6B\n"
    "  lamina complete \"Once upon a time\"\n"
    "  lamina cluster up configs/local.yaml\n\n"
    "Where --help names a variable, the environment may say it: LAMINA_MAX_TOKENS is --max-tokens.";

// ", did you mean 'serve'?", or "".
std::string DidYouMean(const std::string& word, const std::vector<std::string>& known) {
  const std::string meant = Suggestion(word, known);
  return meant.empty() ? "" : "; did you mean '" + meant + "'?";
}

// CLI11 calls an unknown word an unexpected argument; people expect to be told the commands. "" if
// the first word is one, or an option.
std::string UnknownCommand(const CLI::App& app, const std::vector<std::string>& arguments) {
  if (arguments.empty() || arguments[0].starts_with('-')) return "";
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (command->get_name() == arguments[0]) return "";
    names.push_back(command->get_name());
  }
  std::string known;
  for (const std::string& name : names) known += " " + name;
  return "unknown command '" + arguments[0] + "'" + DidYouMean(arguments[0], names) +
         "; commands:" + known;
}

// The command, or command of a command, that the line named.
const CLI::App& CommandOf(const CLI::App& app) {
  const std::vector<CLI::App*> named = app.get_subcommands();
  return named.empty() ? app : CommandOf(*named.back());
}

// A line for each option that is not known and looks like one that is.
std::string OptionsMeant(const CLI::App& app) {
  std::vector<std::string> known;
  for (const CLI::App* command : {&app, &CommandOf(app)}) {
    for (const CLI::Option* option : command->get_options()) {
      for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
    }
  }
  std::string lines;
  for (const std::string& word : app.remaining(/*recurse=*/true)) {
    const std::string name = word.substr(0, word.find('='));
    if (const std::string meant = Suggestion(name, known); name.starts_with('-') && !meant.empty())
      lines += "There is no " + name + "; did you mean " + meant + "?\n";
  }
  return lines;
}

// In containers beside a service of this name Kubernetes sets LAMINA_PORT=tcp://10.0.0.1:8000,
// which is not meant for --port.
void DropServiceLink(bool serves) {
  const char* const port = std::getenv("LAMINA_PORT");
  if (port == nullptr || std::string_view(port).find("://") == std::string_view::npos) return;
  if (serves) {
    std::cerr
        << "lamina: LAMINA_PORT=" << port
        << " is not taken: it is no port but what Kubernetes sets for a service named lamina; "
        << "to choose the port use --port" << std::endl;
  }
  unsetenv("LAMINA_PORT");
}

}  // namespace

void SetExitStatus(int status) { exit_status = status; }

void OnRun(CLI::App& command, const std::string& who, std::function<Status()> work) {
  command.callback([who, work = std::move(work)] {
    const Status status = work();
    if (status.ok()) return;
    std::cout << std::flush;
    std::cerr << who << ": " << status.message() << std::endl;
    SetExitStatus(kExitFailure);
  });
}

std::string EnvironmentName(const std::string& flag) {
  std::string name = "LAMINA_" + flag.substr(flag.rfind("--") + 2);
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) {
    return c == '-' ? '_' : static_cast<char>(std::toupper(c));
  });
  return name;
}

void QuietWhileItRuns(CLI::App& command) {
  command.parse_complete_callback([] {
    spdlog::set_level(spdlog::level::warn);
    std::signal(SIGPIPE, SIG_IGN);
  });
}

int RunCli(int argc, char** argv, const std::function<void(CLI::App&)>& register_more) {
  CLI::App app("Serves language models with attention where the KV cache lives.", "lamina");
  app.formatter(HelpFormatter());
  app.set_version_flag("--version", kVersionText);
  app.require_subcommand(1);
  app.footer(kExample);
  RegisterServe(app);
  RegisterPull(app);
  RegisterModels(app);
  RegisterFront(app);
  RegisterComplete(app);
  RegisterChat(app);
  RegisterCluster(app);
  RegisterSplit(app);
  RegisterTokenize(app);
  RegisterDoctor(app);
  register_more(app);
  RegisterPlan(app);
  RegisterSimulate(app);
  const std::vector<std::string> given(argv + std::min(argc, 1), argv + argc);
  if (const std::string mistake = UnknownCommand(app, given); !mistake.empty()) {
    std::cerr << "lamina: " << mistake << "\n";
    return kExitUsage;
  }
  DropServiceLink(!given.empty() && given[0] == "serve");
  Result<std::vector<std::string>> arguments = WithOurNames(given);
  if (!arguments.ok()) {
    std::cerr << "lamina " << given[0] << ": " << arguments.status().message() << "\n";
    return kExitUsage;
  }
  std::ranges::reverse(*arguments);  // as CLI11 wants them
  try {
    app.parse(*std::move(arguments));
  } catch (const CLI::ExtrasError& error) {
    app.exit(error, std::cout, std::cerr);
    std::cerr << OptionsMeant(app);
    return kExitUsage;
  } catch (const CLI::ParseError& error) {
    return app.exit(error, std::cout, std::cerr) == 0 ? 0 : kExitUsage;
  }
  return exit_status;
}

}  // namespace lamina
