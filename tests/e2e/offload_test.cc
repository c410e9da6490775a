// Weights outside of memory in real processes: step times that are recorded, intervals that are
// chosen by them, and a bus that two nodes share.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "cost/step_profile.h"
#include "manager/cluster_executor.h"
#include "manager/local_cluster.h"
#include "manager/resolve_config.h"
#include "manager/serving_engine.h"
#include "splitter/weight_blocks.h"
#include "tests/support/expect_golden.h"
#include "tests/support/paths.h"
#include "tests/support/server_process.h"
#include "tests/support/serving.h"
#include "tests/support/temporary_folder.h"

namespace lamina::testing {
namespace offload_test {

using nlohmann::json;
using std::chrono::seconds;
using ::testing::HasSubstr;

const std::string kLlama13b = SourcePath("/configs/models/llama-13b");

class OffloadTest : public ::testing::Test {
 protected:
  void Write(const std::string& nodes, const std::string& more = "") {
    WriteFile(config_, "version: 1\ncluster: {name: outside, device_catalog: " +
                           SourcePath("/configs/devices.yaml") + "}\nnodes:\n" + nodes + more);
  }

  // Bytes of the 13B model's slices that lie outside.
  static double BytesOutside(int interval) {
    const ModelConfig model = *ModelConfig::Load(kLlama13b);
    const SlicedModel sliced = *SplitGraph(*TraceModel(model));
    const int n = static_cast<int>(sliced.slices.size());
    const std::vector<int64_t> blocks = BlockBytes(sliced, {0, n}, model.dtype);
    const std::vector<bool> outside = OutsideByInterval(n, interval);
    double bytes = 0;
    for (size_t i = 0; i < blocks.size(); ++i)
      bytes += outside[i] ? static_cast<double>(blocks[i]) : 0;
    return bytes;
  }

  const TemporaryFolder folder_;
  const std::string config_ = folder_ / "c.yaml", record_ = folder_ / "steps.csv";
};

TEST_F(OffloadTest, RecordedTimesAreThoseOfTheLink) {
  Write(
      "- {name: c0, role: compute, port: 7100, device: \"modelled:A100-40G\", memory: 2GB, "
      "offload: "
      "{interval: auto, record: steps.csv, gb_per_s: 100}}\n",
      "model: {path: " + kLlama13b + "}\n");
  const CommandOutput output =
      RunLamina({"bench", "record", config_, "--rows", "1,4", "--contexts", "64", "--prompts", "8",
                 "--steps", "2", "--check", "3", "--json"},
                seconds(120));
  ASSERT_EQ(output.exit_status, 0) << output.err;
  EXPECT_THAT(output.err, HasSubstr("decode, 4 x 64 tokens:"));
  const json errors = json::parse(output.out);
  EXPECT_EQ(errors["case"]["loads"], 3);
  EXPECT_GT(errors["value"], 0);
  const Result<StepProfile> profile = StepProfile::Load(record_);
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_EQ(profile->intervals().front(), 1);
  EXPECT_EQ(profile->intervals().back(), 0);
  for (const int interval : {1, 2}) {
    const double link = BytesOutside(interval) / 100e9;
    EXPECT_GT(profile->DecodeSeconds(interval, 1, 64), 0.95 * link) << interval;
    EXPECT_LT(profile->DecodeSeconds(interval, 1, 64), 1.5 * link) << interval;
    EXPECT_GT(profile->PrefillSeconds(interval, 8, 0), 0.95 * link) << interval;
  }
}

TEST_F(OffloadTest, RecordSaysWhatIsWrong) {
  const auto error_of = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"bench", "record", config_});
    const CommandOutput output = RunLamina(arguments, seconds(60));
    EXPECT_NE(output.exit_status, 0);
    return output.err;
  };
  Write("- {name: c0, role: compute, port: 7100, memory: 8MiB}\n",
        "model: {path: " + SourcePath("/models/tiny-stories") + "}\npipeline: {policy: none}\n");
  EXPECT_THAT(error_of({}), HasSubstr("no node has offload.record"));
  EXPECT_THAT(error_of({"--out", folder_ / "x/y.csv"}), HasSubstr("y.csv"));
  EXPECT_THAT(error_of({"--out", record_, "--rows", "64", "--contexts", "800", "--prompts", "8"}),
              HasSubstr("--rows"));
  Write(
      "- {name: c0, role: compute, port: 7100}\n- {name: m0, role: memory, port: 7101, memory: "
      "8MiB}\n",
      "model: {path: " + SourcePath("/models/tiny-stories") + "}\npipeline: {num_batches: 2}\n");
  EXPECT_THAT(error_of({"--out", record_}), HasSubstr("2 batches would be in flight"));
}

TEST_F(OffloadTest, SchedulesAreHeldAgainstEachOther) {
  Write(
      "- {name: c0, role: compute, port: 7100, memory: 8MiB, offload: {interval: auto, record: "
      "steps.csv, folder: " +
          std::string(folder_.path()) + ", gb_per_s: 0.05, buffers: 1}}\n",
      "model: {path: " + SourcePath("/models/tiny-stories") + "}\nlimits: {max_num_seqs: 8}\n");
  const CommandOutput recorded =
      RunLamina({"bench", "record", config_, "--rows", "4,8", "--contexts", "40", "--prompts",
                 "8,16", "--steps", "2"},
                seconds(120));
  ASSERT_EQ(recorded.exit_status, 0) << recorded.err;
  EXPECT_THAT(recorded.out, HasSubstr("written to " + record_));
  const CommandOutput output = RunLamina({"bench", "offload", config_, "--requests", "4",
                                          "--output-len", "12", "--slower", "9900,49900", "--json"},
                                         seconds(120));
  ASSERT_EQ(output.exit_status, 0) << output.err;
  std::vector<json> lines;
  std::istringstream text(output.out);
  for (std::string line; std::getline(text, line);) lines.push_back(json::parse(line));
  ASSERT_EQ(lines.size(), 2u * 4) << "best, chosen, deepspeed and flexgen of each objective";
  for (const json& line : lines) {
    EXPECT_EQ(line["name"], "offload");
    EXPECT_GT(line["details"]["objective_ms"], 0);
  }
  EXPECT_EQ(lines[4]["ratio"], 1);
  EXPECT_EQ(lines[5]["case"]["schedule"], "chosen");
  EXPECT_GT(lines[6]["value"], 0) << "with deepspeed all lies outside";
  EXPECT_GE(lines[6]["value"], lines[5]["value"]);

  const CommandOutput refused = RunLamina({"bench", "offload", config_, "--requests", "9"});
  EXPECT_NE(refused.exit_status, 0);
  EXPECT_THAT(refused.err, HasSubstr("--requests 9: the cluster serves 8 sequences at a time"));
}

// The TPOTs of two requests that come at once, each on its own compute node.
std::vector<double> ServeTwo(const std::string& path) {
  constexpr int kTokens = 14;
  Result<ClusterConfig> config = ClusterConfig::Load(path);
  EXPECT_TRUE(config.ok()) << config.status();
  const ModelConfig model = *ModelConfig::Load(config->model_path);
  const Status resolved = ResolveConfig(*config, model);
  EXPECT_TRUE(resolved.ok()) << resolved;
  const auto daemons = LocalCluster::CreateFor(*config);
  EXPECT_TRUE(daemons.ok()) << daemons.status();
  auto nodes = ClusterExecutor::Connect(*config, model, {});
  EXPECT_TRUE(nodes.ok()) << nodes.status();
  struct Times {
    Mutex mutex;
    std::vector<TimePoint> of[2] GUARDED_BY(mutex);
  } times;
  ServingEngine engine(ServingEngineOptions::Of(*config, model), std::move(*nodes));
  for (size_t i = 0; i < 2; ++i) {
    GenerateRequest request;
    request.prompt = {static_cast<TokenId>(1 + i)};
    request.max_new_tokens = kTokens;
    request.ignore_eos = true;
    const auto sink = [&times, i](const TokenEvent& event) {
      MutexLock lock(times.mutex);
      if (event.token) times.of[i].push_back(Clock::now());
    };
    EXPECT_TRUE(engine.Submit(std::move(request), sink).ok());
  }
  const auto both_done = [&times] {
    MutexLock lock(times.mutex);
    return times.of[0].size() == kTokens && times.of[1].size() == kTokens;
  };
  EXPECT_TRUE(AwaitTrue(both_done, Deadline::After(seconds(60))));
  std::vector<double> tpots;
  MutexLock lock(times.mutex);
  for (const std::vector<TimePoint>& of : times.of) {
    EXPECT_EQ(of.size(), size_t{kTokens});
    tpots.push_back(std::chrono::duration<double>(of.back() - of.front()).count() / (kTokens - 1));
  }
  return tpots;
}

TEST_F(OffloadTest, TwoNodesOnOneBusKeepTheirObjectiveOnlyWithRegardToEachOther) {
  const std::string bus = "test-" + std::to_string(getpid());
  constexpr double kRate = 25e9;
  std::vector<StepTime> steps;
  for (const int interval : {1, 2, 4, 8, 0}) {
    const double link = interval == 0 ? 0.02 : BytesOutside(interval) / kRate + 0.002;
    for (const double rows : {1, 2}) steps.push_back({false, interval, rows, 1, link});
  }
  WriteFile(record_, StepProfile::ToCsv(steps));
  const double objective = 1.1 * BytesOutside(4) / kRate;  // 279 ms
  const auto write = [&](bool coordinates) {
    std::string nodes;
    for (int i = 0; i < 2; ++i) {
      nodes += fmt::format(
          "- {{name: c{}, role: compute, port: {}, device: \"modelled:A100-40G\", offload: "
          "{{interval: auto, record: steps.csv, bus: {}}}}}\n",
          i, 7100 + i, bus);
    }
    Write(
        nodes +
            "- {name: m0, role: memory, port: 7110, device: \"modelled:A100-40G\", memory: 8GB}\n",
        fmt::format("model: {{path: {}}}\nbuses: [{{name: {}, gb_per_s: {}}}]\nslo: {{tpot: "
                    "{}us}}\nscheduling: {{coordinate_buses: {}}}\n",
                    kLlama13b, bus, kRate / 1e9, static_cast<int>(1e6 * objective), coordinates));
  };
  write(true);
  for (const double tpot : ServeTwo(config_)) EXPECT_LE(tpot, objective);
  write(false);
  EXPECT_GT(std::ranges::max(ServeTwo(config_)), 1.2 * objective);
  EXPECT_NE(access(fmt::format("/dev/shm/lamina-bus-{}-{}", geteuid(), bus).c_str(), F_OK), 0)
      << "it goes with the nodes";
}

// The largest capacity in tokens that the engine has had, and whether it came down from there.
class CapacityWatch {
 public:
  explicit CapacityWatch(Engine& engine)
      : first_(Capacity(engine)), thread_([this, &engine](const std::stop_token& stop) {
          while (!stop.stop_requested()) {
            const int64_t now = Capacity(engine);
            most_ = std::max<int64_t>(most_, now);
            if (now == first_ && most_ > first_) came_down_ = true;
            std::this_thread::sleep_for(milliseconds(1));
          }
        }) {}

  bool grew() const { return most_ > first_; }
  bool came_down() const { return came_down_; }

 private:
  static int64_t Capacity(Engine& engine) {
    return engine.status().scheduler.nodes.at(0).capacity_tokens;
  }

  const int64_t first_;
  std::atomic<int64_t> most_ = 0;
  std::atomic<bool> came_down_ = false;
  std::jthread thread_;
};

// Requests wait for room, so that there is to be more; but layers come and go too slowly for the
// steps of so small a model, so that there is less again. Sequences lose their slots by that.
TEST_F(OffloadTest, CapacitiesComeAndGoAndTokensAreTheSame) {
  const std::vector<GoldenPrompt> golden = GoldenPrompts(DType::kBF16);
  const ModelConfig model = *ModelConfig::Load(TinyStoriesDir());
  for (const int num_memory_nodes : {0, 1}) {
    Deployment deployment;
    deployment.num_memory_nodes = num_memory_nodes;
    deployment.num_batches = 1;
    deployment.max_num_seqs = 8;
    deployment.memory_bytes = KvBytesPerToken(model, deployment.kv_dtype) * 240;
    OffloadOptions& layers =
        num_memory_nodes == 0 ? deployment.kv_offload : deployment.memory_offload;
    layers = {.expansion = 2,
              .is_auto = true,
              .folder = folder_.path(),
              .gb_per_s = 0.02,
              .poison = true};
    Result<std::unique_ptr<Serving>> serving = Serving::Create(deployment);
    ASSERT_TRUE(serving.ok()) << serving.status();
    Engine& engine = *(*serving)->engine;
    const CapacityWatch watch(engine);
    const Deadline deadline = Deadline::After(seconds(120));
    while (!watch.came_down() && !deadline.Passed())
      ExpectGolden(engine, golden, seconds(60), LogprobTolerance(deployment.kv_dtype));
    EXPECT_TRUE(watch.grew()) << num_memory_nodes;
    EXPECT_TRUE(watch.came_down()) << num_memory_nodes;
    EXPECT_EQ(AwaitNoTokens(engine, Deadline::After(seconds(10))), "");
  }
}

}  // namespace offload_test
}  // namespace lamina::testing
