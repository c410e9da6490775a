#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/doctor/cluster_checks.h"
#include "manager/process.h"
#include "transport/probe.h"

namespace lamina {
namespace {

constexpr auto kProbeDeadline = std::chrono::seconds(40);

struct DoctorOptions {
  std::string config;
  bool json = false;
  std::string sysroot;
  double probe_seconds = 2;
  HostNeeds needs;
  std::string probe_listen, probe_connect;  // the two ends of a measured pair
};

Status ListenForProbe(const DoctorOptions& options) {
  LAMINA_ASSIGN_OR_RETURN(
      const std::vector<std::string> kinds,
      LadderKinds(TransportKindName(options.needs.transport), options.needs.fallback));
  LAMINA_ASSIGN_OR_RETURN(const std::unique_ptr<Ladder> ladder, Ladder::Open(kinds));
  LAMINA_RETURN_IF_ERROR(ladder->Listen(options.probe_listen));
  std::cout << "offers " << ladder->offers() << std::endl;
  return AnswerProbe(*ladder, Deadline::After(kProbeDeadline));
}

Status ConnectToProbe(const DoctorOptions& options) {
  LAMINA_ASSIGN_OR_RETURN(
      const std::vector<std::string> kinds,
      LadderKinds(TransportKindName(options.needs.transport), options.needs.fallback));
  LAMINA_ASSIGN_OR_RETURN(const std::unique_ptr<Ladder> ladder, Ladder::Open(kinds));
  const auto duration = std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(options.probe_seconds));
  LAMINA_ASSIGN_OR_RETURN(const ProbeResult result, Probe(*ladder, options.probe_connect, duration,
                                                          Deadline::After(kProbeDeadline)));
  const nlohmann::ordered_json report = {{"fabric", result.fabric},
                                         {"through", result.through},
                                         {"latency_us", result.latency_us},
                                         {"bytes_per_second", result.bytes_per_second},
                                         {"refused", result.refused}};
  std::cout << report.dump() << std::endl;
  return OkStatus();
}

Result<std::vector<Finding>> Examine(const DoctorOptions& options) {
  if (options.config.empty()) return CheckHost(HostView(options.sysroot), options.needs);
  LAMINA_ASSIGN_OR_RETURN(const ClusterConfig config, ClusterConfig::Load(options.config));
  ClusterCheckOptions cluster;
  cluster.bin_dir = ProgramFolder();
  cluster.probe_duration = std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(options.probe_seconds));
  cluster.progress = [](const std::string& line) { std::cerr << line << " ..." << std::endl; };
  return CheckCluster(config, cluster);
}

Status Doctor(const DoctorOptions& options) {
  if (!options.probe_listen.empty()) return ListenForProbe(options);
  if (!options.probe_connect.empty()) return ConnectToProbe(options);
  LAMINA_ASSIGN_OR_RETURN(const std::vector<Finding> findings, Examine(options));
  const Level worst = WorstOf(findings);
  if (options.json) {
    std::cout
        << nlohmann::ordered_json({{"level", ToText(worst)}, {"findings", ToJson(findings)}}).dump()
        << std::endl;
  } else {
    PrintFindings(findings, std::cout);
  }
  if (worst == Level::kFail) SetExitStatus(kExitFailure);
  return OkStatus();
}

}  // namespace

void RegisterDoctor(CLI::App& app) {
  auto options = std::make_shared<DoctorOptions>();
  CLI::App* command = app.add_subcommand(
      "doctor", "Check this machine, or the machines of a cluster and the network between them");
  AddOption(*command, "CONFIG,--config", options->config,
            "Cluster YAML; without it only this machine is checked");
  AddOption(*command, "--json", options->json, "As JSON");
  AddOption(*command, "--probe-seconds", options->probe_seconds,
            "How long each pair of hosts is measured")
      ->check(CLI::Range(0.1, 10.0));
  AddOption(*command, "--transport", kTransportKinds, options->needs.transport,
            "Without a YAML: the data path that is wanted");
  AddOption(*command, "--fallback", options->needs.fallback,
            "Without a YAML: another data path will do");
  AddOption(*command, "--address", options->needs.address,
            "Without a YAML: this machine's address in the cluster");
  command
      ->add_option(
          "--port", options->needs.ports,
          "Without a YAML: a port that a daemon will listen at; can be given several times")
      ->check(CLI::Range(1, 65535));
  AddOption(*command, "--manager", options->needs.is_manager,
            "Without a YAML: the manager runs here");
  AddOption(*command, "--secret-file", options->needs.secret_file,
            "Without a YAML: file with the cluster's secret");
  AddOption(*command, "--tls-certificate", options->needs.tls.certificate,
            "Without a YAML: this machine's certificate");
  AddOption(*command, "--tls-key", options->needs.tls.key, "Without a YAML: the certificate's key");
  AddOption(*command, "--tls-ca", options->needs.tls.ca,
            "Without a YAML: the CA that all certificates come from");
  command
      ->add_option("--sysroot", options->sysroot, "Folder with /sys and /proc of another machine")
      ->group("");
  command
      ->add_option("--secret-nonce", options->needs.secret_nonce,
                   "Tell in JSON what secrets can be compared by")
      ->group("");
  command
      ->add_option("--registered-bytes", options->needs.registered_bytes,
                   "Memory that RDMA will lock")
      ->group("");
  command
      ->add_option("--memory-bytes", options->needs.memory_bytes,
                   "What the nodes here will take of the memory")
      ->group("");
  command
      ->add_option("--probe-listen", options->probe_listen,
                   "Answer one measurement at this address")
      ->group("");
  command
      ->add_option("--probe-connect", options->probe_connect,
                   "Measure against what a listening end has offered")
      ->group("");
  command->footer(
      "Exit status: 0 if nothing failed, 1 if something did.\n\nExamples:\n  lamina doctor\n  "
      "lamina doctor configs/local.yaml");
  OnRun(*command, "lamina", [options] { return Doctor(*options); });
}

}  // namespace lamina
