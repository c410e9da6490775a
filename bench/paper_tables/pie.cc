// Pie: layers of the KV cache in host memory, on a GH200.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "bench/paper_tables/paper_tables.h"
#include "bench/paper_tables/pie_runs.h"
#include "cost/network_cost.h"
#include "model/model_config.h"
#include "plan/offloaded_step.h"
#include "plan/workload/length_distribution.h"
#include "splitter/slices.h"

namespace lamina {
namespace {

using Rows = std::vector<Comparison>;

constexpr char kRun[] = "simulated", kReckoned[] = "reckoned", kCatalog[] = "device catalog",
               kRing[] = "the ring in virtual time";
constexpr PieSetup kSmallShareGpt = {"opt-13b", "sharegpt"},
                   kLargeShareGpt = {"opt-30b", "sharegpt"}, kLargeAlpaca = {"opt-30b", "alpaca"},
                   kLlamaAlpaca = {"llama-13b", "alpaca"};

KvPolicy Fixed(double expansion) { return {.expansion = expansion}; }
KvPolicy Baseline(const std::string& text) { return {.baseline = text}; }

std::string Name(const PieSetup& setup) {
  const std::string model = setup.model, lengths = setup.lengths;
  return std::string(model == "opt-13b"   ? "OPT-13B"
                     : model == "opt-30b" ? "OPT-30B"
                                          : "LLaMA-13B") +
         (lengths == "alpaca" ? ", Alpaca" : ", ShareGPT") + fmt::format(", {:g} GB", setup.kv_gb);
}

// What is the most of it, over all rows: the paper's "up to".
struct UpTo {
  double gain = 1, latency = 1;
};

// Figure 6 and 9b.
Status AddGains(PieRuns& runs, Rows& rows) {
  const std::pair<PieSetup, double> gains[] = {
      {kSmallShareGpt, 1.54}, {kLargeShareGpt, 1.86}, {kLargeAlpaca, 1.58}, {kLlamaAlpaca, 1.27}};
  for (const auto& [setup, paper] : gains) {
    LAMINA_ASSIGN_OR_RETURN(const PieRuns::Best best, runs.BestExpansion(setup));
    rows.push_back({Name(setup) + ": best expansion over none", Figure::One(paper),
                    Figure::One(best.gain), "x", kRun});
    LAMINA_ASSIGN_OR_RETURN(const double adaptive, runs.Gain(setup, Adaptive()));
    rows.push_back({"the same: adaptive over the best fixed expansion",
                    {0.98, 1.0},
                    Figure::One(adaptive / best.gain),
                    "x",
                    kRun});
    if (&setup != &gains[0].first) continue;
    rows.push_back({"the same: best expansion", Figure::One(2.08), Figure::One(best.expansion), "",
                    kRun, "of those that were tried: 1.2, 1.4, ... 2.2, 2.6, 3.0, 3.4"});
  }
  PieSetup seven = kSmallShareGpt;
  seven.kv_gb = 7;
  LAMINA_ASSIGN_OR_RETURN(const PieRuns::Best best, runs.BestExpansion(seven));
  rows.push_back(
      {Name(seven) + ": best expansion", {1.4, 1.6}, Figure::One(best.expansion), "", kRun});
  return OkStatus();
}

// What else can be done where memory is short. The paper has figures of recomputation and FlexGen
// only.
Status AddBaselines(PieRuns& runs, Rows& rows) {
  LAMINA_ASSIGN_OR_RETURN(const PieRuns::Best best, runs.BestExpansion(kSmallShareGpt));
  const struct {
    const char *what, *remark;
    KvPolicy policy;
  } policies[] = {
      {"requests swapped, each copied as a whole",
       "as if a request's K and V were one piece: the most that swapping can do", Baseline("swap")},
      {"requests swapped in pages of 16 tokens",
       "a page's K or V of a layer has 164 kB, and reaches 16 % of the link's rate",
       Baseline("swap:16")},
      {"the last layers read in place",
       "only tokens that are there cross the link, and nothing is "
       "hidden",
       Baseline(fmt::format("tail:{}", best.expansion))},
      {"the last layers copied in and back",
       "as whole layers, the next one ahead",
       {.expansion = best.expansion, .tail_of_layers = 40}},
      {"a part of each layer, when it is due", "",
       Baseline(fmt::format("static:{}", best.expansion))},
      {"a part of each layer, one layer ahead", "",
       Baseline(fmt::format("static-ahead:{}", best.expansion))},
      {"layers in turn (Pie)", "", Fixed(best.expansion)},
      {"the same, new K and V written through",
       "not in the paper: layers that go are not copied; what comes is the limit all the same",
       {.expansion = best.expansion, .is_write_through = true}},
  };
  for (const auto& [what, remark, policy] : policies) {
    LAMINA_ASSIGN_OR_RETURN(const double gain, runs.Gain(kSmallShareGpt, policy));
    rows.push_back({fmt::format("{}: {}, over recomputation", Name(kSmallShareGpt), what),
                    {},
                    Figure::One(gain),
                    "x",
                    kRun,
                    remark});
  }
  return OkStatus();
}

// Figure 7: more and more memory at a rate that 12 GB just serve.
Status AddSizes(PieRuns& runs, Rows& rows, UpTo& up_to) {
  const std::pair<PieSetup, double> sets[] = {
      {{.model = "opt-13b", .lengths = "alpaca", .num_requests = 600}, 1.5}, {kSmallShareGpt, 1.9}};
  for (const auto& [set, paper] : sets) {
    PieSetup setup = set;
    setup.kv_gb = 12;
    LAMINA_ASSIGN_OR_RETURN(const PieFigures most, runs.Run(setup));
    setup.request_rate = 0.9 * most.requests_per_s;
    double largest = 0;
    for (const double kv_gb : {3.0, 6.0, 12.0}) {
      setup.kv_gb = kv_gb;
      LAMINA_ASSIGN_OR_RETURN(const PieFigures none, runs.Run(setup));
      LAMINA_ASSIGN_OR_RETURN(const PieFigures pie, runs.Run(setup, Adaptive()));
      largest = std::max(largest, pie.tokens_per_s / none.tokens_per_s);
      up_to.latency = std::max(up_to.latency, none.per_token_s / pie.per_token_s);
      if (kv_gb < 12) continue;
      rows.push_back({Name(setup) + ": adaptive over none", Figure::One(1),
                      Figure::One(pie.tokens_per_s / none.tokens_per_s), "x", kRun,
                      fmt::format("{:.1f} requests/s", setup.request_rate)});
    }
    setup.kv_gb = 3;
    rows.push_back({fmt::format("{} to 12: adaptive over none, at most", Name(setup)),
                    Figure::One(paper), Figure::One(largest), "x", kRun,
                    "at the same rate, 0.9 of what 12 GB serve while many wait; the paper's "
                    "model and rate are not said"});
    up_to.gain = std::max(up_to.gain, largest);
  }
  return OkStatus();
}

// Figure 8: rates.
Status AddRates(PieRuns& runs, Rows& rows, UpTo& up_to) {
  const struct {
    PieSetup setup;
    Figure saturated;
    double no_effect_below;
    std::vector<double> rates;
  } sets[] = {{{.model = "opt-30b", .lengths = "alpaca", .num_requests = 600},
               {1.2, 1.6},
               15,
               {5, 10, 15, 20, 40}},
              {kLargeShareGpt, {1.6, 1.9}, 3, {0.5, 1, 2, 3, 6}}};
  for (const auto& [set, saturated, no_effect_below, rates] : sets) {
    PieSetup setup = set;
    // The largest rate at which there is no gain of 5 %; and gains where there is one.
    double idle = 0;
    Figure gains;
    for (const double rate : rates) {
      setup.request_rate = rate;
      LAMINA_ASSIGN_OR_RETURN(const double gain, runs.Gain(setup, Adaptive()));
      if (gain > 1.05) {
        gains.Include(gain);
      } else if (gains.is_none()) {
        idle = rate;
      }
      up_to.gain = std::max(up_to.gain, gain);
    }
    rows.push_back(
        {Name(setup) + ": no gain up to", Figure::One(no_effect_below), Figure::One(idle),
         "requests/s", kRun,
         fmt::format("less than 5 %, of {:g} to {:g} requests/s", rates.front(), rates.back())});
    rows.push_back(
        {Name(setup) + ": adaptive over none at higher rates", saturated, gains, "x", kRun});
  }
  return OkStatus();
}

// By how many requests find room at a time, half of whose answer is there on average, and by what a
// token takes at least, which is to read all weights once.
Status AddRateBound(const PaperTablesOptions& options, Rows& rows) {
  const PieSetup& setup = kLargeShareGpt;
  LAMINA_ASSIGN_OR_RETURN(const DeviceCatalog catalog, DeviceCatalog::Load(options.catalog));
  LAMINA_ASSIGN_OR_RETURN(const DeviceSpec device, catalog.Find("GH200"));
  LAMINA_ASSIGN_OR_RETURN(const ModelConfig model,
                          ModelConfig::Load(options.models + "/" + setup.model));
  LAMINA_ASSIGN_OR_RETURN(const Graph graph, TraceModel(model));
  LAMINA_ASSIGN_OR_RETURN(const PublishedLengths lengths, FindPublishedLengths(setup.lengths));
  const AttentionHeads heads = {model.num_heads, model.num_kv_heads, model.head_dim, DType::kF16};
  const double tokens =
      setup.kv_gb * 1e9 / static_cast<double>(KvBytesPerToken(heads, model.num_layers));
  const double held = lengths.input.mean() + lengths.output.mean() / 2;
  const double token_s =
      static_cast<double>(WeightBytes(graph, DType::kF16)) / device.reached_bytes_per_s();
  rows.push_back({Name(setup) + ": rate that can be served without expansion, at most",
                  Figure::One(3), Figure::One(tokens / held / (lengths.output.mean() * token_s)),
                  "requests/s", "bound",
                  fmt::format("{:.0f} tokens find room, and a token takes {:.1f} ms or more; the "
                              "paper's sees no effect of an expansion below its rate",
                              tokens, 1e3 * token_s)});
  return OkStatus();
}

// Figure 9a, where other copies take half of the link while the requests are served.
Status AddHalfLink(PieRuns& runs, Rows& rows) {
  constexpr double kFrom = 20, kUncounted = 5, kCounted = 35;
  KvPolicy half;
  half.half_link_from_s = kFrom;
  half.counted_s = kCounted;
  half.uncounted_s = kUncounted;
  for (const PieSetup& setup : {kSmallShareGpt, kLargeShareGpt}) {
    LAMINA_ASSIGN_OR_RETURN(const PieRuns::Best best, runs.BestExpansion(setup, half));
    KvPolicy adaptive = half;
    adaptive.is_adaptive = true;
    adaptive.expansion = Adaptive().expansion;
    LAMINA_ASSIGN_OR_RETURN(const PieFigures none, runs.Run(setup, half));
    LAMINA_ASSIGN_OR_RETURN(const PieFigures figures, runs.Run(setup, adaptive));
    rows.push_back(
        {Name(setup) + ", half of the link taken: adaptive over the best fixed expansion",
         {0.98, 1.0},
         Figure::One(figures.tokens_per_s / none.tokens_per_s / best.gain),
         "x",
         kRun,
         fmt::format("from {:g} s on, counted from {:g} to {:g} s; best then, of up to 2: {:g}",
                     kFrom, kFrom + kUncounted, kFrom + kCounted, best.expansion)});
  }
  return OkStatus();
}

// Figure 9c.
Status AddLatencies(PieRuns& runs, Rows& rows) {
  std::string between, waiting;
  double before = 0, twice = 0;
  for (const double expansion : {1.0, 1.4, 1.8, 2.0, 2.2, 3.0}) {
    LAMINA_ASSIGN_OR_RETURN(const PieFigures figures, runs.Run(kSmallShareGpt, Fixed(expansion)));
    between += fmt::format("{}{:.1f}", between.empty() ? "" : ", ", 1e3 * figures.step_s);
    waiting += fmt::format("{}{:.0f}", waiting.empty() ? "" : ", ", 1e3 * figures.queueing_s());
    if (expansion == 1) before = figures.step_s;
    if (expansion == 2) twice = figures.step_s;
  }
  const std::string name = Name(kSmallShareGpt);
  rows.push_back({name + ": ms between tokens, expansion 1, 1.4, 1.8, 2, 2.2, 3",
                  {},
                  {},
                  "",
                  kRun,
                  "medians",
                  "about the same to 2.0, more at 2.2",
                  between});
  rows.push_back({"the same: ms of waiting by token",
                  {},
                  {},
                  "",
                  kRun,
                  "all requests come at once",
                  "less and less to 2.0, more at 2.2",
                  waiting});
  rows.push_back({"the same: time between tokens, 2.0 over 1.0", Figure::One(1),
                  Figure::One(twice / before), "x", kRun,
                  "more sequences take longer; and copies begin when a layer does, so that they "
                  "take whole layers' times, and at 2.0 they no longer fit"});
  return OkStatus();
}

// Figure 10. FlexGen's placement is the best of several here, in place of its cost model's; and of
// two FlexGens one pads no request and has all weights in memory.
Status AddFlexgen(PieRuns& runs, Rows& rows) {
  const std::pair<PieSetup, double> sets[] = {{kLargeAlpaca, 7.8}, {kLargeShareGpt, 9.4}};
  for (const auto& [set, paper] : sets) {
    LAMINA_ASSIGN_OR_RETURN(const PieFigures pie, runs.Run(set, Adaptive()));
    Figure slower, longer;
    for (const bool is_worse : {false, true}) {
      PieSetup setup = set;
      if (is_worse) setup.num_requests = 60;
      PieFigures best;
      for (const char* const expansion : {is_worse ? "16" : "1.5", "4"}) {
        KvPolicy policy = Baseline(std::string("static:") + expansion);
        policy.is_padded = policy.weights_outside = is_worse;
        LAMINA_ASSIGN_OR_RETURN(const PieFigures figures, runs.Run(setup, policy));
        if (figures.tokens_per_s > best.tokens_per_s) best = figures;
      }
      slower.Include(pie.tokens_per_s / best.tokens_per_s);
      longer.Include(best.per_token_s / pie.per_token_s);
    }
    rows.push_back({Name(set) + ": adaptive over FlexGen", Figure::One(paper), slower, "x", kRun,
                    "copies when they are due; from weights in memory and no request padded, to "
                    "weights outside and 60 requests padded to the longest of them"});
    rows.push_back({"the same: FlexGen's time by token over ours, at most", Figure::One(60),
                    Figure::One(longer.to), "x", kRun, "all requests come at once here"});
  }
  LAMINA_ASSIGN_OR_RETURN(const PieRuns::Best best, runs.BestExpansion(kLargeShareGpt));
  rows.push_back({Name(kLargeShareGpt) + ": KV in host memory, at most", Figure::One(15),
                  Figure::One(kLargeShareGpt.kv_gb * (best.expansion - 1)), "GB", kReckoned,
                  fmt::format("expansion {:g}", best.expansion)});
  return OkStatus();
}

// Memory that serves as much without expansion.
Status AddMemory(PieRuns& runs, Rows& rows) {
  LAMINA_ASSIGN_OR_RETURN(const PieFigures pie, runs.Run(kSmallShareGpt, Adaptive()));
  PieSetup setup = kSmallShareGpt;
  double last = 0;
  for (double kv_gb = 4; kv_gb <= 8; kv_gb += 0.5) {
    setup.kv_gb = kv_gb;
    LAMINA_ASSIGN_OR_RETURN(const PieFigures none, runs.Run(setup));
    if (none.tokens_per_s >= pie.tokens_per_s) break;
    last = kv_gb;
  }
  rows.push_back({Name(kSmallShareGpt) + ": memory that serves less without expansion, over 3 GB",
                  Figure::One(1.67), Figure::One(last / 3), "x", kRun,
                  "in steps of 0.5 GB, all requests at once"});
  return OkStatus();
}

Status AddArithmetic(const PaperTablesOptions& options, Rows& rows) {
  LAMINA_ASSIGN_OR_RETURN(const DeviceCatalog catalog, DeviceCatalog::Load(options.catalog));
  LAMINA_ASSIGN_OR_RETURN(const DeviceSpec device, catalog.Find("GH200"));
  rows.push_back({"copies of 16 MB: share of the link's rate", Figure::One(0.95),
                  Figure::One(device.HostLinkShare(16e6)), "", kCatalog,
                  fmt::format("{:g} GB/s from the host and {:g} to it, as measured there",
                              device.host_link_gb_per_s, device.host_link_back_gb_per_s)});
  LAMINA_ASSIGN_OR_RETURN(const ModelConfig opt, ModelConfig::Load(options.models + "/opt-13b"));
  const AttentionHeads heads = {opt.num_heads, opt.num_kv_heads, opt.head_dim, DType::kF16};
  const auto token = static_cast<double>(KvBytesPerToken(heads, opt.num_layers));
  rows.push_back(
      {"OPT-13B: KV of a token", Figure::One(800), Figure::One(token / 1024), "KiB", kReckoned});
  rows.push_back({"OPT-13B: KV of 2048 tokens", Figure::One(1.6),
                  Figure::One(2048 * token / (1 << 30)), "GiB", kReckoned});
  // Each layer takes twice as long to come or to go as to compute.
  LAMINA_ASSIGN_OR_RETURN(const int places, FewestPlacesWithoutWaits(9, std::chrono::seconds(1),
                                                                     std::chrono::seconds(2)));
  rows.push_back({"Figure 4: nine layers without waiting, expansion", Figure::One(1.28),
                  Figure::One(9.0 / places), "x", kRing,
                  fmt::format("{} layers in memory, with those on their way", places)});
  return OkStatus();
}

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
  PieRuns runs(options);
  UpTo up_to;
  Rows& rows = section.rows;
  LAMINA_RETURN_IF_ERROR(AddGains(runs, rows));
  LAMINA_RETURN_IF_ERROR(AddHalfLink(runs, rows));
  LAMINA_RETURN_IF_ERROR(AddBaselines(runs, rows));
  LAMINA_RETURN_IF_ERROR(AddSizes(runs, rows, up_to));
  LAMINA_RETURN_IF_ERROR(AddRates(runs, rows, up_to));
  LAMINA_RETURN_IF_ERROR(AddRateBound(options, rows));
  LAMINA_RETURN_IF_ERROR(AddLatencies(runs, rows));
  LAMINA_RETURN_IF_ERROR(AddFlexgen(runs, rows));
  PieSetup slow = kSmallShareGpt;
  slow.request_rate = 1;
  LAMINA_ASSIGN_OR_RETURN(const double twice, runs.Gain(slow, Fixed(2)));
  rows.push_back({Name(slow) + ", 1 request/s: expansion 2 over none", Figure::One(1),
                  Figure::One(twice), "x", kRun});
  rows.push_back({"over recomputation, in all rows with rates: throughput, up to", Figure::One(1.9),
                  Figure::One(up_to.gain), "x", kRun});
  rows.push_back(
      {"the same: time by token, up to", Figure::One(2), Figure::One(up_to.latency), "x", kRun});
  LAMINA_RETURN_IF_ERROR(AddMemory(runs, rows));
  LAMINA_RETURN_IF_ERROR(AddArithmetic(options, rows));
  section.remark =
      "The paper does not say which sizes of the cache its gains of OPT-30B and LLaMA-13B are of, "
      "and "
      "its requests come over time. Here all come at once, so that memory is short from the start.";
  return section;
}

}  // namespace lamina
