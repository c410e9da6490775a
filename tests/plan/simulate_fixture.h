// A cluster for the simulator whose times can be worked out by hand, and workloads for it.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <sstream>
#include <string>
#include <utility>

#include "plan/simulate/simulation.h"
#include "plan/simulate/simulation_report.h"
#include "plan/workload/random_stream.h"
#include "tests/support/paths.h"
#include "tests/support/temporary_folder.h"

namespace lamina::testing {

// LLaMA-13B. The compute device is bound by arithmetic alone, 100 TFLOP/s, the memory device by its
// bandwidth alone, 1 TB/s.
inline constexpr double kHidden = 5120, kInner = 13824, kVocabulary = 32000, kFlops = 100e12,
                        kBandwidth = 1e12;
inline constexpr int kLayers = 40;
inline constexpr double kQkvWeights = 3 * kHidden * kHidden,
                        kRestWeights = kHidden * kHidden + 3 * kHidden * kInner;

inline double LinearTime(double weights, double rows) { return 2 * weights * rows / kFlops; }
inline double SliceTime(int k, double rows, double sampled) {
  if (k == 0) return LinearTime(kQkvWeights, rows);
  if (k == kLayers) return LinearTime(kRestWeights + kHidden * kVocabulary, sampled);
  return LinearTime(kRestWeights + kQkvWeights, rows);
}
// One layer, rows over so many tokens together, in bytes of 2 per element: K and V, and of each row
// q, output, k and v.
inline double AttentionTime(double rows, double tokens) {
  return 2 * (2 * kHidden * tokens + 4 * kHidden * rows) / kBandwidth;
}
inline double PromptAttentionTime(double tokens) {
  return 4 * kHidden * (tokens * (tokens + 1) / 2) / kFlops;
}

inline double StepTime(double rows, double attention) {
  double seconds = kLayers * attention;
  for (int k = 0; k <= kLayers; ++k) seconds += SliceTime(k, rows, rows);
  return seconds;
}

class SimulateTest : public ::testing::Test {
 protected:
  SimulateTest() {
    WriteFile(folder_ / "devices.yaml",
              "version: 1\n"
              "devices:\n"
              "- {name: Flops, bf16_tflops: 100, memory: 80GB, bandwidth_gb_per_s: 1000000000, "
              "mfu: [{batch: 1, mfu: 1}], source: made up}\n"
              "- {name: Bytes, bf16_tflops: 1000000000, memory: 80GB, bandwidth_gb_per_s: 1000, "
              "mfu: [{batch: 1, mfu: 1}], source: made up}\n");
  }

  ClusterModel Cluster(int num_compute, int num_memory, const std::string& memory,
                       const std::string& more = "") {
    std::string yaml =
        "version: 1\ncluster: {name: made-up, device_catalog: devices.yaml}\nnodes:\n";
    for (int i = 0; i < num_compute; ++i)
      yaml += "- {name: c" + std::to_string(i) +
              ", role: compute, port: " + std::to_string(7000 + i) +
              ", device: \"modelled:Flops\"}\n";
    for (int i = 0; i < num_memory; ++i)
      yaml += "- {name: m" + std::to_string(i) +
              ", role: memory, port: " + std::to_string(7100 + i) +
              ", device: \"modelled:Bytes\", memory: " + memory + "}\n";
    yaml += "model: {path: " + SourcePath("/configs/models/llama-13b") + "}\n" + more;
    WriteFile(folder_ / "cluster.yaml", yaml);
    Result<ClusterModel> cluster = ClusterModel::Load(folder_ / "cluster.yaml", {});
    EXPECT_TRUE(cluster.ok()) << cluster.status().message();
    return std::move(*cluster);
  }

  SimulationResult Run(const ClusterModel& cluster, const RequestTrace& workload,
                       const SimulationOptions& options = {}) {
    Result<SimulationResult> result = Simulate(cluster, workload, options);
    EXPECT_TRUE(result.ok()) << result.status().message();
    return std::move(*result);
  }

  TemporaryFolder folder_;
};

inline RequestTrace Alike(int count, int64_t input, int64_t output, double gap_s = 0) {
  RequestTrace trace;
  for (int i = 0; i < count; ++i) {
    TraceRequest& request = trace.requests.emplace_back();
    request.arrival_seconds = gap_s * i;
    request.input_tokens = input;
    request.output_tokens = output;
  }
  return trace;
}

inline RequestTrace Mixed(int count, uint64_t seed, double mean_gap_s) {
  RequestTrace trace;
  RandomStream random(seed, 1);
  double now = 0;
  for (int i = 0; i < count; ++i) {
    TraceRequest& request = trace.requests.emplace_back();
    request.arrival_seconds = now += 2 * mean_gap_s * random.Unit();
    request.input_tokens = random.Between(1, 400);
    request.output_tokens = random.Between(1, 200);
  }
  return trace;
}

inline std::string Lines(const SimulationResult& result) {
  std::ostringstream out;
  WriteRequests(result, out);
  return out.str();
}

// Each of some hundred pieces of a step is rounded to a nanosecond.
inline constexpr double kNanosecondsOfASlice = 300e-9;

}  // namespace lamina::testing
