#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "manager/process.h"

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
  return NotFound(program + ": " + std::strerror(errno) + "; it is needed beside lamina");
}

// `lamina NAME ...` runs `lamina-bench NAME ...`.
void RegisterForwarded(CLI::App& app, const std::string& name, const std::string& what,
                       const std::string& example) {
  CLI::App* command = app.add_subcommand(name, what + ": runs lamina-bench " + name);
  command->set_help_flag();  // --help belongs to lamina-bench
  command->prefix_command();
  command->footer("Example:\n  " + example);
  command->callback([command, name] {
    std::vector<std::string> arguments = command->remaining();
    arguments.insert(arguments.begin(), name);
    Fail(ExecBench(std::move(arguments)));
  });
}

}  // namespace

void RegisterBench(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "bench",
      "Measure: runs lamina-bench with the rest of the command line, `lamina bench --help` too");
  command->set_help_flag();  // --help belongs to lamina-bench
  command->prefix_command();
  command->footer("Example:\n  lamina bench --help");
  command->callback([command] { Fail(ExecBench(command->remaining())); });
}

// Commands of their own for people, as they measure nothing.
void RegisterPlan(CLI::App& app) {
  RegisterForwarded(app, "plan", "Which devices give the most tokens per dollar for a model",
                    "lamina plan --help");
}

void RegisterSimulate(CLI::App& app) {
  RegisterForwarded(
      app, "simulate", "A cluster in virtual time",
      "lamina simulate configs/modelled-13b.yaml --lengths-of azure-conv --request-rate 4");
}

}  // namespace lamina
