#include "bench/recovery/recovery_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/output_file.h"
#include "base/units.h"
#include "bench/recovery/node_fault.h"
#include "bench/recovery/recovery_chart.h"
#include "bench/recovery/recovery_figures.h"
#include "bench/recovery/recovery_report.h"
#include "bench/recovery/recovery_run.h"
#include "bench/report.h"
#include "cli/commands.h"
#include "cli/number_checks.h"
#include "manager/local_cluster.h"
#include "manager/resolve_config.h"

namespace lamina {
namespace {

struct RecoveryOptions {
  std::string cluster;
  FaultTexts faults;
  StreamLoad load;
  std::string duration = "20s";
  int64_t tokens = 0;  // 0: requests of load.output_tokens, one after another, for `duration`
  bool no_check = false;
  std::string chart;
  bool json = false;
};

constexpr int kMostStreams = 1 << 16;
constexpr int64_t kMostStreamTokens = 1 << 20;

Result<StreamLoad> StreamLoadOf(const RecoveryOptions& options) {
  StreamLoad load = options.load;
  if (options.tokens > 0) {
    load.output_tokens = options.tokens;
    return load;
  }
  LAMINA_ASSIGN_OR_RETURN(load.duration, ParseDuration(options.duration));
  if (load.duration == Clock::duration::zero())
    return InvalidArgument("--duration must be longer than 0s");
  return load;
}

Status CheckTimes(const std::vector<NodeFault>& faults, const StreamLoad& load) {
  if (faults.empty())
    return InvalidArgument(
        "nothing fails: give --kill NAME@TIME, --stop NAME@TIME+DURATION, or both");
  const NodeFault& last = faults.back();
  if (load.duration == Clock::duration::zero() || last.at < load.duration) return OkStatus();
  return InvalidArgument(last.Name() + ": the run is over after " + FormatDuration(load.duration) +
                         "; give a longer --duration");
}

// All streams are to be served at a time, or some would wait for others and not for nodes.
Status CheckStreamsFit(const ClusterConfig& config, const StreamLoad& load) {
  if (load.num_streams > config.max_num_seqs) {
    return InvalidArgument(
        fmt::format("--streams {}: the cluster serves {} sequences at a time; give fewer, or raise "
                    "limits.max_num_seqs in the cluster file",
                    load.num_streams, config.max_num_seqs));
  }
  const int64_t length = load.input_tokens + load.output_tokens;
  if (length <= config.max_model_len) return OkStatus();
  return InvalidArgument(
      fmt::format("{} tokens of prompt and {} of answer are more than the {} of the model or of "
                  "limits.max_model_len",
                  load.input_tokens, load.output_tokens, config.max_model_len));
}

Result<ServedCluster> LoadServedCluster(const std::string& path) {
  ServedCluster cluster;
  LAMINA_ASSIGN_OR_RETURN(cluster.config, ClusterConfig::Load(path));
  LAMINA_ASSIGN_OR_RETURN(cluster.model, cluster.config.LoadModel());
  LAMINA_RETURN_IF_ERROR(ResolveConfig(cluster.config, cluster.model).WithContext(path));
  // Its daemons are children of this process, on the loopback, and are given no secret.
  cluster.config.secret_file.clear();
  cluster.config.tls = {};
  return cluster;
}

Status BenchRecovery(const RecoveryOptions& options) {
  LAMINA_RETURN_IF_ERROR(CheckWritable({options.chart}));
  LAMINA_ASSIGN_OR_RETURN(const std::vector<NodeFault> faults, ParseFaults(options.faults));
  RecoveryReport report;
  LAMINA_ASSIGN_OR_RETURN(report.load, StreamLoadOf(options));
  LAMINA_RETURN_IF_ERROR(CheckTimes(faults, report.load));
  LAMINA_ASSIGN_OR_RETURN(ServedCluster cluster, LoadServedCluster(options.cluster));
  LAMINA_RETURN_IF_ERROR(CheckFaults(faults, cluster.config).WithContext(options.cluster));
  LAMINA_RETURN_IF_ERROR(CheckStreamsFit(cluster.config, report.load));
  report.cluster = cluster.config.name;
  LAMINA_ASSIGN_OR_RETURN(const std::unique_ptr<LocalCluster> daemons,
                          LocalCluster::CreateFor(cluster.config));
  cluster.daemons = daemons.get();
  if (faults.front().OfManager()) cluster.manager_file = options.cluster;
  std::optional<RecoveryTimeline> undisturbed;
  if (!options.no_check) {
    std::cerr << "a run without faults\n" << std::flush;
    LAMINA_ASSIGN_OR_RETURN(undisturbed, ServeStreams(cluster, report.load, {}));
  }
  std::cerr << "a run with faults\n" << std::flush;
  LAMINA_ASSIGN_OR_RETURN(report.run, ServeStreams(cluster, report.load, faults));
  report.figures = EvaluateRecovery(report.run, undisturbed ? &*undisturbed : nullptr);
  if (options.json) {
    for (const Measurement& m : MeasurementsOf(report)) std::cout << ToJsonLine(m) << '\n';
  } else {
    std::cout << ToText(report);
  }
  std::cout << std::flush;
  return WriteOutput(options.chart, DrawRecovery(report.Heading(), report.run, report.figures));
}

void AddFaultOptions(CLI::App& command, RecoveryOptions& options) {
  // One text for each, so that the cluster file can stand behind them.
  const auto add = [&](const char* flag, std::vector<std::string>& texts, const char* help) {
    command.add_option(flag, texts, help)->allow_extra_args(false);
  };
  add("--kill", options.faults.kill,
      "NAME@TIME: SIGKILL to the node's daemon, such as m0@5s, or to the manager: manager@5s");
  add("--stop", options.faults.stop,
      "NAME@TIME[+DURATION]: SIGSTOP, so that it hangs; with a duration, SIGCONT after it");
  add("--restart", options.faults.restart,
      "NAME@TIME: start the daemon of a killed node, or the manager, again");
}

void AddStreamOptions(CLI::App& command, RecoveryOptions& options) {
  command.add_option("--streams", options.load.num_streams, "clients that are served at a time")
      ->check(CLI::Range(1, kMostStreams))
      ->capture_default_str();
  command.add_option("--input-len", options.load.input_tokens, "tokens of each prompt")
      ->transform(SizeAsNumber())
      ->check(CLI::Range(int64_t{1}, kMostStreamTokens))
      ->capture_default_str();
  command.add_option("--output-len", options.load.output_tokens, "tokens of each answer")
      ->transform(SizeAsNumber())
      ->check(CLI::Range(int64_t{1}, kMostStreamTokens))
      ->capture_default_str();
  command
      .add_option("--temperature", options.load.temperature,
                  "of sampling, with a seed for each request; 0: always the most likely token")
      ->check(NumberIn(0, 100))
      ->capture_default_str();
  CLI::Option* duration = command
                              .add_option("--duration", options.duration,
                                          "of each run; streams ask one request after another")
                              ->capture_default_str();
  command
      .add_option("--tokens", options.tokens,
                  "instead: each stream asks one request with so many tokens of answer")
      ->check(CLI::Range(int64_t{1}, kMostStreamTokens))
      ->excludes(duration);
}

}  // namespace

void RegisterRecovery(CLI::App& app) {
  auto options = std::make_shared<RecoveryOptions>();
  CLI::App* command = app.add_subcommand(
      "recovery",
      "What it costs streams when nodes of their cluster, or its manager, are killed or hang");
  command->footer(
      "Examples:\n"
      "  lamina bench recovery configs/local.yaml --kill m0@5s --chart recovery.svg\n"
      "  lamina bench recovery configs/local.yaml --stop m1@5s+3s --streams 16 --json\n"
      "  lamina bench recovery configs/local.yaml --kill m0@5s --restart m0@10s --duration 30s\n"
      "  lamina bench recovery configs/local.yaml --kill manager@5s --restart manager@5.5s\n"
      "docs/bench-recovery.md says what the figures mean.");
  command
      ->add_option("cluster", options->cluster,
                   "cluster YAML; its daemons run on this machine while they are measured")
      ->required();
  AddFaultOptions(*command, *options);
  AddStreamOptions(*command, *options);
  command->add_flag(
      "--no-check", options->no_check,
      "do not serve the same streams without faults first, so tokens are not compared");
  command->add_option("--chart", options->chart,
                      "draw there, as SVG, tokens/s over time and the pauses of each stream");
  command->add_flag("--json", options->json, "a JSON line for each figure instead of a table");
  OnRun(*command, "lamina bench recovery", [options] { return BenchRecovery(*options); });
}

}  // namespace lamina
