#include <algorithm>
#include <cctype>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "cli/commands.h"

namespace lamina {
namespace {

int exit_status = 0;

constexpr char kVersionText[] = "lamina 0.1.0";
constexpr char kExample[] =
    "Examples:\n"
    "  lamina serve models/tiny-stories --memory-nodes 2\n"
    "  lamina complete \"Once upon a time\"\n"
    "  lamina cluster up configs/local.yaml\n\n"
    "Every option can also be given in the environment: --max-tokens as LAMINA_MAX_TOKENS.";

// CLI11 calls an unknown word an unexpected argument; people expect to be told the commands. "" if
// the first word is one, or an option.
std::string UnknownCommand(const CLI::App& app, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return "";
  std::string known;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (command->get_name() == argv[1]) return "";
    known += " " + command->get_name();
  }
  return std::string("unknown command '") + argv[1] + "'; commands:" + known;
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
  app.set_version_flag("--version", kVersionText);
  app.require_subcommand(1);
  app.footer(kExample);
  RegisterServe(app);
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
  if (const std::string mistake = UnknownCommand(app, argc, argv); !mistake.empty()) {
    std::cerr << "lamina: " << mistake << "\n";
    return kExitUsage;
  }
  DropServiceLink(argc > 1 && argv[1] == std::string_view("serve"));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error, std::cout, std::cerr) == 0 ? 0 : kExitUsage;
  }
  return exit_status;
}

}  // namespace lamina
