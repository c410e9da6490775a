#include <fmt/format.h>

#include <iostream>
#include <memory>

#include "base/clock.h"
#include "base/json_text.h"
#include "base/output_file.h"
#include "cli/commands.h"
#include "cli/measured_run.h"
#include "cli/number_checks.h"
#include "cli/output_options.h"
#include "cli/progress_line.h"
#include "cli/workload_flags.h"
#include "plan/simulate/simulation.h"
#include "plan/simulate/simulation_report.h"
#include "plan/workload/workload.h"

namespace lamina {
namespace {

struct SimulateOptions {
  std::string cluster;
  ClusterChanges changes;
  WorkloadOptions workload;
  int max_concurrency = 0;
  bool decode_only = false;
  std::vector<std::string> slow, slow_link, fail;
  std::string kv_baseline;
  std::string events_file, host_costs_file;
  OutputFiles files;
  bool json = false, measure = false;
};

Result<std::vector<NodeChange>> ChangesOf(const SimulateOptions& options) {
  std::vector<NodeChange> changes;
  if (!options.events_file.empty()) {
    LAMINA_ASSIGN_OR_RETURN(changes, NodeChange::Load(options.events_file));
  }
  for (const std::string& text : options.slow) {
    LAMINA_ASSIGN_OR_RETURN(changes.emplace_back(), NodeChange::ParseSlow(text));
  }
  for (const std::string& text : options.slow_link) {
    LAMINA_ASSIGN_OR_RETURN(changes.emplace_back(), NodeChange::ParseSlowLink(text));
  }
  for (const std::string& text : options.fail) {
    LAMINA_ASSIGN_OR_RETURN(changes.emplace_back(), NodeChange::ParseFail(text));
  }
  return changes;
}

// The simulator's numbers beside those of the same workload on real processes.
Status Compare(const ClusterModel& cluster, const RequestTrace& workload,
               const SimulationOptions& options, const SimulationResult& simulated, bool as_json) {
  LAMINA_ASSIGN_OR_RETURN(const SimulationResult measured, Measure(cluster, workload, options));
  const nlohmann::ordered_json ours = ToServeJson(simulated), real = ToServeJson(measured);
  nlohmann::ordered_json line = {{"measured", real},
                                 {"error_percent", nlohmann::ordered_json::object()}};
  std::string text =
      fmt::format("\n{:<22} {:>12} {:>12} {:>9}\n", "", "simulated", "measured", "error");
  for (const char* key :
       {"request_throughput", "output_throughput", "mean_ttft_ms", "p99_ttft_ms", "mean_tpot_ms",
        "p99_tpot_ms", "mean_itl_ms", "p99_itl_ms", "mean_e2el_ms", "p99_e2el_ms"}) {
    const double a = ours.at(key).get<double>(), b = real.at(key).get<double>();
    const double error = b == 0 ? 0 : 100 * (a / b - 1);
    line["error_percent"][key] = error;
    text += fmt::format("{:<22} {:>12.3f} {:>12.3f} {:>7.1f} %\n", key, a, b, error);
  }
  std::cout << (as_json ? JsonText(line) + "\n" : text) << std::flush;
  return OkStatus();
}

Status RunSimulation(const SimulateOptions& options) {
  LAMINA_RETURN_IF_ERROR(
      CheckWritable({options.files.json, options.files.requests, options.files.svg}));
  ClusterChanges cluster_changes = options.changes;
  if (options.measure && (!options.kv_baseline.empty() || options.changes.kv_write_through))
    return InvalidArgument(
        "--kv-baseline and --kv-write-through exist in the simulator only, so that --measure has "
        "nothing to measure");
  if (!options.kv_baseline.empty()) {
    LAMINA_ASSIGN_OR_RETURN(cluster_changes.kv_baseline, KvBaseline::Parse(options.kv_baseline));
  }
  LAMINA_ASSIGN_OR_RETURN(const ClusterModel cluster,
                          ClusterModel::Load(options.cluster, cluster_changes));
  LAMINA_ASSIGN_OR_RETURN(const RequestTrace workload,
                          MakeWorkload(options.workload, EstimatedTokens()));
  SimulationOptions simulation;
  if (!options.host_costs_file.empty()) {
    LAMINA_ASSIGN_OR_RETURN(simulation.host, HostCosts::Load(options.host_costs_file));
  }
  LAMINA_ASSIGN_OR_RETURN(simulation.changes, ChangesOf(options));
  simulation.max_concurrency = options.max_concurrency;
  simulation.prompts_appear = options.decode_only;
  const TimePoint start = Clock::now();
  SimulationResult result;
  {
    ProgressLine line;
    simulation.progress = [&](int64_t finished, double virtual_s) {
      if (options.json || !line.is_due()) return;
      line.Show(fmt::format("{} of {} requests, {:.1f} s of virtual time in {:.1f} s", finished,
                            workload.requests.size(), virtual_s, SecondsSince(start)));
    };
    LAMINA_ASSIGN_OR_RETURN(result, Simulate(cluster, workload, simulation));
  }
  const double took = SecondsSince(start);
  nlohmann::ordered_json json = ToJson(cluster, result);
  json["workload"] = workload.source;
  json["seed"] = options.workload.seed;
  json["request_rate"] = options.workload.request_rate;
  json["simulation_seconds"] = took;
  const Status written = WriteOutput(options.files.json, JsonText(json, 1) + '\n');
  if (options.json) {
    json.erase("timeline");
    std::cout << JsonText(json) << std::endl;
  } else {
    std::cout << ToText(cluster, result)
              << fmt::format(
                     "simulated in       {:.2f} s, {:.0f} requests/s of this machine's time\n",
                     took, static_cast<double>(workload.requests.size()) / took);
  }
  LAMINA_RETURN_IF_ERROR(written);
  LAMINA_RETURN_IF_ERROR(
      WriteOutput(options.files.requests, [&](std::ostream& out) { WriteRequests(result, out); }));
  LAMINA_RETURN_IF_ERROR(WriteOutput(options.files.svg, ToSvg(cluster, result)));
  if (json.at("completed") == 0) {
    if (!result.failure.empty()) return InvalidArgument("no request was served: " + result.failure);
    const Limit limit = FindLimit(cluster, result);
    return InvalidArgument("no request was served; limited by " + limit.resource + ": " +
                           limit.why);
  }
  return options.measure ? Compare(cluster, workload, simulation, result, options.json)
                         : OkStatus();
}

void AddClusterOptions(CLI::App& command, SimulateOptions& options) {
  ClusterChanges& changes = options.changes;
  command
      .add_option("cluster", options.cluster,
                  "cluster YAML; nodes whose device is cpu need --cpu-device")
      ->required();
  command
      .add_option("--memory-nodes", changes.num_memory_nodes, "so many: the file's, over and over")
      ->check(CLI::Range(1, 100000));
  command
      .add_option(
          "--compute-nodes", changes.num_compute_nodes,
          "so many copies of the file's first one; at most 16 that hold the whole model each")
      ->check(CLI::Range(1, 1000));
  AddSetting(command, "--pipeline", kPipelineModesAutoLast, changes.pipeline,
             kPipelineModesAutoLast.listed() + ", instead of the file's");
  command
      .add_option("--num-batches", changes.num_batches, "steps in flight, instead of the file's")
      ->check(CLI::Range(1, kMaxBatches));
  command
      .add_option("--max-num-seqs", changes.max_num_seqs,
                  "sequences that run at a time, instead of the file's")
      ->transform(SizeAsNumber())
      ->check(CLI::Range(1, 1 << 24));
  command
      .add_option("--max-num-batched-tokens", changes.max_num_batched_tokens,
                  "rows of a step, instead of the file's")
      ->transform(SizeAsNumber())
      ->check(CLI::Range(1, 1 << 24));
  AddSetting(command, "--overlap", kSwitches, changes.overlap,
             kSwitches.listed() + ", instead of the file's");
  AddSetting(command, "--scheduling-policy", kQueueModes, changes.queue,
             kQueueModes.listed() + ", instead of the file's");
  AddSetting(command, "--on-hopeless", kHopelessModes, changes.on_hopeless,
             kHopelessModes.listed() +
                 ": what becomes of requests that wait when their first token is due, instead of "
                 "the file's; objectives are those of its 'slo'");
  command.add_option("--latency", changes.latency,
                     "of the network, such as 33us, instead of the file's");
  command.add_option("--gb-per-s", changes.gb_per_s, "likewise its bandwidth, in 10^9 bytes")
      ->check(ModelledGbPerSecond());
  command.add_option("--cpu-device", changes.cpu_device,
                     "the device of the catalog that nodes with device cpu are taken for");
  command.add_option("--device-catalog", changes.device_catalog, "instead of the file's");
  command.add_option(
      "--kv-baseline", options.kv_baseline,
      "what other systems do where a compute node keeps the KV itself and has no room for more: "
      "swap, swap:TOKENS, tail:EXPANSION, static:EXPANSION or static-ahead:EXPANSION "
      "(docs/offload.md); only simulated, nodes have kv_offload");
  command.add_flag("--kv-write-through", changes.kv_write_through,
                   "with kv_offload.expansion: new K and V go to the host's memory at once, and "
                   "layers that go are not copied; only simulated, nodes copy them");
  command.add_option("--host-costs", options.host_costs_file,
                     "YAML file: what the processes of a machine add (docs/simulate.md)");
}

}  // namespace

void RegisterSimulate(CLI::App& app) {
  auto options = std::make_shared<SimulateOptions>();
  CLI::App* command = app.add_subcommand(
      "simulate", "A cluster in virtual time: the real scheduler, modelled devices and network");
  command->footer(
      "Examples:\n"
      "  lamina simulate configs/modelled-13b.yaml --lengths-of azure-conv --request-rate 4\n"
      "  lamina simulate configs/modelled-13b.yaml --memory-nodes 12 --slow m3:2@10s --fail m5@20s "
      "--svg usage.svg");
  AddClusterOptions(*command, *options);
  AddWorkloadFlags(*command, options->workload);
  command
      ->add_option("--max-concurrency", options->max_concurrency,
                   "requests that wait or run at a time; 0: as they come")
      ->check(CLI::NonNegativeNumber);
  command->add_flag("--decode-only", options->decode_only,
                    "K and V of prompts are there at once, only decoding takes time");
  command->add_option(
      "--slow", options->slow,
      "NAME:FACTOR@TIME: from then on all that the node does takes so many times as long");
  command->add_option("--slow-link", options->slow_link,
                      "NAME:FACTOR@TIME: from then on copies between the node and its host's "
                      "memory take so many times as long, as others use the link too");
  command->add_option("--fail", options->fail, "NAME@TIME: the node is gone");
  command->add_option("--events", options->events_file,
                      "YAML file with such events: {events: [{at: 10s, slow: m0, factor: 2}]}");
  command->add_flag("--measure", options->measure,
                    "then serve the same in real time, with the daemons on this machine, and print "
                    "the differences");
  command->add_flag(
      "--json", options->json,
      "a JSON line instead of text, without the course over time that --json-out has");
  options->files.AddTo(*command, "how busy the pools were and how long the queue, over time");
  QuietWhileItRuns(*command);
  OnRun(*command, "lamina simulate", [options] { return RunSimulation(*options); });
}

}  // namespace lamina
