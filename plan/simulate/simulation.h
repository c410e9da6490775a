// Serves a workload in virtual time: the manager's steps (scheduler/batch_steps.h) on the real
// scheduler and KV allocator, with nodes whose times are computed (virtual_nodes.h). A run is a
// function of its input.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "manager/engine_options.h"
#include "plan/simulate/cluster_model.h"
#include "plan/simulate/host_costs.h"
#include "plan/simulate/usage.h"
#include "plan/workload/request_trace.h"

namespace lamina {

// Something that happens to a node while it runs.
struct NodeChange {
  enum class Kind { kSlow, kFail, kSlowLink };
  Kind kind = Kind::kSlow;
  std::string node;
  // kSlow: from then on all that the node does takes that many times as long as at first. It does
  // not add up with earlier changes. kSlowLink: so do copies between a compute node and its host's
  // memory that begin then, because others take a part of that link.
  double factor = 1;
  // When it happens, in virtual time.
  double at_s = 0;

  // Makes a kSlow, or a kSlowLink, of "m0:2.5@10s" and a kFail of "m0@10s". A time without a unit
  // is in seconds. kInvalidArgument says what was expected.
  static Result<NodeChange> ParseSlow(const std::string& text);
  static Result<NodeChange> ParseSlowLink(const std::string& text);
  static Result<NodeChange> ParseFail(const std::string& text);
  // Reads a YAML file: `events: [{at: 10s, slow: m0, factor: 2.5}, {at: 20s, fail: m1}]`, or
  // `slow_link` in place of `slow`. kNotFound if it cannot be read; kInvalidArgument as "FILE:LINE:
  // what is wrong".
  static Result<std::vector<NodeChange>> Load(const std::string& path);
};

// How a workload is served.
struct SimulationOptions {
  HostCosts host;
  // At most so many requests wait or run at a time; the next one comes when one ends. 0: requests
  // come when the workload says.
  int max_concurrency = 0;
  // K and V of prompts are there at once, and only decoding takes time, as in `lamina bench
  // modelled`.
  bool prompts_appear = false;
  std::vector<NodeChange> changes;
  // When a compute node is lost: the time until those that are left can go on.
  Clock::duration reconnect = milliseconds(50);
  // Called every 256 steps. May be empty.
  std::function<void(int64_t finished, double virtual_s)> progress;
};

// What became of one request.
struct RequestTimes {
  // kDropped: its first token was due while it waited.
  enum class Outcome : uint8_t { kUnfinished, kDone, kRefused, kDropped, kFailed };
  Outcome outcome = Outcome::kUnfinished;
  // Tokens of the prompt; tokens that were generated.
  int32_t input_tokens = 0, output_tokens = 0;
  TimePoint arrival, first_token, last_token;

  double ttft_s() const { return std::chrono::duration<double>(first_token - arrival).count(); }
  double e2e_s() const { return std::chrono::duration<double>(last_token - arrival).count(); }
  // REQUIRES: output_tokens > 1.
  double tpot_s() const {
    return std::chrono::duration<double>(last_token - first_token).count() / (output_tokens - 1);
  }
};

// What the loss of a node cost the requests that it interrupted: those that had tokens on a memory
// node; those that had a token already when a compute node was lost. Names and meanings are those
// of `lamina bench recovery`.
struct NodeLoss {
  std::string node;
  double at_s = 0;
  int64_t num_interrupted = 0, num_resumed = 0;
  // From the loss until the first and the last of them had its next token. 0: none has.
  double first_resumed_s = 0, last_resumed_s = 0;
  // Of the interrupted requests, prompts and what had been generated; K and V are computed anew.
  int64_t tokens_again = 0;
  // The longest time between two tokens of a request, by the end of which this was the last loss.
  double largest_gap_s = 0;         // of interrupted requests
  double largest_gap_others_s = 0;  // of the others
};

// A histogram of durations whose buckets are a quarter percent wide. Value type.
class DurationCounts {
 public:
  void Add(Clock::duration duration);
  int64_t count() const { return count_; }
  double mean_s() const { return count_ == 0 ? 0 : sum_s_ / static_cast<double>(count_); }
  double stddev_s() const;
  // The middle of the bucket that the percentile is in; 0 if there are no durations.
  double PercentileSeconds(double share) const;

 private:
  std::vector<int64_t> counts_;
  int64_t count_ = 0;
  double sum_s_ = 0, sum_squares_ = 0;
  // The last duration and its bucket: the tokens of one step have often waited for the same time.
  Clock::duration last_{-1};
  size_t last_index_ = 0;
};

// What a run showed. Times of one request are in `requests`, those of all in the rest.
struct SimulationResult {
  std::vector<RequestTimes> requests;  // in the workload's order
  // Requests of the workload's source that are not in the workload (RequestTrace::num_left_out).
  int64_t num_left_out = 0;
  DurationCounts token_gaps;  // between two tokens of a request
  UsageTimeline usage;
  TimePoint end;
  int64_t num_steps = 0, num_rows = 0, num_preemptions = 0;
  // Token slots in use at the end; 0 if every request has ended.
  int64_t used_tokens_at_end = 0;
  // Share of the time that each node was busy; network: of each compute node's NIC.
  std::vector<double> compute_busy, memory_busy, network_busy;
  int64_t num_kv_tokens = 0;  // token slots of all nodes
  // Sequences, and share of all token slots, over the time of the run.
  double mean_running = 0, mean_waiting = 0, mean_used_share = 0, peak_used_share = 0;
  std::vector<NodeLoss> losses;  // in the order of their times
  // Why nothing could be served any more; "" if all went on.
  std::string failure;
  // Number of refused requests by the reason: "longer than max_model_len, 2048 tokens".
  std::map<std::string, int64_t> refusals;
};

// The options of the engine that serves `workload` on `cluster`, in virtual time here and in real
// time where the two are compared.
EngineOptions EngineOptionsOf(const ClusterModel& cluster, const RequestTrace& workload,
                              const SimulationOptions& options);

// Serves the workload until every request has ended. kInvalidArgument if a change names a node that
// does not exist, or if the run takes more than ten years. That all nodes are lost is no error:
// `failure` says so.
Result<SimulationResult> Simulate(const ClusterModel& cluster, const RequestTrace& workload,
                                  const SimulationOptions& options);

}  // namespace lamina
