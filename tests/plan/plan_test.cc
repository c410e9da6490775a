// Plans against sums worked out here: an own count of LLaMA-13B's operations and bytes, and every
// schedule of every shape tried in turn.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "plan/chart/bar_chart.h"
#include "plan/planner.h"
#include "plan/workload/workload.h"
#include "tests/support/paths.h"
#include "tests/support/thread_seconds.h"

namespace lamina {
namespace plan_test {

using ::testing::HasSubstr;

const std::string kModels = SourcePath("/configs/models/");
const std::string kShipped = SourcePath("/configs/devices-2026.yaml");

// Fast: 100 TFLOP/s of which half are reached, 2000 GB/s, 4 $/h. Cheap: a tenth of the operations,
// half the bandwidth, 0.5 $/h.
constexpr char kCatalog[] = R"(version: 1
devices:
- {name: Fast, bf16_tflops: 100, memory: 40GB, bandwidth_gb_per_s: 2000, network_gb_per_s: 25, price_per_hour: 4, price_usd: 8766, mfu: [{batch: 1, mfu: 0.5}], source: made up}
- {name: Cheap, bf16_tflops: 10, memory: 24GB, bandwidth_gb_per_s: 1000, network_gb_per_s: 10, price_per_hour: 0.5, mfu: [{batch: 1, mfu: 0.5}], source: made up}
- {name: Free, bf16_tflops: 10, memory: 24GB, bandwidth_gb_per_s: 1000, mfu: [{batch: 1, mfu: 0.5}], source: made up}
)";
struct Device {
  double flops, bytes, nic, memory, price;
};
constexpr Device kFast{50e12, 2000e9, 25e9, 40e9, 4}, kCheap{5e12, 1000e9, 10e9, 24e9, 0.5};

// LLaMA-13B in two bytes.
constexpr double kD = 5120, kFfn = 13824, kVocab = 32000, kLayers = 40,
                 kWeightBytes = 2 * (40 * (4 * kD * kD + 3 * kD * kFfn) + 2 * kD * kVocab);
constexpr double kKvBytes = 2 * 2 * kD * kLayers;

ModelConfig Model() { return *ModelConfig::Load(std::string(kModels) + "llama-13b"); }

double Roofline(const Device& device, double operations, double bytes) {
  return std::max(operations / device.flops, bytes / device.bytes);
}

double Matrices(const Device& device, double weights, double row_elements, double rows) {
  return Roofline(device, 2 * weights * rows, 2 * (weights + rows * row_elements));
}

// Embedding and the first layer's q, k, v; then 39 times output projection, MLP and the next q, k,
// v.
double LayersSeconds(const Device& device, double rows) {
  return Matrices(device, 3 * kD * kD, 2 * kD + 6 * kD, rows) +
         39 * Matrices(device, 4 * kD * kD + 3 * kD * kFfn, 8 * kD + 3 * (kD + kFfn), rows);
}

double Linear(const Device& device, double rows) {
  const double last = Matrices(device, kD * kD + 3 * kD * kFfn + kD * kVocab,
                               2 * kD + 3 * (kD + kFfn) + kD + kVocab, rows);
  return LayersSeconds(device, rows) + last;
}

double Attention(const Device& device, double tokens, double queries, double pairs) {
  return kLayers * Roofline(device, 4 * kD * pairs, 2 * (2 * kD * tokens + 4 * kD * queries));
}

double Prompt(const Device& device, const PlanLoad& load) {
  return load.input_tokens / 512 * LayersSeconds(device, 512) +
         Attention(device, std::round(load.prefill_pairs / 512 + load.input_tokens),
                   load.input_tokens, load.prefill_pairs);
}

// n batches of `rows` on `replicas` Fast devices, KV on `memory` Cheap ones; 33 us from node to
// node.
double Round(double replicas, double memory, double n, bool rotates, double rows,
             const PlanLoad& load) {
  const double linear = Linear(kFast, rows);
  const double tokens = std::round(rows / memory * load.context);
  const double attention = Attention(kCheap, tokens, std::ceil(rows / memory), tokens);
  const double one_way = rows * 2 * kD * kLayers;  // a vector for each layer
  const double network =
      2 * kLayers * 33e-6 + 4 * one_way / std::min(kFast.nic, memory * kCheap.nic);
  const double begin = n * rows / load.output_tokens;  // prompts
  const double prompts = begin * Prompt(kFast, load) / replicas;
  const double sent = n * 3 * one_way + begin * load.input_tokens * kKvBytes;
  const double nics = std::max((sent + (rotates ? n * one_way : 0)) / (replicas * kFast.nic),
                               sent / (memory * kCheap.nic));
  const double turns = rotates ? n / replicas : std::ceil(n / replicas);
  return std::max(
      {linear + attention + network + prompts, turns * linear + prompts, n * attention, nics});
}

// Sequences in so many token slots: the next one would leave less than three standard deviations.
int Room(double slots, const PlanLoad& load) {
  int room = 0;
  while ((room + 1) * load.context + 3 * load.context_deviation * std::sqrt(room + 1) <= slots)
    ++room;
  return room;
}

struct Found {
  double tokens_per_s = 0, tokens_per_dollar = 0;
};

Found TryAll(const PlanLoad& load, double tpot, int max_replicas, int max_memory) {
  Found best;
  for (int replicas = 1; replicas <= max_replicas; ++replicas) {
    for (int memory = 1; memory <= max_memory; ++memory) {
      const int room = memory * Room(0.9 * kCheap.memory / kKvBytes, load);
      struct Way {
        int n;
        bool rotates;
      };
      std::vector<Way> ways = {{replicas, false}, {2 * replicas, false}, {3 * replicas, false}};
      if (replicas > 1) ways.push_back({replicas + 1, true});
      for (const Way& way : ways) {
        for (int rows = 1; rows * way.n <= room; ++rows) {
          const double round = Round(replicas, memory, way.n, way.rotates, rows, load);
          if (tpot > 0 && round > tpot) continue;
          const double rate = way.n * rows / round,
                       price = replicas * kFast.price + memory * kCheap.price;
          if (rate / price * 3600 > best.tokens_per_dollar) best = {rate, rate / price * 3600};
        }
      }
    }
  }
  return best;
}

PlanLoad Load(double input, double output) {
  PlanLoad load;
  load.source = "made up";
  load.input_tokens = input;
  load.output_tokens = output;
  load.context = input + (output + 1) / 2;
  // Of whole numbers that are all as likely.
  load.context_deviation = std::sqrt((output * output - 1) / 12);
  load.prefill_pairs = input * (input + 1) / 2;
  load.longest = input + output;
  return load;
}

DeviceCatalog Catalog() { return *DeviceCatalog::Parse(kCatalog, "c.yaml"); }

ShapeLimits Limits() {
  ShapeLimits limits;
  limits.compute_devices = {"Fast"};
  limits.memory_devices = {"Cheap"};
  limits.max_replicas = 3;
  limits.max_ranks = 1;
  limits.max_memory_nodes = 6;
  return limits;
}

TEST(PlanLoad, LongAnswersCountMoreThanShortOnes) {
  RequestTrace trace;
  trace.source = "t";
  trace.requests.resize(2);
  trace.requests[0].input_tokens = 10;
  trace.requests[0].output_tokens = 1;  // contexts: 11
  trace.requests[1].input_tokens = 100;
  trace.requests[1].output_tokens = 3;  // 101, 102, 103
  const PlanLoad load = LoadOf(trace);
  EXPECT_DOUBLE_EQ(load.input_tokens, 55);
  EXPECT_DOUBLE_EQ(load.output_tokens, 2);
  EXPECT_DOUBLE_EQ(load.context, (11 + 101 + 102 + 103) / 4.0);
  EXPECT_DOUBLE_EQ(load.prefill_pairs, (10 * 11 / 2 + 100 * 101 / 2) / 2.0);
  EXPECT_NEAR(
      load.context_deviation,
      std::sqrt((11 * 11 + 101 * 101 + 102 * 102 + 103 * 103) / 4.0 - load.context * load.context),
      1e-9);
  EXPECT_EQ(load.longest, 103);
}

TEST(PlanLoad, RequestsThatTheModelHasNoPositionsForAreLeftOut) {
  RequestTrace trace;
  const std::pair<int64_t, int64_t> lengths[] = {{60, 40}, {61, 40},       {100, 1},
                                                 {1, 100}, {1, INT64_MAX}, {99, 1}};
  for (const auto& [input, output] : lengths) {
    trace.requests.emplace_back();
    trace.requests.back().input_tokens = input;
    trace.requests.back().output_tokens = output;
  }
  EXPECT_EQ(LeaveOutLonger(100, trace), 4);
  ASSERT_EQ(trace.requests.size(), 2u);
  EXPECT_EQ(trace.requests[0].input_tokens, 60);
  EXPECT_EQ(trace.requests[1].input_tokens, 99);
}

// Prompts computed here and elsewhere, any latency and a tight one.
TEST(Planner, FindsWhatTryingEverythingFinds) {
  for (const bool prefill : {true, false}) {
    for (const double tpot : {0.0, 0.08}) {
      PlanLoad load = Load(700, 300);
      PlanOptions options;
      options.prefill = prefill;
      options.tpot_seconds = tpot;
      const Result<Plan> plan = MakePlan(Model(), load, Catalog(), Limits(), options);
      ASSERT_TRUE(plan.ok()) << plan.status();
      ASSERT_EQ(plan->disaggregated.size(), 1u) << "one pair of devices";
      if (!prefill) load.input_tokens = load.prefill_pairs = 0;
      const Found best = TryAll(load, tpot, 3, 6);
      ASSERT_GT(best.tokens_per_s, 0);
      const Prediction& found = plan->disaggregated.front();
      EXPECT_LE(found.tokens_per_dollar, best.tokens_per_dollar * 1.000001) << prefill << tpot;
      EXPECT_GE(found.tokens_per_dollar, best.tokens_per_dollar * 0.99)
          << prefill << tpot << " " << found.shape.text();
      EXPECT_NEAR(found.price_per_hour, found.shape.num_replicas * 4 + found.shape.num_memory * 0.5,
                  1e-9);
      const double round =
          Round(found.shape.num_replicas, found.shape.num_memory, found.schedule.num_batches,
                found.schedule.rotates, static_cast<double>(found.schedule.rows), load);
      EXPECT_NEAR(found.tpot_seconds / round, 1, 1e-6);
      EXPECT_NEAR(found.tokens_per_second * found.tpot_seconds,
                  static_cast<double>(found.schedule.sequences()), 1e-6);
      if (tpot > 0) {
        EXPECT_LE(found.tpot_seconds, tpot);
      }
    }
  }
}

TEST(Planner, AHomogeneousClusterHoldsWeightsAndKv) {
  const PlanLoad load = Load(700, 300);
  PlanOptions options;
  options.prefill = false;
  const Result<Prediction> alone =
      PredictShape(Model(), load, Catalog(), {"Fast", 1, 1, "", 0}, options);
  ASSERT_TRUE(alone.ok()) << alone.status();
  const int room = Room((0.9 * kFast.memory - kWeightBytes) / kKvBytes, load);
  EXPECT_EQ(alone->max_sequences, room);
  const auto rows = static_cast<double>(alone->schedule.rows);
  const double tokens = std::round(rows * load.context);
  EXPECT_NEAR(alone->tpot_seconds / (Linear(kFast, rows) + Attention(kFast, tokens, rows, tokens)),
              1, 1e-6);
  EXPECT_EQ(PredictShape(Model(), load, Catalog(), {"Cheap", 1, 1, "", 0}, options).status().code(),
            StatusCode::kOutOfSpace);
  EXPECT_EQ(PredictShape(Model(), Load(20000, 10), Catalog(), {"Fast", 1, 1, "", 0}, options)
                .status()
                .code(),
            StatusCode::kOutOfSpace)
      << "the longest request does not fit";
}

TEST(Planner, SaysWhatLimits) {
  std::string text = kCatalog;
  text +=
      R"(- {name: Strong, bf16_tflops: 10000, memory: 40GB, bandwidth_gb_per_s: 2000, network_gb_per_s: 25, mfu: [{batch: 1, mfu: 0.5}], source: made up}
- {name: Narrow, bf16_tflops: 10000, memory: 40GB, bandwidth_gb_per_s: 2000, network_gb_per_s: 0.1, mfu: [{batch: 1, mfu: 0.5}], source: made up}
- {name: Tight, bf16_tflops: 10, memory: 3GB, bandwidth_gb_per_s: 1000, network_gb_per_s: 10, mfu: [{batch: 1, mfu: 0.5}], source: made up}
- {name: Slow, bf16_tflops: 10, memory: 100GB, bandwidth_gb_per_s: 50, network_gb_per_s: 10, mfu: [{batch: 1, mfu: 0.5}], source: made up}
)";
  const DeviceCatalog catalog = *DeviceCatalog::Parse(text, "c.yaml");
  PlanOptions options;
  options.prefill = false;
  const auto limit = [&](const ClusterShape& shape, const PlanLoad& load) {
    const Result<Prediction> prediction = PredictShape(Model(), load, catalog, shape, options);
    EXPECT_TRUE(prediction.ok()) << prediction.status();
    return BottleneckName(prediction->limit);
  };
  EXPECT_STREQ(limit({"Fast", 1, 1, "Cheap", 64}, Load(100, 100)), "compute")
      << "thousands of short sequences";
  EXPECT_STREQ(limit({"Fast", 1, 1, "Tight", 1}, Load(900, 100)), "KV capacity")
      << "room for three: their steps read weights";
  EXPECT_STREQ(limit({"Strong", 1, 1, "Slow", 1}, Load(900, 100)), "KV bandwidth")
      << "90 GB of K and V at 50 GB/s";
  EXPECT_STREQ(limit({"Narrow", 1, 1, "Cheap", 4}, Load(900, 100)), "network")
      << "1.6 MB a row at 0.1 GB/s";
  // Reading the weights takes 13 ms of it, the network 2.6, and each row 0.1.
  options.tpot_seconds = 0.0162;
  EXPECT_STREQ(limit({"Strong", 1, 1, "Cheap", 16}, Load(900, 100)), "SLO");
}

TEST(Planner, ARateIsServedByTheCheapestThatCan) {
  PlanLoad load = Load(700, 300);
  PlanOptions options;
  options.prefill = false;
  const Prediction full =
      PredictShape(Model(), load, Catalog(), {"Fast", 1, 1, "Cheap", 2}, options).value();
  load.requests_per_second = 0.5 * full.tokens_per_second / 300;
  const Prediction half =
      PredictShape(Model(), load, Catalog(), {"Fast", 1, 1, "Cheap", 2}, options).value();
  EXPECT_EQ(half.copies, 1);
  EXPECT_LT(half.schedule.sequences(), full.schedule.sequences()) << "fewer at a time are enough";
  EXPECT_NEAR(half.tokens_per_second, 0.5 * full.tokens_per_second, 1e-6);
  load.requests_per_second *= 5;  // 2.5 times what one can
  const Prediction more =
      PredictShape(Model(), load, Catalog(), {"Fast", 1, 1, "Cheap", 2}, options).value();
  EXPECT_EQ(more.copies, 3);
  EXPECT_DOUBLE_EQ(more.price_per_hour, 3 * 5.0);
  load.requests_per_second = 1e18;
  EXPECT_THAT(MakePlan(Model(), load, Catalog(), Limits(), options).status().message(),
              HasSubstr("more than 1000000 times"));
}

// A rate's mean load leaves room for bursts: as many are admitted as keep the limits, whatever the
// rate.
TEST(Planner, AClusterForARateAdmitsWhatItsLimitsAllow) {
  PlanLoad load = Load(700, 300);
  PlanOptions options;
  options.prefill = false;
  options.tpot_seconds = 0.06;
  const ClusterShape shape{"Fast", 1, 1, "Cheap", 4};
  const Prediction full = PredictShape(Model(), load, Catalog(), shape, options).value();
  EXPECT_EQ(full.admitted_sequences, full.schedule.sequences());
  EXPECT_EQ(full.most_tokens_per_second, full.tokens_per_second);
  load.requests_per_second = 0.3 * full.tokens_per_second / 300;
  const Prediction some = PredictShape(Model(), load, Catalog(), shape, options).value();
  EXPECT_GT(some.admitted_sequences, some.schedule.sequences());
  EXPECT_DOUBLE_EQ(some.most_tokens_per_second, full.tokens_per_second);
  const auto batches = static_cast<double>(some.schedule.num_batches),
             rows = static_cast<double>(some.admitted_sequences) / batches;
  const auto round = [&](double of_rows) {
    PlanLoad decoded = load;
    decoded.input_tokens = decoded.prefill_pairs = 0;
    return Round(1, 4, batches, false, of_rows, decoded);
  };
  EXPECT_LE(round(rows), 0.06);
  double most = 0;  // tokens/s of a batch
  for (int64_t n = 1; n * some.schedule.num_batches <= some.max_sequences; ++n) {
    const auto of_rows = static_cast<double>(n);
    if (round(of_rows) <= 0.06) most = std::max(most, of_rows / round(of_rows));
  }
  EXPECT_GE(rows / round(rows), 0.99 * most);
}

// Twice of anything gains nothing when requests are what there is too little of.
TEST(Planner, ALowRateIsLimitedByItsRequests) {
  PlanLoad load = Load(700, 300);
  PlanOptions options;
  options.prefill = false;
  const ClusterShape shape{"Fast", 1, 1, "Cheap", 2};
  const Prediction full = PredictShape(Model(), load, Catalog(), shape, options).value();
  const auto limit_at = [&](double share) {
    load.requests_per_second = share * full.tokens_per_second / 300;
    return BottleneckName(PredictShape(Model(), load, Catalog(), shape, options)->limit);
  };
  EXPECT_STREQ(limit_at(0.01), "requests");
  EXPECT_STREQ(limit_at(0.6), "requests");
  EXPECT_STREQ(limit_at(0.99), BottleneckName(full.limit));
  EXPECT_STREQ(limit_at(1.2), "requests") << "two copies, half idle";
  EXPECT_STREQ(limit_at(1.98), BottleneckName(full.limit)) << "two copies";
}

TEST(Planner, SaysHonestlyWhatIsBetter) {
  PlanOptions options;
  options.prefill = false;
  const Plan apart = *MakePlan(Model(), Load(900, 100), Catalog(), Limits(), options);
  EXPECT_THAT(apart.Verdict(), HasSubstr("Disaggregate: "));
  ASSERT_NE(apart.best(), nullptr);
  EXPECT_FALSE(apart.best()->shape.homogeneous());

  std::string dear = kCatalog;  // memory nodes as dear as compute nodes
  dear.replace(dear.find("price_per_hour: 0.5"), 19, "price_per_hour: 900");
  const Plan together =
      *MakePlan(Model(), Load(900, 100), *DeviceCatalog::Parse(dear, "d.yaml"), Limits(), options);
  EXPECT_THAT(together.Verdict(),
              HasSubstr("Do not disaggregate: 1 x Fast alone, the best of Fast, Cheap, gives "));
  EXPECT_TRUE(together.best()->shape.homogeneous());

  // Two memory devices hold the model as well, at a sixteenth of the price: they are cheaper alone
  // than with a compute device.
  std::string cheap = kCatalog;
  cheap.replace(cheap.find("price_per_hour: 0.5"), 19, "price_per_hour: 0.25");
  ShapeLimits limits = Limits();
  limits.max_ranks = 2;
  const Plan memory_alone =
      *MakePlan(Model(), Load(900, 100), *DeviceCatalog::Parse(cheap, "d.yaml"), limits, options);
  EXPECT_THAT(memory_alone.Verdict(), HasSubstr("Do not disaggregate: 2 x Cheap (tensor parallel) "
                                                "alone, the best of Fast, Cheap, gives "));
  EXPECT_THAT(memory_alone.disaggregated,
              ::testing::Each(::testing::Field(&Prediction::shape,
                                               ::testing::Field(&ClusterShape::compute, "Fast"))))
      << "a memory device computes in no disaggregated cluster";

  options.tpot_seconds = 1e-6;
  EXPECT_EQ(MakePlan(Model(), Load(900, 100), Catalog(), Limits(), options)->best(), nullptr);
}

TEST(Planner, PricesAreThoseThatWereAskedFor) {
  PlanOptions options;
  const DeviceSpec fast = *Catalog().Find("Fast");
  EXPECT_EQ(HourlyPrice(fast, options), 4);
  options.bought = true;
  options.years = 2;
  EXPECT_DOUBLE_EQ(HourlyPrice(fast, options), 0.5) << "8766 $ over twice 8766 hours";
  ShapeLimits limits = Limits();
  EXPECT_EQ(MakePlan(Model(), Load(700, 300), Catalog(), limits, options).status().message(),
            "device Cheap: no price to buy in the catalog; give it one in a catalog of your own "
            "that extends it");
  options.bought = false;
  limits.memory_devices.clear();
  limits.compute_devices.clear();
  EXPECT_THAT(MakePlan(Model(), Load(700, 300), Catalog(), limits, options)->left_out,
              ::testing::ElementsAre("Free: no price to rent"));
}

TEST(Planner, ANicIsTheCatalogsOrTheOneThatWasAskedFor) {
  PlanOptions options;
  options.default_nic_gb_per_s = 3;
  EXPECT_EQ(NicGbPerS(*Catalog().Find("Cheap"), options), 10);
  EXPECT_EQ(NicGbPerS(*Catalog().Find("Free"), options), 3);
}

TEST(Planner, RanksDivideWeightsAndHeads) {
  const ModelConfig model = *ModelConfig::Load(std::string(kModels) + "llama-65b");
  const RankModel one = *RankModel::Create(model, 1), four = *RankModel::Create(model, 4);
  EXPECT_EQ(four.heads.num_heads, 16);
  const double embeddings = 2. * 2 * 32000 * 8192;
  EXPECT_NEAR(static_cast<double>(four.weight_bytes),
              (static_cast<double>(one.weight_bytes) - embeddings) / 4 + embeddings, 1e8);
  EXPECT_EQ(four.all_reduce_elements, 2. * 80 * 8192) << "behind attention and MLP of each layer";
  EXPECT_EQ(four.num_all_reduces, 2 * 80);
  EXPECT_EQ(one.all_reduce_elements, 0);
  EXPECT_EQ(
      RankModel::Create(*ModelConfig::Load(std::string(kModels) + "llama-33b"), 8).status().code(),
      StatusCode::kInvalidArgument)
      << "52 heads";
}

TEST(Planner, ALargeModelAndTheWholeCatalogTakeTwoSeconds) {
  const double start = testing::ThreadSeconds();
  const ModelConfig model = *ModelConfig::Load(std::string(kModels) + "llama-3-70b");
  const Result<Plan> plan =
      MakePlan(model, Load(2000, 300), *DeviceCatalog::Load(kShipped), {}, {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_GT(plan->disaggregated.size(), 10u);
  EXPECT_TRUE(std::is_sorted(plan->disaggregated.begin(), plan->disaggregated.end(),
                             [](const Prediction& a, const Prediction& b) {
                               return a.tokens_per_dollar > b.tokens_per_dollar;
                             }));
  EXPECT_LT(testing::ThreadSeconds() - start, 2)
      << "in the release build: scripts/test.sh leaves it out of the others";
}

// A homogeneous cluster's devices reduce over their interconnect: r = 2 sends each value once, and
// nothing of it waits for a network.
TEST(Planner, RanksOfAHomogeneousClusterReduceOverTheirInterconnect) {
  std::string text = kCatalog;
  text +=
      R"(- {name: Linked, bf16_tflops: 100, memory: 40GB, bandwidth_gb_per_s: 2000, network_gb_per_s: 25, interconnect_gb_per_s: 1, mfu: [{batch: 1, mfu: 0.5}], source: made up}
- {name: Unlinked, bf16_tflops: 100, memory: 40GB, bandwidth_gb_per_s: 2000, network_gb_per_s: 1, mfu: [{batch: 1, mfu: 0.5}], source: made up}
- {name: Endless, bf16_tflops: 100, memory: 40GB, bandwidth_gb_per_s: 2000, network_gb_per_s: 1, interconnect_gb_per_s: 1000000000, mfu: [{batch: 1, mfu: 0.5}], source: made up}
)";
  const DeviceCatalog catalog = *DeviceCatalog::Parse(text, "c.yaml");
  PlanOptions options;
  options.prefill = false;
  options.max_sequences = 20;
  const auto step = [&](const char* device, const char* memory, int num_memory) {
    const Result<Prediction> prediction =
        PredictShape(Model(), Load(700, 300), catalog, {device, 1, 2, memory, num_memory}, options);
    EXPECT_TRUE(prediction.ok()) << prediction.status();
    return *prediction;
  };
  const double sent = 20 * 2 * kLayers * 2 * kD;  // 20 rows, two values of two bytes in each layer
  const Prediction linked = step("Linked", "", 0), unlinked = step("Unlinked", "", 0),
                   endless = step("Endless", "", 0);
  ASSERT_EQ(linked.schedule.rows, 20);
  EXPECT_NEAR(linked.tpot_seconds - endless.tpot_seconds, sent / 1e9, 1e-6);
  EXPECT_NEAR(unlinked.tpot_seconds - linked.tpot_seconds, 2 * kLayers * 33e-6, 1e-9)
      << "the same bytes, and a latency for each sum";

  const Prediction apart = step("Linked", "Cheap", 4),
                   one = *PredictShape(Model(), Load(700, 300), catalog,
                                       {"Linked", 1, 1, "Cheap", 4}, options);
  ASSERT_EQ(apart.schedule.sequences(), 20);
  const double rows = static_cast<double>(apart.schedule.rows);
  const double q_k_v_and_output = rows * 4 * 2 * kD * kLayers;
  EXPECT_NEAR(apart.network_seconds,
              4 * kLayers * 33e-6 + q_k_v_and_output / 40e9 + rows / 20 * sent / 25e9, 1e-6)
      << "four NICs of 10 GB/s are slower than two of 25; sums go over the compute nodes'";
  EXPECT_LT(apart.linear_seconds, one.linear_seconds) << "half the weights, and no sums";
}

TEST(BarChart, BarsAreInProportion) {
  const std::string svg =
      ToSvg({"a < b", {{"one", 0, 1, "1", false}, {"two", 0, 2, "2", true}}, false});
  EXPECT_THAT(svg, HasSubstr("a &lt; b"));
  EXPECT_THAT(svg, HasSubstr("width=\"235.0\""));
  EXPECT_THAT(svg, HasSubstr("width=\"470.0\"")) << "960 less 340 for labels and 150 for texts";
}

}  // namespace plan_test
}  // namespace lamina
