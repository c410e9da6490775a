#include "bench/record/record_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "base/output_file.h"
#include "bench/record/record_run.h"
#include "bench/report.h"
#include "cli/commands.h"
#include "manager/local_cluster.h"
#include "manager/resolve_config.h"
#include "plan/statistics.h"
#include "splitter/offload_options.h"
#include "splitter/slices.h"

namespace lamina {
namespace {

struct RecordOptions {
  std::string cluster, out;
  RecordPlan plan;
  int check = 0;
  uint64_t seed = 1;
  bool json = false;
};

constexpr int64_t kMostTokens = int64_t{1} << 20;

struct RecordedCluster {
  ClusterConfig config;
  ModelConfig model;
  std::string record;  // that the file names
};

Result<RecordedCluster> LoadCluster(const std::string& path) {
  RecordedCluster cluster;
  LAMINA_ASSIGN_OR_RETURN(cluster.config, ClusterConfig::Load(path));
  LAMINA_ASSIGN_OR_RETURN(cluster.model, cluster.config.LoadModel());
  // It is what is to be measured.
  for (NodeConfig& node : cluster.config.nodes) {
    if (!node.offload_record.empty()) cluster.record = node.offload_record;
    node.offload_record.clear();
  }
  cluster.config.standbys.clear();
  LAMINA_RETURN_IF_ERROR(ResolveConfig(cluster.config, cluster.model).WithContext(path));
  if (cluster.config.num_batches != 1) {
    return Unimplemented(fmt::format(
        "{}: {} batches would be in flight, and only steps that come one after another can be "
        "recorded yet: set pipeline.policy to none, with one compute node or one group of them "
        "that "
        "shares the model",
        path, cluster.config.num_batches));
  }
  cluster.config.secret_file.clear();
  cluster.config.tls = {};
  return cluster;
}

// The intervals that the nodes may be told.
Result<std::vector<int>> IntervalsOf(const RecordedCluster& cluster) {
  LAMINA_ASSIGN_OR_RETURN(Graph graph, TraceModel(cluster.model));
  LAMINA_ASSIGN_OR_RETURN(const SlicedModel sliced, SplitGraph(std::move(graph)));
  const int stages = cluster.config.pipeline_parallel_size;
  const int num_slices = (static_cast<int>(sliced.slices.size()) + stages - 1) / stages;
  std::vector<int> intervals = {0};
  for (const NodeConfig& node : cluster.config.nodes) {
    if (node.offload.is_auto) intervals = UsefulIntervals(num_slices, node.offload.buffers);
  }
  return intervals;
}

// What is left out does not fit the cluster's limits.
void Limit(const ClusterConfig& config, RecordPlan& plan) {
  const int64_t longest =
      config.max_model_len - 64 - (std::ssize(plan.intervals) + 1) * (plan.num_steps + 1);
  std::erase_if(plan.rows, [&](int rows) { return rows > config.max_num_seqs; });
  std::erase_if(plan.contexts, [&](int64_t context) { return context > longest; });
  std::erase_if(plan.prompts, [&](int64_t tokens) {
    return tokens > std::min<int64_t>(config.max_num_batched_tokens, config.max_model_len - 1);
  });
}

std::string Table(const std::vector<StepTime>& times, const std::vector<int>& intervals) {
  std::string table = "milliseconds of a step, by the interval (0: all weights in memory)\n\n";
  table += fmt::format("{:>8} {:>8} {:>8} ", "step", "rows", "context");
  for (const int interval : intervals) table += fmt::format(" {:>8}", interval);
  const StepTime* last = nullptr;
  for (const StepTime& time : times) {
    const bool is_same = last != nullptr && last->is_prefill == time.is_prefill &&
                         last->rows == time.rows && time.interval != intervals.front();
    if (!is_same) {
      table += fmt::format("\n{:>8} {:>8} {:>8.0f} ", time.is_prefill ? "prefill" : "decode",
                           time.rows, time.context);
    }
    table += fmt::format(" {:>8.1f}", 1e3 * time.seconds);
    last = &time;
  }
  return table + "\n";
}

Measurement ErrorsOf(const std::vector<LoadCheck>& checks, const std::string& cluster) {
  std::vector<double> errors;
  double sum = 0;
  for (const LoadCheck& check : checks) {
    errors.push_back(std::abs(check.expected_s / check.measured.seconds - 1));
    sum += errors.back();
  }
  Measurement m;
  m.name = "record";
  m.sizes = {{"cluster", cluster}, {"loads", checks.size()}};
  m.value = 100 * sum / static_cast<double>(errors.size());
  m.unit = "% mean error of a step's time";
  m.p99 = 100 * Percentile(errors, 0.99);
  m.p99_of = "% error";
  m.details = {{"median_error", 100 * Percentile(errors, 0.5)},
               {"p90_error", 100 * Percentile(errors, 0.9)}};
  return m;
}

Status BenchRecord(RecordOptions options) {
  LAMINA_ASSIGN_OR_RETURN(RecordedCluster cluster, LoadCluster(options.cluster));
  if (options.out.empty()) options.out = cluster.record;
  if (options.out.empty())
    return InvalidArgument(options.cluster +
                           ": no node has offload.record, where the times would go: give --out");
  LAMINA_RETURN_IF_ERROR(CheckWritable({options.out}));
  RecordPlan& plan = options.plan;
  LAMINA_ASSIGN_OR_RETURN(plan.intervals, IntervalsOf(cluster));
  Limit(cluster.config, plan);
  if (plan.rows.empty() || plan.contexts.empty() || plan.prompts.empty())
    return InvalidArgument("none of --rows, --contexts or --prompts fit the cluster's limits");
  LAMINA_ASSIGN_OR_RETURN(const std::unique_ptr<LocalCluster> daemons,
                          LocalCluster::CreateFor(cluster.config));
  const RecordRun::Progress progress = [](const std::string& line) {
    std::cerr << line << '\n' << std::flush;
  };
  RecordRun run(cluster.config, cluster.model, progress);
  LAMINA_ASSIGN_OR_RETURN(const std::vector<StepTime> times, run.Measure(plan));
  LAMINA_RETURN_IF_ERROR(WriteOutput(options.out, StepProfile::ToCsv(times)));
  LAMINA_ASSIGN_OR_RETURN(const StepProfile profile, StepProfile::Of(times));
  if (!options.json)
    std::cout << Table(times, plan.intervals) << "\nwritten to " << options.out << '\n';
  if (options.check == 0) return OkStatus();
  LAMINA_ASSIGN_OR_RETURN(const std::vector<LoadCheck> checks,
                          run.Check(plan, profile, options.check, options.seed));
  const Measurement errors = ErrorsOf(checks, cluster.config.name);
  if (options.json) {
    std::cout << ToJsonLine(errors) << '\n';
  } else {
    std::cout << fmt::format(
        "{} random loads: error of the step's time {:.1f} % on average, {:.1f} % in the median, "
        "{:.1f} % at the 90th percentile\n",
        checks.size(), errors.value, errors.details.at("median_error").get<double>(),
        errors.details.at("p90_error").get<double>());
  }
  return OkStatus();
}

}  // namespace

void RegisterRecord(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "record",
      "Measure how long steps take, by the sequences that decode and their contexts, by tokens of "
      "prompts, and, where a compute node has offload.interval auto, by how much of the weights "
      "lies "
      "outside of memory; `lamina serve` chooses by that");
  auto options = std::make_shared<RecordOptions>();
  options->plan.rows = {1, 2, 4, 8, 16, 32};
  options->plan.contexts = {64, 256, 1024};
  options->plan.prompts = {16, 64, 256, 512};
  command->add_option("cluster", options->cluster, "cluster YAML; its daemons are started here")
      ->required();
  command->add_option("--out", options->out, "CSV file for the times; default: offload.record");
  command->add_option("--rows", options->plan.rows, "sequences that decode in a step")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  command->add_option("--contexts", options->plan.contexts, "tokens of each of them, about")
      ->delimiter(',')
      ->check(CLI::Range(int64_t{1}, kMostTokens))
      ->capture_default_str();
  command->add_option("--prompts", options->plan.prompts, "tokens of prompts")
      ->delimiter(',')
      ->check(CLI::Range(int64_t{1}, kMostTokens))
      ->capture_default_str();
  command->add_option("--steps", options->plan.num_steps, "steps of which the median is taken")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  command
      ->add_option("--check", options->check,
                   "then measure so many random loads, and say how far off the profile is")
      ->check(CLI::Range(0, 1 << 16));
  command->add_option("--seed", options->seed, "of the random loads")->capture_default_str();
  command->add_flag("--json", options->json, "print the error as JSON");
  command->footer("Example:\n  lamina bench record configs/local.yaml --out steps.csv --check 100");
  OnRun(*command, "lamina bench record", [options] { return BenchRecord(*options); });
}

}  // namespace lamina
