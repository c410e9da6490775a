#include <fmt/format.h>

#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/json_text.h"
#include "base/output_file.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/number_checks.h"
#include "cli/shipped_files.h"
#include "hub/find_model.h"
#include "plan/chart/bar_chart.h"
#include "plan/cluster_file.h"
#include "plan/planner.h"
#include "plan/workload/trace_reader.h"
#include "plan/workload/workload.h"

namespace lamina {
namespace {

using nlohmann::ordered_json;

struct PlanCommand {
  std::string model;       // as it was given
  std::string model_path;  // of its folder or GGUF file
  std::string trace, input_len = "1024", output_len = "128", lengths_of;
  double rate = 0;
  std::string catalog = DefaultCatalog();
  std::string tpot, ttft, latency = "33us", price = "rent", prefill = "here";
  std::string emit, svg;
  std::string emit_shape = "disaggregated";
  ShapeLimits limits;
  PlanOptions options;
  size_t top = 10;
  bool json = false;
};

// Of a folder with a config.json, the file itself, a GGUF file, or a model's name.
Result<std::string> FolderOfModel(const std::string& model) {
  const std::filesystem::path path(model);
  if (path.extension() != ".json") return FindModel(model);
  return path.has_parent_path() ? path.parent_path().string() : ".";
}

Status ReadSeconds(const std::string& flag, const std::string& text, double* seconds) {
  if (text.empty()) return OkStatus();
  const Result<Clock::duration> duration = ParseDuration(text);
  if (!duration.ok()) return duration.status().WithContext(flag);
  *seconds = std::chrono::duration<double>(*duration).count();
  return OkStatus();
}

Result<PlanLoad> ReadLoad(const PlanCommand& command, const ModelConfig& model) {
  RequestTrace trace;
  if (!command.trace.empty()) {
    const Result<TraceFormat> format = DetectTraceFormat(command.trace);
    if (!format.ok()) return format.status().WithContext("--trace");
    LAMINA_ASSIGN_OR_RETURN(trace, ReadTrace(command.trace, *format, EstimatedTokens()));
  } else {
    WorkloadOptions workload;
    workload.dataset_name = "random";
    workload.input_len = command.input_len;
    workload.output_len = command.output_len;
    workload.lengths_of = command.lengths_of;
    workload.num_prompts = 10000;
    LAMINA_ASSIGN_OR_RETURN(trace, MakeWorkload(workload, EstimatedTokens()));
  }
  if (trace.requests.empty()) return InvalidArgument(command.trace + ": it has no requests");
  const int64_t too_long = LeaveOutLonger(model.max_positions, trace);
  if (trace.requests.empty()) {
    return InvalidArgument(
        fmt::format("{}: all {} requests are longer, prompt and answer, than the {} tokens of the "
                    "model's context",
                    trace.source, too_long, model.max_positions));
  }
  PlanLoad load = LoadOf(trace);
  load.num_too_long = too_long;
  load.requests_per_second = command.rate;
  return load;
}

ordered_json ToJson(const Prediction& p) {
  return {{"cluster", p.shape.text()},
          {"compute_device", p.shape.compute},
          {"num_replicas", p.shape.num_replicas},
          {"num_ranks", p.shape.num_ranks},
          {"memory_device", p.shape.memory},
          {"num_memory", p.shape.num_memory},
          {"copies", p.copies},
          {"tokens_per_dollar", p.tokens_per_dollar},
          {"price_per_hour", p.price_per_hour},
          {"tokens_per_s", p.tokens_per_second},
          {"sequences", p.schedule.sequences()},
          {"max_sequences", p.max_sequences},
          {"admitted_sequences", p.admitted_sequences},
          {"most_tokens_per_s", p.most_tokens_per_second},
          {"num_batches", p.schedule.num_batches},
          {"rotates", p.schedule.rotates},
          {"tpot_ms", 1e3 * p.tpot_seconds},
          {"ttft_ms", 1e3 * p.ttft_seconds},
          {"linear_ms", 1e3 * p.linear_seconds},
          {"attention_ms", 1e3 * p.attention_seconds},
          {"network_ms", 1e3 * p.network_seconds},
          {"prefill_ms", 1e3 * p.prefill_seconds},
          {"needed_gb_per_s", p.needed_gb_per_s},
          {"limit", BottleneckName(p.limit)}};
}

ordered_json ToJson(const PlanCommand& command, const PlanLoad& load, const Plan& plan) {
  ordered_json json = {{"model", command.model},
                       {"catalog", command.catalog},
                       {"prices", command.price},
                       {"workload",
                        {{"source", load.source},
                         {"mean_input_tokens", load.input_tokens},
                         {"mean_output_tokens", load.output_tokens},
                         {"mean_context", load.context},
                         {"longest", load.longest},
                         {"num_too_long", load.num_too_long},
                         {"num_left_out", load.num_left_out},
                         {"counted_by", load.counted_by},
                         {"requests_per_s", load.requests_per_second}}},
                       {"prefill", command.prefill},
                       {"verdict", plan.Verdict()},
                       {"num_shapes", plan.num_shapes},
                       {"left_out", plan.left_out}};
  for (const auto& [key, list] : {std::pair("disaggregated", &plan.disaggregated),
                                  std::pair("homogeneous", &plan.homogeneous)}) {
    json[key] = ordered_json::array();
    for (const Prediction& prediction : *list) json[key].push_back(ToJson(prediction));
  }
  return json;
}

std::string Batches(const Schedule& schedule) {
  if (schedule.num_batches == 1) return std::to_string(schedule.rows);
  return fmt::format("{} x {}{}", schedule.num_batches, schedule.rows,
                     schedule.rotates ? " r" : "");
}

void PrintRow(const Prediction& p) {
  const std::string needs = p.shape.homogeneous() ? "-" : fmt::format("{:.1f}", p.needed_gb_per_s);
  const std::string copies = p.copies > 1 ? fmt::format("{} times ", p.copies) : "";
  std::cout << fmt::format(
      "{:>10.0f} {:>8.2f} {:>9.0f} {:>12} {:>8.1f} {:>8.0f} {:>6}  {:<16}  {}{}\n",
      p.tokens_per_dollar, p.price_per_hour, p.tokens_per_second, Batches(p.schedule),
      1e3 * p.tpot_seconds, 1e3 * p.ttft_seconds, needs, BottleneckName(p.limit), copies,
      p.shape.text());
}

void Print(const PlanCommand& command, const ModelConfig& model, const PlanLoad& load,
           const Plan& plan) {
  std::cout << fmt::format(
      "{}: {:.0f} prompt and {:.0f} answer tokens, {:.0f} tokens of context at a time{}; prompts "
      "are {}\n",
      load.source, load.input_tokens, load.output_tokens, load.context,
      load.requests_per_second > 0 ? fmt::format(", {} requests/s", load.requests_per_second) : "",
      command.options.prefill ? "computed here" : "computed elsewhere");
  std::cout << fmt::format("prices to {} from {}, for devices alone; {} shapes\n\n", command.price,
                           command.catalog, plan.num_shapes);
  if (load.num_too_long > 0) {
    std::cout << fmt::format(
        "{} requests are left out: they have more tokens than the model's context of {}, and "
        "lamina refuses them.\n\n",
        load.num_too_long, model.max_positions);
  }
  if (load.num_left_out > 0) {
    std::cout << fmt::format(
        "{} requests of the file are left out: without an answer or, of ShareGPT, shorter or "
        "longer than vllm bench serve takes.\n\n",
        load.num_left_out);
  }
  if (load.counted_by.starts_with("estimated"))
    std::cout << fmt::format("Token counts are {}.\n\n", load.counted_by);
  std::cout << " tokens/$       $/h  tokens/s        batch  TPOT/ms  TTFT/ms   GB/s  limited by    "
               "    cluster\n";
  for (size_t i = 0; i < std::min(command.top, plan.disaggregated.size()); ++i)
    PrintRow(plan.disaggregated[i]);
  std::cout << "homogeneous\n";
  for (size_t i = 0; i < std::min(command.top, plan.homogeneous.size()); ++i)
    PrintRow(plan.homogeneous[i]);
  std::cout << "\nbatch: batches in flight x rows, r: rotating. TTFT: without waiting. GB/s: that "
               "a compute node's NIC needs for q, k, v and\n"
               "outputs to take no longer than linear layers. limited by: what would gain most if "
               "there were twice of it.\n"
            << (load.requests_per_second > 0 ? "batch: for the mean load; requests come in bursts, "
                                               "and --emit lets as many run as the limits allow.\n"
                                             : "")
            << '\n'
            << plan.Verdict() << "\n";
  if (!plan.left_out.empty())
    std::cout << fmt::format("Left out: {}\n", fmt::join(plan.left_out, "; "));
}

std::string Picture(const PlanCommand& command, const Plan& plan) {
  BarChart chart{fmt::format("{}: output tokens per dollar", command.model), {}, false};
  for (const std::vector<Prediction>* list : {&plan.disaggregated, &plan.homogeneous}) {
    for (size_t i = 0; i < std::min(command.top, list->size()); ++i) {
      const Prediction& p = (*list)[i];
      chart.bars.push_back({p.shape.text(), 0, p.tokens_per_dollar,
                            fmt::format("{:.0f}", p.tokens_per_dollar), p.shape.homogeneous()});
    }
  }
  return ToSvg(chart);
}

// What a homogeneous cluster's device has beside the weights.
Result<int64_t> MemoryBeside(const DeviceSpec& device, const ModelConfig& model,
                             const PlanOptions& options) {
  LAMINA_ASSIGN_OR_RETURN(const Graph graph, TraceModel(model));
  return static_cast<int64_t>(options.memory_utilization *
                              static_cast<double>(device.memory_bytes)) -
         WeightBytes(graph, model.dtype);
}

Status Emit(const PlanCommand& command, const ModelConfig& model, const DeviceCatalog& catalog,
            const Plan& plan) {
  const bool alone = command.emit_shape == "homogeneous";
  const std::vector<Prediction>& found = alone ? plan.homogeneous : plan.disaggregated;
  if (found.empty()) return NotFound("--emit: no " + command.emit_shape + " cluster serves this");
  const Prediction& best = found.front();
  LAMINA_ASSIGN_OR_RETURN(const DeviceSpec compute, catalog.Find(best.shape.compute));
  if (const Status status = CheckRanks(compute, best.shape.num_ranks); !status.ok())
    return InvalidArgument("--emit: no modelled cluster of " + best.shape.text() + ": " +
                           status.message() + ", or plan with --max-ranks 1");
  ClusterFile file;
  file.model_dir = command.model_path;
  file.catalog = command.catalog;
  file.options = command.options;
  file.compute_price = HourlyPrice(compute, command.options);
  if (alone) {
    LAMINA_ASSIGN_OR_RETURN(file.memory_bytes, MemoryBeside(compute, model, command.options));
  } else {
    LAMINA_ASSIGN_OR_RETURN(const DeviceSpec memory, catalog.Find(best.shape.memory));
    file.memory_price = HourlyPrice(memory, command.options);
    file.compute_nic_gb_per_s = NicGbPerS(compute, command.options);
    file.memory_nic_gb_per_s = NicGbPerS(memory, command.options);
    file.memory_bytes = static_cast<int64_t>(command.options.memory_utilization *
                                             static_cast<double>(memory.memory_bytes));
  }
  Result<std::string> yaml = ToClusterYaml(best, file);
  if (!yaml.ok() && alone) return yaml.status().WithContext("--emit (try --max-ranks 1)");
  LAMINA_RETURN_IF_ERROR(yaml.status());
  return WriteOutput(command.emit, *yaml);
}

Status RunPlan(PlanCommand& command) {
  LAMINA_RETURN_IF_ERROR(ReadSeconds("--tpot", command.tpot, &command.options.tpot_seconds));
  LAMINA_RETURN_IF_ERROR(ReadSeconds("--ttft", command.ttft, &command.options.ttft_seconds));
  double latency = 0;
  LAMINA_RETURN_IF_ERROR(ReadSeconds("--latency", command.latency, &latency));
  command.options.latency_us = latency * 1e6;
  command.options.bought = command.price == "buy";
  command.options.prefill = command.prefill == "here";
  command.limits.keep = std::max(command.limits.keep, command.top);
  LAMINA_ASSIGN_OR_RETURN(command.model_path, FolderOfModel(command.model));
  LAMINA_ASSIGN_OR_RETURN(const ModelConfig model, ModelConfig::Load(command.model_path));
  Result<DeviceCatalog> catalog = DeviceCatalog::Load(command.catalog);
  if (!catalog.ok()) return catalog.status().WithContext("--catalog");
  LAMINA_ASSIGN_OR_RETURN(const PlanLoad load, ReadLoad(command, model));
  LAMINA_ASSIGN_OR_RETURN(const Plan plan,
                          MakePlan(model, load, *catalog, command.limits, command.options));
  if (command.json) {
    std::cout << JsonText(ToJson(command, load, plan), 2) << "\n";
  } else {
    Print(command, model, load, plan);
  }
  if (!command.svg.empty())
    LAMINA_RETURN_IF_ERROR(WriteOutput(command.svg, Picture(command, plan)));
  if (!command.emit.empty()) LAMINA_RETURN_IF_ERROR(Emit(command, model, *catalog, plan));
  if (plan.best() == nullptr)
    return NotFound(
        "no cluster of these devices holds the model and the longest request and keeps the limits");
  return OkStatus();
}

}  // namespace

void RegisterPlan(CLI::App& app) {
  auto options = std::make_shared<PlanCommand>();
  CLI::App* command = app.add_subcommand(
      "plan",
      "Which devices give the most tokens per dollar for a model and a workload (docs/plan.md)");
  command->footer(
      "Examples:\n  lamina plan configs/models/llama-3-70b --input-len 4096 --output-len 512 "
      "--tpot 100ms\n"
      "  lamina plan MODEL --trace trace.csv --rate 20 --price buy --emit cluster.yaml");
  command
      ->add_option(
          "model", options->model,
          "folder of the model, its config.json, a GGUF file, or a name; weights are not needed")
      ->required();
  CLI::Option* trace = command->add_option(
      "--trace", options->trace, "requests: Azure, BurstGPT, Mooncake, ShareGPT or Alpaca");
  CLI::Option* lengths =
      command
          ->add_option(
              "--lengths-of", options->lengths_of,
              "lengths as in a published trace: azure-conv | azure-code | mooncake-conv | ...")
          ->excludes(trace);
  command
      ->add_option("--input-len", options->input_len,
                   "tokens of prompts: N | uniform:LOW:HIGH | lognormal:MEAN:CV")
      ->capture_default_str()
      ->excludes(trace)
      ->excludes(lengths);
  command->add_option("--output-len", options->output_len, "tokens of answers, likewise")
      ->capture_default_str()
      ->excludes(trace)
      ->excludes(lengths);
  command->add_option("--rate", options->rate, "requests/s to serve; 0: as many as a cluster can")
      ->check(NumberAtLeast(0));
  command
      ->add_option("--catalog", options->catalog,
                   "devices and prices; one of your own can extend it")
      ->capture_default_str();
  command
      ->add_option("--price", options->price,
                   "rent: prices per hour | buy: prices spread over --years")
      ->check(CLI::IsMember({"rent", "buy"}))
      ->capture_default_str();
  command->add_option("--years", options->options.years, "that a bought device is used")
      ->check(NumberIn(0.01, 100))
      ->capture_default_str();
  command->add_option("--tpot", options->tpot, "time between two tokens at most, such as 100ms");
  command->add_option("--ttft", options->ttft,
                      "time to the first token at most, without waiting, such as 2s");
  command
      ->add_option("--prefill", options->prefill,
                   "here: compute nodes compute prompts | elsewhere: they come from other machines")
      ->check(CLI::IsMember({"here", "elsewhere"}))
      ->capture_default_str();
  command->add_option("--latency", options->latency, "of the network, from node to node")
      ->capture_default_str();
  command
      ->add_option("--nic-gb-per-s", options->options.default_nic_gb_per_s,
                   "of devices for which the catalog gives none")
      ->check(NumberIn(0.001, 1e6))
      ->capture_default_str();
  command
      ->add_option(
          "--memory-utilization", options->options.memory_utilization,
          "share of a device's memory for the KV cache, and for weights that are there too")
      ->check(NumberIn(0.01, 1))
      ->capture_default_str();
  command->add_option("--max-num-seqs", options->options.max_sequences, "at a time, at most")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command
      ->add_option("--compute", options->limits.compute_devices,
                   "compute devices to consider; all with a price otherwise")
      ->delimiter(',');
  command->add_option("--memory", options->limits.memory_devices, "memory devices, likewise")
      ->delimiter(',');
  command
      ->add_option("--max-replicas", options->limits.max_replicas,
                   "compute nodes with the whole model each")
      ->check(CLI::Range(1, 8))
      ->capture_default_str();
  command
      ->add_option("--max-ranks", options->limits.max_ranks,
                   "compute nodes that share the model by tensor parallelism")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  command->add_option("--max-memory-nodes", options->limits.max_memory_nodes, "memory nodes")
      ->check(CLI::Range(1, 128))
      ->capture_default_str();
  command
      ->add_option("--top", options->top,
                   "rows to show of each kind: the best of each pair of devices")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_flag("--json", options->json, "everything, as JSON");
  command->add_option("--svg", options->svg, "write a picture of the rows to this file");
  command->add_option("--emit", options->emit,
                      "write a cluster YAML of the best disaggregated cluster, with modelled "
                      "devices, to this file");
  command
      ->add_option(
          "--emit-shape", options->emit_shape,
          "of which kind --emit writes the best: disaggregated, or homogeneous, one device "
          "that keeps the KV cache itself")
      ->check(CLI::IsMember({"disaggregated", "homogeneous"}))
      ->capture_default_str();
  QuietWhileItRuns(*command);
  OnRun(*command, "lamina plan", [options] { return RunPlan(*options); });
}

}  // namespace lamina
