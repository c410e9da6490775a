// Traces of real processes: every layer of every step is there, in order, and adds up to what the
// counters say.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "manager/cluster_executor.h"
#include "tests/support/paths.h"
#include "tests/support/server_process.h"
#include "tests/support/serving.h"
#include "tests/support/temporary_folder.h"

namespace lamina::testing {
namespace trace_test {

using nlohmann::json;
using std::chrono::seconds;
using ::testing::HasSubstr;

const std::string kModel = SourcePath("/models/tiny-stories");
constexpr int kLayers = 4;  // of that model
constexpr uint32_t kCompute = 1;
constexpr double kRounding = 0.0011;  // us: a start and a duration are rounded to 1 ns

struct Span {
  double start = 0, end = 0;  // us
};

// The events of a trace by step and layer.
struct Trace {
  std::map<uint64_t, Span> steps;
  // Kind, step, layer -> node, when.
  std::map<std::tuple<std::string, uint64_t, int>, std::vector<std::pair<uint32_t, Span>>> work;
  // Node, kind -> us.
  std::map<std::pair<uint32_t, std::string>, double> sums;
  std::map<std::pair<uint32_t, int>, std::vector<Span>> tracks;
  std::map<uint32_t, std::string> names;

  explicit Trace(const std::string& path) {
    std::ifstream file(path);
    const json events = json::parse(file, nullptr, false);
    EXPECT_TRUE(events.is_array()) << path;
    for (const json& event : events) {
      if (event.value("name", "") == "process_name") names[event["pid"]] = event["args"]["name"];
      if (event.value("ph", "") != "X") continue;
      const Span span{event["ts"], event["ts"].get<double>() + event["dur"].get<double>()};
      EXPECT_GE(span.start, 0) << event;
      EXPECT_GE(event["dur"], 0) << event;
      const uint32_t node = event["pid"];
      const std::string kind = event["cat"];
      if (kind == "step") steps[event["args"]["step"]] = span;
      work[{kind, event["args"]["step"], event["args"]["layer"]}].emplace_back(node, span);
      sums[{node, kind}] += event["dur"].get<double>();
      tracks[{node, event["tid"]}].push_back(span);
    }
  }

  Span Only(const std::string& kind, uint64_t step, int layer, uint32_t node) const {
    std::vector<Span> found;
    const auto all = work.find({kind, step, layer});
    for (size_t i = 0; all != work.end() && i < all->second.size(); ++i) {
      if (all->second[i].first == node) found.push_back(all->second[i].second);
    }
    EXPECT_EQ(found.size(), 1u) << kind << " of step " << step << " layer " << layer << " on node "
                                << node;
    return found.size() == 1 ? found.front() : Span{};
  }
};

void ExpectInOrder(const std::vector<Span>& spans, const std::string& what) {
  for (size_t i = 1; i < spans.size(); ++i)
    EXPECT_GE(spans[i].start, spans[i - 1].end - kRounding) << what << ", piece " << i;
}

// Every layer: slice, q, k and v there, attention, output back, next slice. On every memory node
// that takes part in the step.
void ExpectWholeStep(const Trace& trace, uint64_t step, const Span& whole) {
  std::vector<Span> slices;
  for (int k = 0; k <= kLayers; ++k) slices.push_back(trace.Only("slice", step, k, kCompute));
  ExpectInOrder(slices, "slices of step " + std::to_string(step));
  EXPECT_GE(slices.front().start, whole.start - kRounding);
  EXPECT_LE(slices.back().end, whole.end + kRounding);
  const auto wires = trace.work.find({"q wire", step, 0});
  if (wires == trace.work.end()) return;  // prompts only
  for (const auto& [node, first] : wires->second) {
    for (int layer = 0; layer < kLayers; ++layer) {
      std::vector<Span> message;
      for (const char* kind : {"q wire", "queue", "attention", "output wire"})
        message.push_back(trace.Only(kind, step, layer, node));
      const std::string what =
          "message of step " + std::to_string(step) + " layer " + std::to_string(layer);
      ExpectInOrder(message, what);
      for (size_t i = 1; i < message.size(); ++i)
        EXPECT_NEAR(message[i].start, message[i - 1].end, kRounding) << what << " has a gap";
      const auto k = static_cast<size_t>(layer);
      EXPECT_GE(message.front().start, slices[k].end - kRounding) << what;
      EXPECT_LE(message.back().end, slices[k + 1].start + kRounding) << what;
    }
  }
}

// Of every node that has `name`, by id.
std::map<uint32_t, StepTimes> TimesOf(Engine& engine) {
  std::map<uint32_t, StepTimes> times;
  for (const NodeStatus& node : engine.status().nodes) times[node.id.value] = node.times;
  return times;
}

int64_t Total(const std::map<uint32_t, StepTimes>& all) {
  int64_t total = 0;
  for (const auto& [node, times] : all) {
    for (const int64_t ns : times.ns) total += ns;
  }
  return total;
}

// Once no step is in flight any more: nothing has changed for a while.
std::map<uint32_t, StepTimes> AwaitQuiet(Engine& engine) {
  std::map<uint32_t, StepTimes> times = TimesOf(engine);
  TimePoint since = Clock::now();
  const bool quiet = AwaitTrue(
      [&] {
        const std::map<uint32_t, StepTimes> now = TimesOf(engine);
        if (Total(now) != Total(times)) since = Clock::now();
        times = now;
        return SecondsSince(since) > 0.3;
      },
      Deadline::After(seconds(30)));
  EXPECT_TRUE(quiet);
  return times;
}

struct TracedCluster {
  TransportKind transport = TransportKind::kShm;
  int num_batches = 1;
  bool foreign_clocks = false;  // each memory node reads a steady_clock of its own, a day ahead

  std::string Name() const {
    return std::string(TransportKindName(transport)) + "_" + std::to_string(num_batches) +
           "_batches" + (foreign_clocks ? "_foreign_clocks" : "");
  }
};

class TraceOf : public ::testing::TestWithParam<TracedCluster> {
 protected:
  // Programs as LocalCluster looks for them, with memory nodes in time namespaces.
  std::string ForeignClocks() const {
    for (const char* program : {"lamina-compute-node", "lamina-memory-node"}) {
      const bool memory = std::string(program) == "lamina-memory-node";
      WriteFile(folder_ / program, std::string("#!/bin/sh\nexec ") +
                                       (memory ? kInTimeNamespace : "") + BinPath("/") + program +
                                       " \"$@\"\n");
      std::filesystem::permissions(folder_ / program, std::filesystem::perms::owner_all);
    }
    return folder_.path();
  }

  static constexpr char kInTimeNamespace[] =
      "unshare --time --monotonic 86400 --fork --kill-child=TERM ";
  const TemporaryFolder folder_;
};

TEST_P(TraceOf, EveryStepIsWholeAndAddsUpToTheCounters) {
  const auto& [transport, num_batches, foreign_clocks] = GetParam();
  if (foreign_clocks &&
      std::system((std::string(kInTimeNamespace) + "true 2>/dev/null").c_str()) != 0)
    GTEST_SKIP() << "needs the right to make time namespaces: root, Linux 5.6, util-linux 2.36";
  const auto file = TraceFile::Create(folder_ / "t.json");
  ASSERT_TRUE(file.ok());
  LocalClusterOptions options;
  options.num_memory_nodes = 2;
  options.memory_bytes = int64_t{16} << 20;
  options.transport = transport;
  options.bin_dir = foreign_clocks ? ForeignClocks() : BinPath();
  const auto cluster = LocalCluster::Create(options);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  ClusterConfig config = (*cluster)->config();
  config.model_path = kModel;
  config.num_batches = num_batches;
  config.spread_tokens = 40;  // some sequences are on both nodes
  const ModelConfig model = *ModelConfig::Load(kModel);
  ASSERT_EQ(model.num_layers, kLayers);
  ASSERT_TRUE(ResolveConfig(config, model).ok());
  auto executor = ClusterExecutor::Connect(config, model, {});
  ASSERT_TRUE(executor.ok()) << executor.status();
  (*executor)->RecordTrace(**file);
  auto engine = std::make_unique<ServingEngine>(ServingEngineOptions::Of(config, model),
                                                std::move(*executor));
  std::vector<Collector> collectors(6);
  for (size_t i = 0; i < collectors.size(); ++i)
    ASSERT_TRUE(
        engine
            ->Submit(GreedyRequest(std::vector<TokenId>(10 + 9 * i, 100), 20), collectors[i].sink())
            .ok());
  for (const Collector& collector : collectors)
    ASSERT_TRUE(collector.Wait(Deadline::After(seconds(60))));
  const std::map<uint32_t, StepTimes> counters = AwaitQuiet(*engine);
  engine.reset();
  ASSERT_TRUE((*file)->Close().ok());

  const Trace trace(folder_ / "t.json");
  EXPECT_GE(trace.steps.size(), 20u);
  for (const auto& [step, span] : trace.steps) ExpectWholeStep(trace, step, span);
  for (uint32_t node = 1; node <= 3; ++node) {
    for (size_t i = 0; i < kNumStepWorks; ++i) {
      const auto work = static_cast<StepWork>(i);
      const auto sum = trace.sums.find({node, StepWorkName(work)});
      const double us = sum == trace.sums.end() ? 0 : sum->second;
      EXPECT_NEAR(us, static_cast<double>(counters.at(node).of(work)) * 1e-3, 1.0)
          << StepWorkName(work) << " of node " << node;
      const bool of_memory = work == StepWork::kQWire || work == StepWork::kQueue ||
                             work == StepWork::kAttention || work == StepWork::kOutputWire;
      if (work != StepWork::kBubble) {
        EXPECT_EQ(us > 0, of_memory == (node > 1)) << StepWorkName(work) << " of node " << node;
      }
    }
    EXPECT_GT(counters.at(node).of(StepWork::kBubble), 0) << node;
  }
  for (uint32_t node = 2; node <= 3; ++node)
    EXPECT_EQ(trace.names.at(node).find("(clock estimated, +-") != std::string::npos,
              foreign_clocks)
        << trace.names.at(node);
  if (foreign_clocks) return;  // estimates of two messages may differ
  // A node does one thing at a time: neither its work nor its bubbles overlap.
  for (uint32_t node = 1; node <= 3; ++node) {
    std::vector<Span> spans = trace.tracks.at({node, 1});
    std::ranges::sort(spans, {}, &Span::start);
    ExpectInOrder(spans, "work of node " + std::to_string(node));
  }
}

INSTANTIATE_TEST_SUITE_P(Clusters, TraceOf,
                         ::testing::Values(TracedCluster{TransportKind::kShm},
                                           TracedCluster{TransportKind::kTcp},
                                           TracedCluster{TransportKind::kShm, 2},
                                           TracedCluster{TransportKind::kShm, 2, true}),
                         [](const auto& param) { return param.param.Name(); });

TEST(TraceOption, EveryCommandWritesOne) {
  const TemporaryFolder folder;
  const CommandOutput throughput = RunLamina(
      {"bench", "throughput", kModel, "--num-prompts", "2", "--input-len", "8", "--output-len", "4",
       "--repeats", "1", "--step-times-cost", "--trace-out", folder / "throughput.json"});
  EXPECT_EQ(throughput.exit_status, 0) << throughput.err;
  EXPECT_THAT(throughput.out, HasSubstr("steps not timed"));
  const CommandOutput modelled =
      RunLamina({"bench", "modelled", SourcePath("/configs/modelled-13b.yaml"), "--batch", "2", "4",
                 "--context", "64", "--steps", "2", "--trace-out", folder / "modelled.json"});
  EXPECT_EQ(modelled.exit_status, 0) << modelled.err;
  const CommandOutput serve =
      RunLamina({"serve", kModel, "--port", "0", "--prompt", "Once", "--max-tokens", "4", "--once",
                 "--trace-out", folder / "serve.json"});
  EXPECT_EQ(serve.exit_status, 0) << serve.err;
  for (const char* name : {"throughput.json", "modelled.json", "serve.json"}) {
    const Trace trace(folder / name);
    EXPECT_GE(trace.steps.size(), 2u) << name;
    EXPECT_GT((trace.sums.contains({2, "attention"}) ? trace.sums.at({2, "attention"}) : 0.0), 0.0)
        << name;
  }
}

TEST(TraceOption, AWrongPathIsAnErrorBeforeAnythingStarts) {
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"bench", "throughput", kModel},
        {"bench", "modelled", SourcePath("/configs/modelled-13b.yaml")},
        {"serve", kModel, "--port", "0"}}) {
    std::vector<std::string> arguments = command;
    arguments.insert(arguments.end(), {"--trace-out", "/absent/t.json"});
    const CommandOutput out = RunLamina(arguments);
    EXPECT_EQ(out.exit_status, 1);
    EXPECT_THAT(
        out.err,
        HasSubstr("trace file /absent/t.json cannot be written: No such file or directory"));
    EXPECT_EQ(out.out, "");
  }
}

}  // namespace trace_test
}  // namespace lamina::testing
