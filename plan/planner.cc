#include "plan/planner.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

namespace lamina {
namespace {

constexpr double kSecondsPerHour = 3600;
constexpr double kMostCopies = 1e6;  // more are a typing error
// Share of what a cluster can give. With less than that asked for, more of any resource gains
// nothing.
constexpr double kBusy = 0.85;
// A smaller gain is within what the model leaves out.
constexpr double kWorthIt = 1.02;
// Numbers of memory nodes that are tried: each one up to 8, then in steps that grow.
constexpr int kMemoryCounts[] = {1,  2,  3,  4,  5,  6,  7,  8,  10, 12, 14,  16,
                                 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128};

const Scale& Unscaled() {
  static const Scale scale;
  return scale;
}

// Everything that shapes share.
struct Context {
  const ModelConfig& config;
  const PlanLoad& load;
  const PlanOptions& options;
  // Keyed by the number of ranks. Numbers that do not divide the model are missing.
  std::map<int, RankModel> models;
};

Status AddModel(Context& context, int num_ranks) {
  Result<RankModel> model = RankModel::Create(context.config, num_ranks);
  if (!model.ok()) return model.status();
  context.models.emplace(num_ranks, std::move(*model));
  return OkStatus();
}

// Fills in what follows from the price of one copy.
void Price(const Context& context, double price_per_hour, Prediction& prediction) {
  const double demand = context.load.requests_per_second * context.load.output_tokens;
  prediction.price_per_hour = price_per_hour * prediction.copies;
  prediction.tokens_per_second = demand > 0 ? demand : prediction.tokens_per_second;
  if (price_per_hour > 0)
    prediction.tokens_per_dollar =
        kSecondsPerHour * prediction.tokens_per_second / prediction.price_per_hour;
}

// The shape, or as many copies of it as the rate needs, before its price. Nothing if no schedule
// keeps the limits.
std::optional<Prediction> DescribeBest(const Context& context, const ShapeCost& cost) {
  const Schedule best = cost.Best();
  if (best.rows == 0) return std::nullopt;
  const double demand = context.load.requests_per_second * context.load.output_tokens;
  if (demand <= 0) return cost.Describe(best);
  const double needed = std::ceil(demand / cost.TokensPerSecond(best));
  // Negated, so that a NaN counts as too many.
  if (!(needed <= kMostCopies)) return std::nullopt;
  const int copies = std::max(1, static_cast<int>(needed));
  // Fewer sequences than the best schedule's carry the mean load, and give a lower latency.
  const Schedule enough = cost.Fewest(demand / copies);
  Prediction prediction = cost.Describe(enough.rows > 0 ? enough : best);
  prediction.copies = copies;
  prediction.admitted_sequences =
      std::max(prediction.admitted_sequences, cost.BestOf(prediction.schedule).sequences());
  prediction.most_tokens_per_second = copies * cost.TokensPerSecond(best);
  return prediction;
}

std::optional<Prediction> Predict(const Context& context, const ClusterShape& shape,
                                  ComputeSide& compute, const DeviceSpec* memory) {
  const ShapeCost cost(shape, compute, memory, context.load, context.options);
  if (cost.max_sequences() == 0) return std::nullopt;
  std::optional<Prediction> prediction = DescribeBest(context, cost);
  if (!prediction) return std::nullopt;
  const double price =
      shape.num_compute() * HourlyPrice(compute.device(), context.options) +
      (memory != nullptr ? shape.num_memory * HourlyPrice(*memory, context.options) : 0);
  Price(context, price, *prediction);
  return prediction;
}

// Doubles one resource after the other and returns the one that gains the most tokens/s, the first
// of several that gain as much: both twice the sequences and twice the bandwidth for weights do,
// for example, while reading weights takes most of a step. With a rate far below what the cluster
// can give it is kRequests.
Bottleneck FindBottleneck(const Context& context, const Prediction& prediction,
                          const DeviceSpec& compute, const DeviceSpec* memory) {
  if (prediction.tokens_per_second < kBusy * prediction.most_tokens_per_second)
    return Bottleneck::kRequests;
  const ClusterShape& shape = prediction.shape;
  const std::pair<Bottleneck, double Scale::*> resources[] = {
      {Bottleneck::kKvCapacity, &Scale::kv_capacity},
      {Bottleneck::kCompute, &Scale::compute},
      {Bottleneck::kWeightBandwidth, &Scale::weight_bandwidth},
      {Bottleneck::kKvBandwidth, &Scale::kv_bandwidth},
      {Bottleneck::kNetwork, &Scale::network},
      {Bottleneck::kSlo, &Scale::slo}};
  Bottleneck limit = Bottleneck::kCompute;
  double most = 0;
  for (const auto& [resource, factor] : resources) {
    Scale scale;
    scale.*factor = 2;
    Result<ComputeSide> side =
        ComputeSide::Create(compute, context.models.at(shape.num_ranks), context.options, scale);
    if (!side.ok()) continue;
    const ShapeCost cost(shape, *side, memory, context.load, context.options);
    const Schedule best = cost.Best();
    const double gained = best.rows > 0 ? cost.TokensPerSecond(best) : 0;
    if (gained > most * 1.0001) {  // more than rounding
      most = gained;
      limit = resource;
    }
  }
  return limit;
}

// More tokens per dollar, or as many for a lower price.
bool Better(const Prediction& a, const Prediction& b) {
  if (a.tokens_per_dollar != b.tokens_per_dollar) return a.tokens_per_dollar > b.tokens_per_dollar;
  return a.price_per_hour < b.price_per_hour;
}

// The best prediction by compute and memory device.
using BestOf = std::map<std::pair<std::string, std::string>, Prediction>;

void KeepBetter(BestOf& best, std::optional<Prediction> prediction) {
  if (!prediction) return;
  const std::pair<std::string, std::string> key(prediction->shape.compute,
                                                prediction->shape.memory);
  const auto [known, is_new] = best.try_emplace(key, *prediction);
  if (!is_new && Better(*prediction, known->second)) known->second = std::move(*prediction);
}

// The devices with these names, or all of the catalog. Of all, those without a price are left out
// and noted in `left_out`; one that was named is an error.
Result<std::vector<DeviceSpec>> Choose(const DeviceCatalog& catalog, std::vector<std::string> names,
                                       const PlanOptions& options,
                                       std::vector<std::string>& left_out) {
  const bool all = names.empty();
  if (all) {
    for (const DeviceSpec& device : catalog.devices()) names.push_back(device.name);
  }
  std::vector<DeviceSpec> devices;
  for (const std::string& name : names) {
    LAMINA_ASSIGN_OR_RETURN(DeviceSpec device, catalog.Find(name));
    if (HourlyPrice(device, options) > 0) {
      devices.push_back(std::move(device));
      continue;
    }
    const std::string why = name + ": no price to " + (options.bought ? "buy" : "rent");
    if (!all)
      return InvalidArgument(
          "device " + why +
          " in the catalog; give it one in a catalog of your own that extends it");
    if (std::find(left_out.begin(), left_out.end(), why) == left_out.end()) left_out.push_back(why);
  }
  return devices;
}

// Returns how many shapes there are.
int64_t TryMemory(const Context& context, const ShapeLimits& limits, const DeviceSpec& memory,
                  ComputeSide& compute, BestOf& best) {
  int64_t num_shapes = 0;
  const int ranks = compute.model().num_ranks;
  // Replicas of a model that ranks share are not among the shapes.
  for (int replicas = 1; replicas <= (ranks > 1 ? 1 : limits.max_replicas); ++replicas) {
    for (const int count : kMemoryCounts) {
      // Each memory node belongs to one rank.
      if (count > limits.max_memory_nodes || count % ranks != 0) continue;
      ++num_shapes;
      KeepBetter(best,
                 Predict(context, {compute.device().name, replicas, ranks, memory.name, count},
                         compute, &memory));
    }
  }
  return num_shapes;
}

std::vector<Prediction> Ranked(const BestOf& best, size_t keep) {
  std::vector<Prediction> ranked;
  for (const auto& [key, prediction] : best) ranked.push_back(prediction);
  std::stable_sort(ranked.begin(), ranked.end(), Better);
  ranked.resize(std::min(keep, ranked.size()));
  return ranked;
}

Status FindBottlenecks(const Context& context, const DeviceCatalog& catalog,
                       std::vector<Prediction>& predictions) {
  for (Prediction& prediction : predictions) {
    LAMINA_ASSIGN_OR_RETURN(const DeviceSpec compute, catalog.Find(prediction.shape.compute));
    std::optional<DeviceSpec> memory;
    if (!prediction.shape.homogeneous()) {
      LAMINA_ASSIGN_OR_RETURN(memory, catalog.Find(prediction.shape.memory));
    }
    prediction.limit = FindBottleneck(context, prediction, compute, memory ? &*memory : nullptr);
  }
  return OkStatus();
}

// "H100, RTX3090"; their number if there are many.
std::string Considered(const std::vector<std::string>& devices) {
  constexpr size_t kMostNames = 6;
  if (devices.size() > kMostNames) return fmt::format("{} devices", devices.size());
  return fmt::format("{}", fmt::join(devices, ", "));
}

bool IsAmong(const std::vector<DeviceSpec>& devices, const std::string& name) {
  return std::any_of(devices.begin(), devices.end(),
                     [&](const DeviceSpec& device) { return device.name == name; });
}

}  // namespace

const Prediction* Plan::best() const {
  if (homogeneous.empty() && disaggregated.empty()) return nullptr;
  if (homogeneous.empty()) return &disaggregated.front();
  if (disaggregated.empty()) return &homogeneous.front();
  return Better(homogeneous.front(), disaggregated.front()) ? &homogeneous.front()
                                                            : &disaggregated.front();
}

std::string Plan::Verdict() const {
  const std::string considered = Considered(alone);
  if (best() == nullptr)
    return "Nothing among " + considered + " serves this model and workload within these limits.";
  if (homogeneous.empty())
    return "Disaggregate: nothing among " + considered +
           " serves this alone, not even with tensor parallelism.";
  if (disaggregated.empty())
    return "Do not disaggregate: no pair of devices serves this within these limits.";
  const Prediction &apart = disaggregated.front(), &together = homogeneous.front();
  const double gain = apart.tokens_per_dollar / together.tokens_per_dollar;
  if (gain >= kWorthIt) {
    return fmt::format(
        "Disaggregate: {} gives {:.2f} times the tokens per dollar of the best homogeneous cluster "
        "of {}, {}.",
        apart.shape.text(), gain, considered, together.shape.text());
  }
  return fmt::format(
      "Do not disaggregate: {} alone, the best of {}, gives {:.2f} times the tokens per dollar of "
      "the best disaggregated cluster, {}.",
      together.shape.text(), considered, 1 / gain, apart.shape.text());
}

Result<Plan> MakePlan(const ModelConfig& model, const PlanLoad& load, const DeviceCatalog& catalog,
                      const ShapeLimits& limits, const PlanOptions& options) {
  Plan plan;
  Context context{model, load, options, {}};
  LAMINA_RETURN_IF_ERROR(AddModel(context, 1));
  for (int ranks = 2; ranks <= limits.max_ranks; ranks *= 2) {
    // So many ranks do not divide the model, and neither will twice as many.
    if (const Status status = AddModel(context, ranks); !status.ok()) break;
  }
  LAMINA_ASSIGN_OR_RETURN(const std::vector<DeviceSpec> computes,
                          Choose(catalog, limits.compute_devices, options, plan.left_out));
  LAMINA_ASSIGN_OR_RETURN(const std::vector<DeviceSpec> memories,
                          Choose(catalog, limits.memory_devices, options, plan.left_out));
  std::vector<DeviceSpec> devices = computes;
  for (const DeviceSpec& device : memories) {
    // Memory devices are tried as homogeneous clusters too.
    if (!IsAmong(computes, device.name)) devices.push_back(device);
  }
  BestOf disaggregated, homogeneous;
  for (const DeviceSpec& device : devices) {
    plan.alone.push_back(device.name);
    for (const auto& [ranks, rank_model] : context.models) {
      Result<ComputeSide> compute = ComputeSide::Create(device, rank_model, options, Unscaled());
      // The weights do not fit; with more ranks they may.
      if (compute.status().code() == StatusCode::kOutOfSpace) continue;
      LAMINA_RETURN_IF_ERROR(compute.status());
      ++plan.num_shapes;
      KeepBetter(homogeneous, Predict(context, {device.name, 1, ranks, "", 0}, *compute, nullptr));
      if (!IsAmong(computes, device.name)) continue;
      for (const DeviceSpec& memory : memories)
        plan.num_shapes += TryMemory(context, limits, memory, *compute, disaggregated);
    }
  }
  // Nothing serves this. If something would without the rate, the rate is what is wrong.
  if (disaggregated.empty() && homogeneous.empty() && load.requests_per_second > 0) {
    PlanLoad any_rate = load;
    any_rate.requests_per_second = 0;
    LAMINA_ASSIGN_OR_RETURN(const Plan without,
                            MakePlan(model, any_rate, catalog, limits, options));
    if (without.best() != nullptr) {
      return InvalidArgument(fmt::format(
          "{} requests/s need every cluster more than {:.0f} times; ask for a lower rate",
          load.requests_per_second, kMostCopies));
    }
  }
  plan.disaggregated = Ranked(disaggregated, limits.keep);
  plan.homogeneous = Ranked(homogeneous, limits.keep);
  LAMINA_RETURN_IF_ERROR(FindBottlenecks(context, catalog, plan.disaggregated));
  LAMINA_RETURN_IF_ERROR(FindBottlenecks(context, catalog, plan.homogeneous));
  return plan;
}

Result<Prediction> PredictShape(const ModelConfig& model, const PlanLoad& load,
                                const DeviceCatalog& catalog, const ClusterShape& shape,
                                const PlanOptions& options) {
  Context context{model, load, options, {}};
  LAMINA_RETURN_IF_ERROR(AddModel(context, shape.num_ranks));
  LAMINA_ASSIGN_OR_RETURN(const DeviceSpec compute, catalog.Find(shape.compute));
  std::optional<DeviceSpec> memory;
  if (!shape.homogeneous()) {
    LAMINA_ASSIGN_OR_RETURN(memory, catalog.Find(shape.memory));
  }
  LAMINA_ASSIGN_OR_RETURN(
      ComputeSide side,
      ComputeSide::Create(compute, context.models.at(shape.num_ranks), options, Unscaled()));
  std::optional<Prediction> prediction = Predict(context, shape, side, memory ? &*memory : nullptr);
  if (!prediction)
    return OutOfSpace(shape.text() +
                      ": no schedule holds the longest request and keeps the limits, or the rate "
                      "is far too high");
  prediction->limit = FindBottleneck(context, *prediction, compute, memory ? &*memory : nullptr);
  return *prediction;
}

}  // namespace lamina
