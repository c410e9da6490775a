#include <unistd.h>

#include <cerrno>
#include <cstring>
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
  return NotFound(program + ": " + std::strerror(errno) + "; it is needed beside lamina");
}

}  // namespace

void RegisterBench(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("bench", "Measure: runs lamina-bench with the rest of the command line, `lamina bench --help` too");
  command->set_help_flag();  // --help belongs to lamina-bench
  command->prefix_command();
  command->footer("Example:\n  lamina bench --help");
  command->callback([command] { Fail(ExecBench(command->remaining())); });
}

// A command of its own for people, as it measures nothing.
void RegisterSimulate(CLI::App& app) {
  CLI::App* command = app.add_subcommand("simulate", "A cluster in virtual time: runs lamina-bench simulate");
  command->set_help_flag();  // --help belongs to lamina-bench
  command->prefix_command();
  command->footer("Example:\n  lamina simulate configs/modelled-13b.yaml --lengths-of azure-conv --request-rate 4");
  command->callback([command] {
    std::vector<std::string> arguments = command->remaining();
    arguments.insert(arguments.begin(), "simulate");
    Fail(ExecBench(std::move(arguments)));
  });
}

}  // namespace lamina
