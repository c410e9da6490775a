#include "bench/paper_tables/pie_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "plan/simulate/cluster_model.h"
#include "plan/workload/workload.h"
#include "splitter/offload_options.h"

namespace lamina {
namespace {

constexpr int64_t kLongest = 2048;  // tokens, prompt and answer
constexpr std::array kFixedExpansions = {1.2, 1.4, 1.6, 1.8, 2.0, 2.2, 2.6, 3.0, 3.4};

ClusterConfig ConfigOf(const PaperTablesOptions& options, const PieSetup& setup,
                       const KvPolicy& policy) {
  ClusterConfig config;
  NodeConfig node;
  node.name = "c0";
  node.role = NodeRole::kCompute;
  node.port = 7000;
  node.device = "modelled:GH200";
  node.memory_bytes = static_cast<int64_t>(setup.kv_gb * 1e9);
  if (policy.is_adaptive || (policy.expansion > 1 && policy.tail_of_layers == 0)) {
    node.kv_offload.is_auto = policy.is_adaptive;
    node.kv_offload.expansion = policy.expansion;
  } else if (policy.tail_of_layers > 0) {
    const int n = policy.tail_of_layers;
    node.kv_offload.interval = n;
    node.kv_offload.num_in_group =
        std::min(n, static_cast<int>(n * (1 - 1 / policy.expansion)) + node.kv_offload.buffers);
  }
  if (policy.weights_outside) {
    node.offload.interval = 1;
    node.offload.buffers = 1;
  }
  config.nodes = {node};
  config.device_catalog = options.catalog;
  config.model_path = options.models + "/" + setup.model;
  config.max_num_seqs = 256;
  config.max_num_batched_tokens = 2048;
  config.max_num_queued_reqs = 1 << 16;
  return config;
}

// The longest prompt and the longest answer, for all, as far as the model's length goes.
void Pad(RequestTrace& requests) {
  int64_t input = 0, output = 0;
  for (const TraceRequest& request : requests.requests) {
    input = std::max(input, request.input_tokens);
    output = std::max(output, request.output_tokens);
  }
  for (TraceRequest& request : requests.requests) {
    request.input_tokens = input;
    request.output_tokens = std::min(output, kLongest - input);
  }
}

double InSeconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

// Tokens per second between two times.
double RateWithin(const UsageTimeline& usage, double from_s, double until_s) {
  double tokens = 0, seconds = 0;
  const double piece_s = InSeconds(usage.piece_length());
  for (size_t i = 0; i < usage.pieces().size(); ++i) {
    const double begin = piece_s * static_cast<double>(i);
    if (begin < from_s || begin + piece_s > until_s) continue;
    tokens += usage.pieces()[i].tokens;
    seconds += piece_s;
  }
  return seconds > 0 ? tokens / seconds : 0;
}

}  // namespace

KvPolicy Adaptive() { return {.expansion = kFixedExpansions.back(), .is_adaptive = true}; }

std::string KvPolicy::Key() const {
  return fmt::format("{} {} {} {} {} {} {} {} {} {}", expansion, is_adaptive, tail_of_layers,
                     baseline, weights_outside, is_padded, half_link_from_s, counted_s, uncounted_s,
                     is_write_through);
}

Result<PieFigures> PieRuns::Run(const PieSetup& setup, const KvPolicy& policy) {
  const std::pair key(setup, policy.Key());
  if (const auto found = known_.find(key); found != known_.end()) return found->second;
  LAMINA_ASSIGN_OR_RETURN(const PieFigures figures, RunAnew(setup, policy));
  known_.emplace(key, figures);
  return figures;
}

Result<PieFigures> PieRuns::RunAnew(const PieSetup& setup, const KvPolicy& policy) const {
  ClusterChanges changes;
  changes.kv_write_through = policy.is_write_through;
  if (!policy.baseline.empty()) {
    LAMINA_ASSIGN_OR_RETURN(changes.kv_baseline, KvBaseline::Parse(policy.baseline));
  }
  LAMINA_ASSIGN_OR_RETURN(const ClusterModel cluster,
                          ClusterModel::Of(ConfigOf(options_, setup, policy), changes));
  WorkloadOptions workload;
  workload.dataset_name = "random";
  workload.lengths_of = setup.lengths;
  workload.num_prompts = setup.num_requests;
  workload.max_total_len = kLongest;
  if (setup.request_rate > 0) workload.request_rate = fmt::format("{}", setup.request_rate);
  LAMINA_ASSIGN_OR_RETURN(RequestTrace requests, MakeWorkload(workload, EstimatedTokens()));
  std::vector<int64_t> asked;
  for (const TraceRequest& request : requests.requests) asked.push_back(request.output_tokens);
  if (policy.is_padded) Pad(requests);
  SimulationOptions simulation;
  if (policy.half_link_from_s > 0)
    simulation.changes = {{NodeChange::Kind::kSlowLink, "c0", 2, policy.half_link_from_s}};
  LAMINA_ASSIGN_OR_RETURN(const SimulationResult result, Simulate(cluster, requests, simulation));

  PieFigures figures;
  const double end_s = InSeconds(result.end.time_since_epoch());
  double tokens = 0, per_token = 0, done = 0;
  for (size_t i = 0; i < result.requests.size(); ++i) {
    const RequestTimes& request = result.requests[i];
    if (request.outcome != RequestTimes::Outcome::kDone) continue;
    const auto wanted = static_cast<double>(asked[i]);
    tokens += wanted;
    per_token += request.e2e_s() / wanted;
    done += 1;
  }
  if (done == 0) return OutOfSpace(std::string(setup.model) + ": no request finds room");
  figures.tokens_per_s =
      policy.counted_s > 0 ? RateWithin(result.usage, policy.half_link_from_s + policy.uncounted_s,
                                        policy.half_link_from_s + policy.counted_s)
                           : tokens / end_s;
  figures.requests_per_s = RateWithin(result.usage, 0, end_s / 2) * done / tokens;
  figures.per_token_s = per_token / done;
  figures.step_s = result.token_gaps.PercentileSeconds(0.5);
  figures.num_preemptions = result.num_preemptions;
  return figures;
}

Result<double> PieRuns::Gain(const PieSetup& setup, const KvPolicy& policy) {
  LAMINA_ASSIGN_OR_RETURN(const PieFigures none, Run(setup));
  LAMINA_ASSIGN_OR_RETURN(const PieFigures figures, Run(setup, policy));
  return figures.tokens_per_s / none.tokens_per_s;
}

Result<PieRuns::Best> PieRuns::BestExpansion(const PieSetup& setup, const KvPolicy& circumstances) {
  Best best;
  LAMINA_ASSIGN_OR_RETURN(const PieFigures none, Run(setup, circumstances));
  for (const double expansion : kFixedExpansions) {
    // With half of the link there is less to gain than with all of it.
    if (circumstances.half_link_from_s > 0 && expansion > 2) break;
    KvPolicy policy = circumstances;
    policy.expansion = expansion;
    LAMINA_ASSIGN_OR_RETURN(const PieFigures figures, Run(setup, policy));
    const double gain = figures.tokens_per_s / none.tokens_per_s;
    if (gain > best.gain) best = {gain, expansion};
  }
  return best;
}

}  // namespace lamina
