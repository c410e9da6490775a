#include <memory>

#include "cli/commands.h"
#include "cli/run_front.h"

namespace lamina {

void RegisterFront(CLI::App& app) {
  auto options = std::make_shared<FrontOptions>();
  CLI::App* command = app.add_subcommand(
      "front",
      "Answer clients in a process of its own, so that their requests survive the manager's");
  command->add_option(
      "MODEL", options->model,
      "Checkpoint folder, GGUF file or name on this host; default: the cluster file's");
  command
      ->add_option("--cluster", options->cluster_file,
                   "The manager's cluster file, with a front_port")
      ->envname("LAMINA_CLUSTER")
      ->required();
  AddOption(*command, "--manager", options->manager,
            "HOST:PORT where the manager takes fronts; default: the cluster file's controller and "
            "front_port");
  AddOption(*command, "--host", options->host, "Address of the HTTP server");
  AddOption(*command, "--port", options->port, "Port of the HTTP server; 0: any free one")
      ->check(CLI::Range(0, 65535));
  AddOption(*command, "--drain-timeout", options->drain_timeout_s,
            "Seconds that requests under way get to end in after SIGTERM or Ctrl-C; -1: the "
            "cluster file's")
      ->check(CLI::Range(-1, 86400));
  AddOption(*command, "--api-key-file", options->api_key_file,
            "File of mode 600 with the key that clients must send as a bearer token");
  AddOption(*command, "--api-key", options->api_key,
            "The key itself, which other users can see in the list of processes");
  options->api.AddTo(*command);
  command->footer(
      "Examples:\n  lamina front --cluster configs/local-front.yaml\n  lamina front "
      "models/tiny-stories --cluster configs/local-front.yaml --host 0.0.0.0 --port 8001");
  OnRun(*command, "lamina", [options] { return ServeFront(*options); });
}

}  // namespace lamina
