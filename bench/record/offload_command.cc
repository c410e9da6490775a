#include "bench/record/offload_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iostream>
#include <iterator>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/device_timeline.h"
#include "bench/kernels/machine_limits.h"
#include "bench/record/offload_runs.h"
#include "bench/report.h"
#include "cli/commands.h"
#include "cli/number_checks.h"
#include "cost/cost_model.h"
#include "cost/step_profile.h"
#include "manager/local_cluster.h"
#include "manager/resolve_config.h"
#include "splitter/offload_options.h"
#include "splitter/slices.h"
#include "splitter/weight_blocks.h"

namespace lamina {
namespace {

struct CommandOptions {
  std::string cluster;
  OffloadLoad load;
  std::vector<double> slower = {25, 50, 100};  // objectives, in % over a step without offloading
  bool json = false;
};

// As many requests have to keep the objective for a schedule to count as keeping it.
constexpr double kShareWithin = 0.99;

// A schedule and what came of it.
struct ScheduleRun {
  std::string name;
  OffloadFigures figures;
};

class OffloadComparison {
 public:
  static Result<OffloadComparison> Load(const CommandOptions& options) {
    OffloadComparison comparison(options);
    ClusterConfig& config = comparison.config_;
    LAMINA_ASSIGN_OR_RETURN(config, ClusterConfig::Load(options.cluster));
    LAMINA_ASSIGN_OR_RETURN(comparison.model_, config.LoadModel());
    config.standbys.clear();
    LAMINA_RETURN_IF_ERROR(ResolveConfig(config, comparison.model_).WithContext(options.cluster));
    const auto node = std::ranges::find_if(
        config.nodes, [](const NodeConfig& each) { return each.offload.is_auto; });
    if (node == config.nodes.end() || config.nodes.size() != 1 || node->device != "cpu" ||
        node->offload.gb_per_s == 0) {
      return InvalidArgument(options.cluster +
                             ": expected one compute node on the CPU, with offload: {interval: "
                             "auto, gb_per_s: ...}, whose disk has a known speed");
    }
    if (options.load.num_requests > config.max_num_seqs) {
      return InvalidArgument(
          fmt::format("--requests {}: the cluster serves {} sequences at a time "
                      "(limits.max_num_seqs)",
                      options.load.num_requests, config.max_num_seqs));
    }
    config.secret_file.clear();
    config.tls = {};
    LAMINA_ASSIGN_OR_RETURN(Graph graph, TraceModel(comparison.model_));
    LAMINA_ASSIGN_OR_RETURN(comparison.sliced_, SplitGraph(std::move(graph)));
    const int num_slices = static_cast<int>(comparison.sliced_.slices.size());
    comparison.block_bytes_ =
        BlockBytes(comparison.sliced_, {0, num_slices}, comparison.model_.dtype);
    return comparison;
  }

  Status Run() {
    LAMINA_RETURN_IF_ERROR(RunFixed());
    const double alone = fixed_.front().figures.TpotPercentile(0.5);
    for (const double slower : options_.slower)
      LAMINA_RETURN_IF_ERROR(RunObjective(slower, alone * (1 + slower / 100)));
    return OkStatus();
  }

 private:
  explicit OffloadComparison(const CommandOptions& options) : options_(options) {}

  static int64_t AllBytes(const std::vector<int64_t>& blocks) {
    return std::accumulate(blocks.begin(), blocks.end(), int64_t{0});
  }

  int64_t BytesOutsideOf(int interval) const {
    const std::vector<bool> outside =
        OutsideByInterval(static_cast<int>(block_bytes_.size()), interval);
    int64_t bytes = 0;
    for (size_t i = 0; i < outside.size(); ++i) bytes += outside[i] ? block_bytes_[i] : 0;
    return bytes;
  }

  // The same nodes for all intervals.
  Status RunFixed() {
    LAMINA_ASSIGN_OR_RETURN(daemons_, LocalCluster::CreateFor(config_));
    std::vector<int> intervals = config_.step_profile->intervals();
    std::ranges::reverse(intervals);
    if (intervals.front() != 0) return InvalidArgument("the record has no times for interval 0");
    if (!options_.json) {
      std::cout << fmt::format(
          "{} requests of {} + {} tokens; {} slices, {:.2f} GB; {} GB/s\n\n{:<12} {:>12} {:>10} "
          "{:>10} {:>10}\n",
          options_.load.num_requests, options_.load.input_tokens, options_.load.output_tokens,
          block_bytes_.size(), 1e-9 * static_cast<double>(AllBytes(block_bytes_)),
          config_.nodes[0].offload.gb_per_s, "schedule", "MB outside", "p50 TPOT", "p99 TPOT",
          "tokens/s");
    }
    for (const int interval : intervals) {
      const std::string name = interval == 0 ? "none" : fmt::format("interval {}", interval);
      LAMINA_ASSIGN_OR_RETURN(OffloadFigures figures, Serve(interval, {}));
      Print({name, figures});
      fixed_.push_back({name, std::move(figures)});
    }
    LAMINA_ASSIGN_OR_RETURN(OffloadFigures figures, ServeStatic({.interval = 1, .buffers = 2}));
    deepspeed_ = {"deepspeed", std::move(figures)};
    Print(deepspeed_);
    return OkStatus();
  }

  Result<OffloadFigures> Serve(std::optional<int> interval, Clock::duration tpot) const {
    return ServeOffloaded(config_, model_, options_.load, interval, tpot,
                          [this](int of) { return BytesOutsideOf(of); });
  }

  Status RunObjective(double slower, double tpot_s) {
    if (!options_.json) {
      std::cout << fmt::format("\nTPOT of {:.1f} ms (+{:.0f} %)\n", 1e3 * tpot_s, slower)
                << std::flush;
    }
    const ScheduleRun* best = &fixed_.front();
    for (const ScheduleRun& run : fixed_) {
      if (run.figures.ShareWithin(tpot_s) >= kShareWithin &&
          run.figures.bytes_outside > best->figures.bytes_outside)
        best = &run;
    }
    LAMINA_ASSIGN_OR_RETURN(const OffloadFigures chosen, Serve({}, FromSeconds(tpot_s)));
    Report("best fixed, " + best->name, best->figures, slower, tpot_s, *best);
    Report("chosen", chosen, slower, tpot_s, *best);
    Report("deepspeed", deepspeed_.figures, slower, tpot_s, *best);
    const double portion = FlexgenPortion(slower);
    LAMINA_ASSIGN_OR_RETURN(const OffloadFigures flexgen,
                            ServeStatic({.interval = 1, .portion = portion, .buffers = 2}));
    Report(fmt::format("flexgen, {:.0f} %", 100 * portion), flexgen, slower, tpot_s, *best);
    return OkStatus();
  }

  // FlexGen's portion of every slice, by what the machine's peaks say that a step takes (Select-N,
  // section 3.2).
  double FlexgenPortion(double slower) const {
    WorkerTeam team(0);
    MachineLimits limits(team);
    limits.Measure();
    const int64_t rows = options_.load.num_requests;
    const double peak_s = StepSeconds(limits.device(), sliced_, model_.dtype, rows, rows);
    const double bytes = peak_s * (1 + slower / 100) * 1e9 * config_.nodes[0].offload.gb_per_s;
    return std::min(1.0, bytes / static_cast<double>(AllBytes(block_bytes_)));
  }

  // On nodes of its own, whose schedule is fixed.
  Result<OffloadFigures> ServeStatic(OffloadOptions offload) const {
    ClusterConfig config = config_;
    config.step_profile = nullptr;
    offload.folder = config_.nodes[0].offload.folder;
    offload.gb_per_s = config_.nodes[0].offload.gb_per_s;
    config.nodes[0].offload = offload;
    const int num_slices = static_cast<int>(block_bytes_.size());
    const int64_t outside =
        AllBytes(BlockBytes(sliced_, {0, num_slices}, model_.dtype, offload.portion));
    LAMINA_ASSIGN_OR_RETURN(const std::unique_ptr<LocalCluster> daemons,
                            LocalCluster::CreateFor(config));
    return ServeOffloaded(config, model_, options_.load, 0, {}, [outside](int) { return outside; });
  }

  void Print(const ScheduleRun& run) const {
    if (options_.json) return;
    const OffloadFigures& figures = run.figures;
    std::cout << fmt::format("{:<12} {:>12.0f} {:>10.1f} {:>10.1f} {:>10.1f}\n", run.name,
                             1e-6 * figures.bytes_outside, 1e3 * figures.TpotPercentile(0.5),
                             1e3 * figures.TpotPercentile(0.99), figures.tokens_per_s)
              << std::flush;
  }

  void Report(const std::string& schedule, const OffloadFigures& figures, double slower,
              double tpot_s, const ScheduleRun& best) const {
    const double best_bytes = best.figures.bytes_outside;
    const double share = best_bytes > 0 ? figures.bytes_outside / best_bytes : 1;
    if (!options_.json) {
      std::cout
          << fmt::format(
                 "  {:<24} {:>6.0f} MB outside, {:>4.0f} % of the best; p99 {:>7.1f} ms, {:>5.1f} "
                 "% within\n",
                 schedule, 1e-6 * figures.bytes_outside, 100 * share,
                 1e3 * figures.TpotPercentile(0.99), 100 * figures.ShareWithin(tpot_s))
          << std::flush;
      return;
    }
    Measurement m;
    m.name = "offload";
    m.sizes = {{"schedule", schedule},
               {"slower_percent", slower},
               {"requests", options_.load.num_requests},
               {"gb_per_s", config_.nodes[0].offload.gb_per_s}};
    m.value = 1e-6 * figures.bytes_outside;
    m.unit = "MB outside";
    m.p99 = 1e3 * figures.TpotPercentile(0.99);
    m.p99_of = "ms per token";
    m.reference = "best fixed interval that keeps the objective";
    m.reference_value = 1e-6 * best_bytes;
    m.ratio = share;
    m.details = {{"objective_ms", 1e3 * tpot_s},
                 {"share_within", figures.ShareWithin(tpot_s)},
                 {"tokens_per_s", figures.tokens_per_s}};
    std::cout << ToJsonLine(m) << '\n' << std::flush;
  }

  const CommandOptions options_;
  ClusterConfig config_;
  ModelConfig model_;
  SlicedModel sliced_;
  std::vector<int64_t> block_bytes_;
  std::unique_ptr<LocalCluster> daemons_;
  std::vector<ScheduleRun> fixed_;  // none first, then by what lies outside
  ScheduleRun deepspeed_;
};

}  // namespace

void RegisterOffload(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "offload",
      "How much of the weights may lie outside of memory while requests keep a TPOT objective: by "
      "the choice of `lamina serve`, by every fixed interval, and by the schedules of DeepSpeed "
      "and "
      "FlexGen");
  auto options = std::make_shared<CommandOptions>();
  command
      ->add_option("cluster", options->cluster,
                   "cluster YAML with one compute node, whose offload.interval is auto; its record "
                   "has to be there (`lamina bench record`)")
      ->required();
  command->add_option("--requests", options->load.num_requests, "requests, which come at once")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  command->add_option("--input-len", options->load.input_tokens, "tokens of each prompt")
      ->transform(SizeAsNumber())
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--output-len", options->load.output_tokens, "tokens of each answer")
      ->transform(SizeAsNumber())
      ->check(CLI::Range(2, 1 << 20))
      ->capture_default_str();
  command
      ->add_option("--slower", options->slower,
                   "the objectives, in % over the TPOT with all weights in memory")
      ->delimiter(',')
      ->check(NumberIn(0, 1e6))
      ->capture_default_str();
  command->add_flag("--json", options->json, "a JSON line for each schedule and objective");
  command->footer("Example:\n  lamina bench offload cluster.yaml --requests 64 --slower 25,50,100");
  OnRun(*command, "lamina bench offload", [options]() -> Status {
    LAMINA_ASSIGN_OR_RETURN(OffloadComparison comparison, OffloadComparison::Load(*options));
    return comparison.Run();
  });
}

}  // namespace lamina
