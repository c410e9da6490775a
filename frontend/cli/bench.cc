#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "frontend/cli/commands.h"
#include "frontend/process.h"

namespace lamina {
namespace {

// Becomes lamina-bench; returns only if that fails.
Status ExecBench(std::vector<std::string> arguments) {
  const std::string program = ProgramFolder() + "/lamina-bench";
  arguments.insert(arguments.begin(), program);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  execv(program.c_str(), argv.data());
  return NotFound(program + ": " + std::strerror(errno) + "; `lamina bench` and `lamina plan` need it beside lamina");
}

}  // namespace

void RegisterPlan(CLI::App& app) {
  CLI::App* command = app.add_subcommand("plan", "Which devices give the most tokens per dollar for a model: runs lamina-bench plan");
  command->set_help_flag();  // --help belongs to lamina-bench
  command->prefix_command();
  command->footer("Example:\n  lamina plan --help");
  command->callback([command] {
    std::vector<std::string> arguments = command->remaining();
    arguments.insert(arguments.begin(), "plan");
    Fail(ExecBench(std::move(arguments)));
  });
}

void RegisterBench(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("bench", "Measure: runs lamina-bench with the rest of the command line, `lamina bench --help` too");
  command->set_help_flag();  // --help belongs to lamina-bench
  command->prefix_command();
  command->footer("Example:\n  lamina bench --help");
  command->callback([command] { Fail(ExecBench(command->remaining())); });
}

}  // namespace lamina
