// Tables and figures of S. Chen et al., Efficient and Economic Large Language Model Inference with Attention Offloading, 2024.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "bench/paper_tables/paper_tables.h"
#include "bench/plan/planner.h"

namespace lamina {
namespace {

constexpr double kGb = 1e9;

double PerGb(const DeviceSpec& device) { return device.price_usd / (static_cast<double>(device.memory_bytes) / kGb); }
double PerBandwidth(const DeviceSpec& device) { return device.price_usd / device.bandwidth_gb_per_s; }

// Sequences that only decode, all at one context.
PlanLoad DecodingAt(double context) {
  PlanLoad load;
  load.output_tokens = 1;
  load.context = context;
  return load;
}

PlanOptions DecodeOnly() {
  PlanOptions options;
  options.prefill = false;
  return options;
}

Result<ModelConfig> LoadModel(const std::string& models, const std::string& name) { return ModelConfig::Load(models + "/" + name); }

}  // namespace

Result<Section> TableOfPrices(const DeviceCatalog& catalog) {
  Section section{
      "Table 1: price of memory and of bandwidth", "Price over capacity and over bandwidth, from the catalog's entries.", {}, ""};
  struct Printed {
    const char* device;
    double per_gb, per_bandwidth;
  };
  constexpr Printed kPrinted[] = {
      {"A100-80G", 219, 9.04}, {"H100", 456, 10.90}, {"RTX3090", 67, 1.71}, {"7900XTX", 42, 1.04}, {"A770", 22, 0.63}};
  std::vector<DeviceSpec> devices;
  for (const Printed& printed : kPrinted) {
    LAMINA_ASSIGN_OR_RETURN(const DeviceSpec device, catalog.Find(printed.device));
    devices.push_back(device);
    section.rows.push_back({printed.device + std::string(", capacity"), Figure::One(printed.per_gb), Figure::One(PerGb(device)), "$/GB"});
    section.rows.push_back(
        {printed.device + std::string(", bandwidth"), Figure::One(printed.per_bandwidth), Figure::One(PerBandwidth(device)), "$/(GB/s)"});
  }
  Figure alpha;
  for (size_t high = 0; high < 2; ++high) {
    for (size_t low = 2; low < devices.size(); ++low) {
      alpha.Include(PerGb(devices[high]) / PerGb(devices[low]));
      alpha.Include(PerBandwidth(devices[high]) / PerBandwidth(devices[low]));
    }
  }
  section.rows.push_back({"alpha: memory for the same money", {3.27, 17.3}, alpha, ""});
  section.remark =
      "The paper divides rounded figures. Its upper end of alpha is the bandwidth of the A770 for the price of an H100's; the capacity "
      "there "
      "is a larger ratio still, 20.9, which ours has in its range.";
  return section;
}

Result<Section> TableOfBandwidths(const DeviceCatalog& catalog, const std::string& models) {
  Section section{
      "Table 3: minimum interconnect bandwidth",
      "4 e d B L bytes of q, k, v and outputs over the time of the linear layers. The paper's formula leaves out the peak FLOP/s; "
      "with it, the MFU that the catalog has for these devices follows from this very table, so this shows that weights, rooflines "
      "and bytes are counted as the paper counts them, and nothing about MFU.",
      {},
      ""};
  struct Line {
    const char *model, *device, *label;
    double printed[4];
  };
  constexpr Line kLines[] = {{"llama-13b", "A100-80G", "LLaMA-13B, A100", {4.90, 8.12, 9.08, 10.06}},
                             {"llama-33b", "2xA100-80G", "LLaMA-33B, 2 x A100", {5.94, 9.31, 11.56, 12.53}},
                             {"llama-65b", "4xA100-80G", "LLaMA-65B, 4 x A100", {7.55, 11.78, 13.92, 15.90}}};
  constexpr int kBatches[] = {128, 256, 512, 1024};
  for (const Line& line : kLines) {
    LAMINA_ASSIGN_OR_RETURN(const ModelConfig model, LoadModel(models, line.model));
    LAMINA_ASSIGN_OR_RETURN(const DeviceSpec device, catalog.Find(line.device));
    LAMINA_ASSIGN_OR_RETURN(const RankModel whole, RankModel::Create(model, 1));
    const double row_bytes = AttentionRowBytes(whole.heads, 2).both() * model.num_layers;
    for (size_t i = 0; i < std::size(kBatches); ++i) {
      const double seconds = StepSeconds(device, whole.sliced, model.dtype, kBatches[i], kBatches[i]);
      section.rows.push_back({fmt::format("{}, batch {}", line.label, kBatches[i]), Figure::One(line.printed[i]),
                              Figure::One(NeededGbPerS(row_bytes * kBatches[i], seconds)), "GB/s"});
    }
  }
  return section;
}

namespace {

// An A100's money in memory devices that give alpha times its capacity and bandwidth.
DeviceSpec MemoryForTheMoney(const DeviceSpec& a100, double alpha, double share) {
  DeviceSpec device = a100;
  device.name = "memory devices";
  device.memory_bytes = static_cast<int64_t>(static_cast<double>(a100.memory_bytes) * alpha * share);
  device.bandwidth_gb_per_s *= alpha * share;
  device.price_usd *= share;
  return device;
}

// The most tokens/s per dollar of a homogeneous cluster of A100s, and of A100s with memory devices at the best ratio.
Result<std::pair<double, double>> BestPerDollar(const ModelConfig& model, const DeviceSpec& a100, double context) {
  constexpr double kAlpha = 3.27;
  const PlanLoad load = DecodingAt(context);
  PlanOptions options = DecodeOnly();
  options.latency_us = 0;  // the paper's estimate has no network
  options.default_nic_gb_per_s = 1e6;
  DeviceSpec compute = a100;
  compute.network_gb_per_s = 0;
  double homogeneous = 0, apart = 0;
  for (const int ranks : {1, 2, 4, 8}) {
    const Result<RankModel> rank_model = RankModel::Create(model, ranks);
    if (!rank_model.ok()) continue;  // its heads cannot be shared by so many
    Result<ComputeSide> side = ComputeSide::Create(compute, *rank_model, options);
    if (!side.ok()) continue;  // it does not fit
    const auto per_dollar = [&](const ClusterShape& shape, const DeviceSpec* memory) {
      const ShapeCost cost(shape, *side, memory, load, options);
      const Schedule best = cost.Best();
      const double price = compute.price_usd * shape.num_compute() + (memory != nullptr ? memory->price_usd : 0);
      return best.rows == 0 ? 0 : cost.TokensPerSecond(best) / price;
    };
    homogeneous = std::max(homogeneous, per_dollar({"A100", 1, ranks, "", 0}, nullptr));
    for (int eighths = 1; eighths <= 64; ++eighths) {
      const DeviceSpec memory = MemoryForTheMoney(compute, kAlpha, eighths / 8.0);
      for (int replicas = 1; replicas <= (ranks > 1 ? 1 : 4); ++replicas)
        apart = std::max(apart, per_dollar({"A100", replicas, ranks, memory.name, 1}, &memory));
    }
  }
  return std::pair(homogeneous, apart);
}

}  // namespace

Result<Section> FigureOfTheory(const DeviceCatalog& catalog, const std::string& models) {
  constexpr double kContext = 512;
  Section section{
      "Figure 1: theoretical throughput per cost at context 512",
      "A100s alone, at the tensor parallelism that is best for them, against A100s with memory devices that give alpha = 3.27 times "
      "the memory for the money, at the ratio that is best for those. No network, as in the paper.",
      {},
      ""};
  LAMINA_ASSIGN_OR_RETURN(const DeviceSpec a100, catalog.Find("A100-80G"));
  Figure ours;
  std::vector<Comparison> by_model;
  for (const char* name : {"llama-13b", "llama-33b", "llama-65b", "llama-3-70b"}) {
    LAMINA_ASSIGN_OR_RETURN(const ModelConfig model, LoadModel(models, name));
    LAMINA_ASSIGN_OR_RETURN(const auto best, BestPerDollar(model, a100, kContext));
    const double gain = best.second / best.first;
    if (std::string(name) != "llama-3-70b") ours.Include(gain);  // grouped heads came after the figure
    by_model.push_back({name, {2.1, 2.8}, Figure::One(gain), "times"});
  }
  section.rows = {{"LLaMA-13B to 65B", {2.1, 2.8}, ours, "times"}};
  section.rows.insert(section.rows.end(), by_model.begin(), by_model.end());
  section.remark =
      "The paper gives neither its models' names nor its curve of MFU for this figure. Ours takes the MFU of Table 3 for one A100, without "
      "what "
      "tensor parallelism costs beyond its all-reduces, and lets the homogeneous cluster fill 90 % of its memory and choose its tensor "
      "parallelism, which makes it strong: with more ranks it has more room for KV. LLaMA-3-70B has grouped heads, an eighth of the KV "
      "cache, "
      "and so little to gain at this context.";
  return section;
}

namespace {

// LLaMA-13B and 33B on A100-40Gs in both roles.
struct OnA100s {
  const char* model;
  int ranks;
  std::vector<int> memory_nodes;
};

struct Ratios {
  Figure batch, throughput, per_cost, rotational, small_latency;
};

// The same sequences in one batch and in two that take turns, as with one compute node rotational pipelining does.
void IncludeRotational(const ShapeCost& cost, Ratios& ratios) {
  for (int64_t sequences = 32; sequences <= cost.max_sequences(); sequences *= 2) {
    const double one = cost.RoundSeconds({1, sequences, false}), two = cost.RoundSeconds({2, sequences / 2, false});
    if (sequences > 128) ratios.rotational.Include(one / two);
    if (sequences == 32) ratios.small_latency.Include(two / one);
  }
}

Status IncludeCase(const OnA100s& a_case, double context, const ModelConfig& model, const DeviceSpec& a100, Ratios& ratios) {
  // Memory at the price of RTX 3090s: 1600 $ for 24 GB, which for 40 GB is also the price of their bandwidth within 1 %.
  constexpr double kComputePrice = 17500, kMemoryPrice = 1600.0 / 24 * 40;
  const PlanLoad load = DecodingAt(context);
  const PlanOptions options = DecodeOnly();
  LAMINA_ASSIGN_OR_RETURN(const RankModel rank_model, RankModel::Create(model, a_case.ranks));
  LAMINA_ASSIGN_OR_RETURN(ComputeSide side, ComputeSide::Create(a100, rank_model, options));
  const ShapeCost alone({a100.name, 1, a_case.ranks, "", 0}, side, nullptr, load, options);
  const Schedule alone_best = alone.Best();
  if (alone_best.rows == 0) return OkStatus();  // not one sequence fits: no ratio
  for (const int memory_nodes : a_case.memory_nodes) {
    const ShapeCost apart({a100.name, 1, a_case.ranks, a100.name, memory_nodes}, side, &a100, load, options);
    const double gain = apart.TokensPerSecond(apart.Best()) / alone.TokensPerSecond(alone_best);
    const double compute = a_case.ranks * kComputePrice;
    ratios.batch.Include(static_cast<double>(apart.max_sequences()) / static_cast<double>(alone.max_sequences()));
    ratios.throughput.Include(gain);
    ratios.per_cost.Include(gain * compute / (compute + memory_nodes * kMemoryPrice));
    IncludeRotational(apart, ratios);
  }
  return OkStatus();
}

}  // namespace

Result<Section> FiguresOfThroughput(const DeviceCatalog& catalog, const std::string& models) {
  Section section{
      "Figures 12, 13 and 17: throughput and throughput per cost",
      "A100-40Gs in both roles, LLaMA-13B on one with three memory nodes (as in Figure 16) and 33B on two with 2, 4 and 8, contexts "
      "512 to 4096, against the same compute devices alone; memory nodes at an RTX 3090's price of memory, compute nodes at that of "
      "an A100-80G. Decoding only.",
      {},
      ""};
  LAMINA_ASSIGN_OR_RETURN(const DeviceSpec a100, catalog.Find("A100-40G"));
  const OnA100s cases[] = {{"llama-13b", 1, {3}}, {"llama-33b", 2, {2, 4, 8}}};
  Ratios ratios;
  for (const OnA100s& a_case : cases) {
    LAMINA_ASSIGN_OR_RETURN(const ModelConfig model, LoadModel(models, a_case.model));
    for (const double context : {512.0, 1024.0, 2048.0, 4096.0}) LAMINA_RETURN_IF_ERROR(IncludeCase(a_case, context, model, a100, ratios));
  }
  section.rows = {{"batch, times vLLM's", {10.7, 64.0}, ratios.batch, "times"},
                  {"throughput", {1.75, 20.5}, ratios.throughput, "times"},
                  {"throughput per cost", {1.48, 12.1}, ratios.per_cost, "times"},
                  {"rotational pipelining, more than 128 sequences", {1.13, 1.63}, ratios.rotational, "times"},
                  {"its latency with 32 sequences", {2, 2}, ratios.small_latency, "times"}};
  section.remark =
      "The paper's figures are measured, and its text does not say how many memory nodes LLaMA-33B had nor at which contexts the ends of "
      "the "
      "ranges lie. The ratio of batches is one of capacities, so it follows from what is left beside the weights: at 90 % of the memory "
      "10.3 GB "
      "for 13B and 7.4 GB for 33B. A ratio of 64 with 33B would take 13 memory nodes, or a baseline with less room: activations and the "
      "fragmentation of vLLM's blocks, which count most where little is left, are not modelled. The paper's largest gains come from there.";
  return section;
}

}  // namespace lamina
