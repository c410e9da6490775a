// Pie: layers of the KV cache in host memory, on a GH200.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "bench/paper_tables/paper_tables.h"
#include "plan/simulate/cluster_model.h"
#include "plan/simulate/simulation.h"
#include "plan/workload/workload.h"

namespace lamina {
namespace {

// A model that keeps its KV cache itself, and what it is asked for.
struct Setup {
  const char *model, *lengths;
  int kv_gb = 3;
  double request_rate = 0;  // per second; 0: all requests come at once
};

constexpr double kAdaptive = 0;
constexpr std::array kExpansions = {1.2, 1.4, 1.6, 1.8, 2.0, 2.2, 2.6, 3.0, 3.4};

class PieRuns {
 public:
  explicit PieRuns(const PaperTablesOptions& options) : options_(options) {}

  // Tokens per second; 1: no layer lies outside; kAdaptive: as many as requests need.
  Result<double> Throughput(const Setup& setup, double expansion) const {
    ClusterConfig config;
    NodeConfig node;
    node.name = "c0";
    node.role = NodeRole::kCompute;
    node.port = 7000;
    node.device = "modelled:GH200";
    node.memory_bytes = int64_t{setup.kv_gb} * 1'000'000'000;
    if (expansion > 1) node.kv_offload.expansion = expansion;
    if (expansion == kAdaptive) {
      node.kv_offload.is_auto = true;
      node.kv_offload.expansion = kExpansions.back();
    }
    config.nodes = {node};
    config.device_catalog = options_.catalog;
    config.model_path = options_.models + "/" + setup.model;
    config.max_num_seqs = 256;
    config.max_num_batched_tokens = 2048;
    config.max_num_queued_reqs = 1 << 16;
    LAMINA_ASSIGN_OR_RETURN(const ClusterModel cluster, ClusterModel::Of(std::move(config), {}));
    WorkloadOptions workload;
    workload.dataset_name = "random";
    workload.lengths_of = setup.lengths;
    workload.num_prompts = 300;
    workload.max_total_len = 2048;
    if (setup.request_rate > 0) workload.request_rate = fmt::format("{}", setup.request_rate);
    LAMINA_ASSIGN_OR_RETURN(const RequestTrace requests, MakeWorkload(workload, EstimatedTokens()));
    LAMINA_ASSIGN_OR_RETURN(const SimulationResult result, Simulate(cluster, requests, {}));
    int64_t tokens = 0;
    for (const RequestTimes& request : result.requests) tokens += request.output_tokens;
    return static_cast<double>(tokens) /
           std::chrono::duration<double>(result.end.time_since_epoch()).count();
  }

  struct Best {
    double gain = 1, expansion = 1;  // over none
  };
  Result<Best> BestExpansion(const Setup& setup) const {
    Best best;
    LAMINA_ASSIGN_OR_RETURN(const double none, Throughput(setup, 1));
    for (const double expansion : kExpansions) {
      LAMINA_ASSIGN_OR_RETURN(const double rate, Throughput(setup, expansion));
      if (rate / none > best.gain) best = {rate / none, expansion};
    }
    return best;
  }

 private:
  const PaperTablesOptions& options_;
};

}  // namespace

Result<Section> Pie(const PaperTablesOptions& options) {
  Section section{
      "Pie: layers of the KV cache in host memory",
      "A GH200, 419 GB/s from the host and 371 to it. Requests with the published mean lengths of "
      "ShareGPT and Alpaca, 300 at once where nothing else is said, in simulation: with the "
      "scheduler that serves, which preempts and computes again. One layer at a time comes and "
      "one goes, as a whole, in the paper's order; expansion is the usable one.",
      {},
      ""};
  const PieRuns runs(options);
  const struct {
    const char* what;
    Setup setup;
    double paper;
  } gains[] = {
      {"OPT-13B, ShareGPT, 3 GB: best expansion over none", {"opt-13b", "sharegpt"}, 1.54},
      {"OPT-30B, ShareGPT, 3 GB: best expansion over none", {"opt-30b", "sharegpt"}, 1.86},
      {"OPT-30B, Alpaca, 3 GB: best expansion over none", {"opt-30b", "alpaca"}, 1.58},
      {"LLaMA-13B, Alpaca, 3 GB: best expansion over none", {"llama-13b", "alpaca"}, 1.27},
  };
  for (const auto& [what, setup, paper] : gains) {
    LAMINA_ASSIGN_OR_RETURN(const PieRuns::Best best, runs.BestExpansion(setup));
    section.rows.push_back({what, Figure::One(paper), Figure::One(best.gain), "x"});
    LAMINA_ASSIGN_OR_RETURN(const double adaptive, runs.Throughput(setup, kAdaptive));
    LAMINA_ASSIGN_OR_RETURN(const double fixed, runs.Throughput(setup, best.expansion));
    section.rows.push_back({"the same: adaptive over the best fixed expansion",
                            {0.98, 1.0},
                            Figure::One(adaptive / fixed),
                            "x"});
    if (&setup == &gains[0].setup) {
      section.rows.push_back(
          {"the same: best expansion", Figure::One(2.08), Figure::One(best.expansion), ""});
    }
  }
  LAMINA_ASSIGN_OR_RETURN(const PieRuns::Best seven,
                          runs.BestExpansion({"opt-13b", "sharegpt", 7}));
  section.rows.push_back(
      {"OPT-13B, ShareGPT, 7 GB: best expansion", {1.4, 1.6}, Figure::One(seven.expansion), ""});
  const Setup slow{"opt-13b", "sharegpt", 3, 1};
  LAMINA_ASSIGN_OR_RETURN(const double none, runs.Throughput(slow, 1));
  LAMINA_ASSIGN_OR_RETURN(const double twice, runs.Throughput(slow, 2));
  section.rows.push_back({"OPT-13B, ShareGPT, 3 GB, 1 request/s: expansion 2 over none",
                          Figure::One(1), Figure::One(twice / none), "x"});
  section.remark =
      "The paper does not say which sizes of the cache its gains of OPT-30B and LLaMA-13B are of, "
      "and "
      "its requests come over time. Here all come at once, so that memory is short from the start.";
  return section;
}

}  // namespace lamina
