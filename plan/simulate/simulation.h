// Serves a workload in virtual time: the manager's loop (manager/serving_engine.h) on the real
// scheduler and KV allocator, with nodes whose times are computed. A run is a function of its
// input.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "manager/serving_engine.h"
#include "plan/simulate/cluster_model.h"
#include "plan/simulate/host_costs.h"
#include "plan/simulate/usage.h"
#include "plan/workload/request_trace.h"

namespace lamina {

// Happens to a node while it runs.
struct NodeChange {
  enum class Kind { kSlow, kFail };
  Kind kind = Kind::kSlow;
  std::string node;
  // kSlow: all it does takes that many times as long from then on; 1: as at first.
  double factor = 1;
  double at_s = 0;

  // "m0:2.5@10s": kSlow. "m0@10s": kFail. A time without a unit is in seconds. kInvalidArgument
  // says what was expected.
  static Result<NodeChange> ParseSlow(const std::string& text);
  static Result<NodeChange> ParseFail(const std::string& text);
  // A YAML file: `events: [{at: 10s, slow: m0, factor: 2.5}, {at: 20s, fail: m1}]`.
  static Result<std::vector<NodeChange>> Load(const std::string& path);
};

struct SimulationOptions {
  HostCosts host;
  // Requests that wait or run at a time, the next one comes when one ends; 0: they come when they
  // come.
  int max_concurrency = 0;
  // As `lamina bench modelled`: K and V of prompts are there at once, only decoding takes time.
  bool prompts_appear = false;
  std::vector<NodeChange> changes;
  // Until the compute nodes that are left can go on when one is lost.
  Clock::duration reconnect = milliseconds(50);
  std::function<void(int64_t finished, double virtual_s)> progress;  // now and then; may be empty
};

struct RequestTimes {
  enum class Outcome : uint8_t { kUnfinished, kDone, kRefused, kFailed };
  Outcome outcome = Outcome::kUnfinished;
  int32_t input_tokens = 0, output_tokens = 0;  // generated
  TimePoint arrival, first_token, last_token;

  double ttft_s() const { return std::chrono::duration<double>(first_token - arrival).count(); }
  double e2e_s() const { return std::chrono::duration<double>(last_token - arrival).count(); }
  double tpot_s() const {  // REQUIRES: output_tokens > 1
    return std::chrono::duration<double>(last_token - first_token).count() / (output_tokens - 1);
  }
};

// Counts of durations, in steps of a quarter percent. Value type.
class DurationCounts {
 public:
  void Add(Clock::duration duration);
  int64_t count() const { return count_; }
  double mean_s() const { return count_ == 0 ? 0 : sum_s_ / static_cast<double>(count_); }
  double stddev_s() const;
  double PercentileSeconds(double share) const;  // 0 if there are none

 private:
  std::vector<int64_t> counts_;
  int64_t count_ = 0;
  double sum_s_ = 0, sum_squares_ = 0;
  Clock::duration last_{-1};  // many tokens of one step have waited as long
  size_t last_index_ = 0;
};

struct SimulationResult {
  std::vector<RequestTimes> requests;  // in the workload's order
  int64_t num_left_out = 0;            // of the workload's source, which has more (RequestTrace)
  DurationCounts token_gaps;           // between two tokens of a request
  UsageTimeline usage;
  TimePoint end;
  int64_t num_steps = 0, num_rows = 0, num_preemptions = 0;
  // Token slots; 0 if every request ended.
  int64_t used_tokens_at_end = 0;
  // Share of the time, by node; of compute nodes' NICs.
  std::vector<double> compute_busy, memory_busy, network_busy;
  int64_t num_kv_tokens = 0;  // slots of all nodes
  double mean_running = 0, mean_waiting = 0, mean_used_share = 0, peak_used_share = 0;
  std::string failure;  // why nothing could be served any more; else ""
  // Requests by why: "longer than max_model_len, 2048 tokens".
  std::map<std::string, int64_t> refusals;
};

// The engine that serves `workload` on `cluster`, in virtual time and in real time.
ServingEngineOptions EngineOptionsOf(const ClusterModel& cluster, const RequestTrace& workload,
                                     const SimulationOptions& options);

// kInvalidArgument: an event names a node that there is not.
Result<SimulationResult> Simulate(const ClusterModel& cluster, const RequestTrace& workload,
                                  const SimulationOptions& options);

}  // namespace lamina
