#include <atomic>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <memory>

#include "cli/cluster_ops.h"
#include "cli/commands.h"
#include "manager/cluster_config.h"
#include "manager/process.h"

namespace lamina {
namespace {

// Of a manager that has drained: to take leave of its nodes, and of the nodes.
constexpr auto kGraceMargin = std::chrono::seconds(5);

std::atomic<bool> interrupted = false;

struct ClusterCommandOptions {
  std::string config_path;
  bool dry_run = false;
  bool no_serve = false;
  bool forget_unreachable = false;
  bool json = false;
};

CLI::App* AddAction(CLI::App& cluster, const char* name, const char* help,
                    ClusterCommandOptions& options) {
  CLI::App* command = cluster.add_subcommand(name, help);
  AddOption(*command, "CONFIG,--config", options.config_path, "Cluster YAML")->required();
  command->footer(std::string("Example:\n  lamina cluster ") + name + " configs/local.yaml");
  return command;
}

Result<ClusterOpsOptions> OpsOptions(const ClusterConfig& config,
                                     const ClusterCommandOptions& options) {
  ClusterOpsOptions ops;
  std::error_code error;
  ops.config_path =
      std::filesystem::absolute(options.config_path, error).lexically_normal().string();
  if (error) return InternalError(options.config_path + ": " + error.message());
  ops.bin_dir = ProgramFolder();
  ops.dry_run = options.dry_run;
  ops.with_manager = !options.no_serve;
  ops.forget_unreachable = options.forget_unreachable;
  ops.grace = config.drain_timeout + kGraceMargin;
  return ops;
}

Status Up(const ClusterCommandOptions& options) {
  LAMINA_ASSIGN_OR_RETURN(const ClusterConfig config, ClusterConfig::Load(options.config_path));
  LAMINA_ASSIGN_OR_RETURN(ClusterOpsOptions ops, OpsOptions(config, options));
  for (const int signal : {SIGINT, SIGTERM, SIGHUP})
    std::signal(signal, [](int) { interrupted = true; });
  ops.interrupted = [] { return interrupted.load(); };
  return ClusterUp(config, ops, std::cout);
}

Status Down(const ClusterCommandOptions& options) {
  LAMINA_ASSIGN_OR_RETURN(const ClusterConfig config, ClusterConfig::Load(options.config_path));
  LAMINA_ASSIGN_OR_RETURN(const ClusterOpsOptions ops, OpsOptions(config, options));
  return ClusterDown(config, ops, std::cout);
}

Status ShowStatus(const ClusterCommandOptions& options) {
  LAMINA_ASSIGN_OR_RETURN(const ClusterConfig config, ClusterConfig::Load(options.config_path));
  if (!ClusterStatus(config, options.json, std::cout)) SetExitStatus(kExitFailure);
  return OkStatus();
}

}  // namespace

void RegisterCluster(CLI::App& app) {
  auto options = std::make_shared<ClusterCommandOptions>();
  CLI::App* cluster =
      app.add_subcommand("cluster", "Start, stop and look at the daemons of a cluster YAML");
  cluster->require_subcommand(1);
  cluster->footer("Example:\n  lamina cluster up configs/local.yaml");

  CLI::App* up =
      AddAction(*cluster, "up", "Start every daemon and wait until the cluster serves", *options);
  up->add_flag("--dry-run", options->dry_run, "Print the commands instead of running them");
  up->add_flag("--no-serve", options->no_serve,
               "Only the nodes, not the manager with its HTTP server");
  OnRun(*up, "lamina", [options] { return Up(*options); });

  CLI::App* down =
      AddAction(*cluster, "down", "Stop what `up` started, and nothing else", *options);
  down->add_flag("--dry-run", options->dry_run, "Print the commands instead of running them");
  down->add_flag("--forget-unreachable", options->forget_unreachable,
                 "What was started on hosts that do not answer counts as stopped: for hosts that "
                 "are gone for good");
  OnRun(*down, "lamina", [options] { return Down(*options); });

  CLI::App* status = AddAction(
      *cluster, "status", "Show the nodes; exit status 0 only if the cluster serves", *options);
  status->add_flag("--json", options->json, "The manager's answer as JSON");
  OnRun(*status, "lamina", [options] { return ShowStatus(*options); });
}

}  // namespace lamina
