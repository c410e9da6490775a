#include "api/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <map>
#include <type_traits>
#include <vector>

#include "base/mutex.h"

namespace lamina {
namespace {

using prometheus::Counter;
using prometheus::Gauge;
using prometheus::Histogram;
using Buckets = Histogram::BucketBoundaries;

// As in vLLM, so that quantiles on existing boards mean the same.
const Buckets kTimeToFirstToken = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,
                                   0.25,  0.5,   0.75, 1,    2.5,  5,    7.5,  10,
                                   20,    40,    80,   160,  640,  2560};
const Buckets kInterToken = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5,
                             0.75, 1,     2.5,  5,     7.5, 10,   20,  40,  80};
const Buckets kRequestSeconds = {0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                 30,  40,  50,  60, 120, 240, 480, 960, 1920, 7680};
const Buckets kTokens = {1,    2,    5,    10,    20,    50,    100,    200,   500,
                         1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000};
const Buckets kIterationTokens = {1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};

// A step lasts from a fraction of a millisecond (small models, one host) to seconds (long prefill
// chunks on CPUs).
const Buckets kStepSeconds = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
                              0.1,    0.25,  0.5,    1,     2.5,  5,     10};

// Metrics with one fixed set of labels.
class Group {
 public:
  Group(prometheus::Registry& registry, prometheus::Labels labels)
      : registry_(registry), labels_(std::move(labels)) {}

  Counter& AddCounter(const char* name, const char* help, const prometheus::Labels& more = {}) {
    return prometheus::BuildCounter().Name(name).Help(help).Register(registry_).Add(With(more));
  }
  Gauge& AddGauge(const char* name, const char* help) {
    return prometheus::BuildGauge().Name(name).Help(help).Register(registry_).Add(labels_);
  }
  Histogram& AddHistogram(const char* name, const char* help, const Buckets& buckets) {
    return prometheus::BuildHistogram().Name(name).Help(help).Register(registry_).Add(labels_,
                                                                                      buckets);
  }

 private:
  prometheus::Labels With(const prometheus::Labels& more) const {
    prometheus::Labels labels = labels_;
    labels.insert(more.begin(), more.end());
    return labels;
  }

  prometheus::Registry& registry_;
  prometheus::Labels labels_;
};

// A gauge or a counter for each node of the cluster.
template <typename Metric>
class OfNodes {
 public:
  OfNodes(prometheus::Registry& registry, const std::string& name, const std::string& help)
      : family_(prometheus::detail::Builder<Metric>().Name(name).Help(help).Register(registry)) {}

  void Set(const NodeStatus& node, double value, const prometheus::Labels& more = {}) {
    prometheus::Labels labels = {{"node", node.name},
                                 {"role", std::string(NodeRoleName(node.role))}};
    labels.insert(more.begin(), more.end());
    Metric*& metric = metrics_[labels];
    if (metric == nullptr) metric = &family_.Add(labels);
    if constexpr (std::is_same_v<Metric, Gauge>) {
      metric->Set(value);
    } else if (value > metric->Value()) {
      metric->Increment(value - metric->Value());
    }
  }

  void Forget() {
    for (const auto& [key, metric] : metrics_) family_.Remove(metric);
    metrics_.clear();
  }

 private:
  prometheus::Family<Metric>& family_;
  std::map<prometheus::Labels, Metric*> metrics_;
};

using NodeGauge = OfNodes<Gauge>;
using NodeCounter = OfNodes<Counter>;

// The kinds of work of wire/step_times.h, and which nodes have them.
struct TimedWork {
  StepWork work;
  const char* name;
  const char* help;
  bool compute, memory;
};
constexpr TimedWork kTimedWork[] = {
    {StepWork::kSlice, "slice", "Running slices.", true, false},
    {StepWork::kPost, "post", "Gathering and posting q, k and v; attention of prompts.", true,
     false},
    {StepWork::kTake, "take", "Copying and merging attention outputs.", true, false},
    {StepWork::kSample, "sample", "Choosing tokens.", true, false},
    {StepWork::kQWire, "q_wire", "Messages with q, k and v on their way to the node.", false, true},
    {StepWork::kQueue, "attention_queue", "Messages that were there and waited for the node.",
     false, true},
    {StepWork::kAttention, "attention", "Attention, storing the new tokens included.", false, true},
    {StepWork::kOutputWire, "output_wire",
     "Outputs on their way back, until the compute node has taken them.", false, true},
    {StepWork::kBubble, "bubble", "Having a step under way and nothing to do.", true, true},
};

}  // namespace

struct Metrics::Families {
  explicit Families(const std::string& model_name)
      : group(registry, {{"model_name", model_name}, {"engine", "0"}}) {
    for (const TimedWork& timed : kTimedWork) {
      times.push_back(std::make_unique<NodeCounter>(
          registry, std::string("lamina:") + timed.name + "_seconds_total",
          std::string("Seconds by node: ") + timed.help));
    }
  }

  Counter& Success(const char* reason) {
    return group.AddCounter("vllm:request_success_total", "Requests that ended, by reason.",
                            {{"finished_reason", reason}});
  }

  Counter& SloMissed(const char* missed) {
    return group.AddCounter("lamina:slo_missed_total",
                            "Answers with objectives that ended without keeping them, by which.",
                            {{"missed", missed}});
  }

  Counter& Of(SloOutcome outcome) {
    switch (outcome) {
      case SloOutcome::kMet: break;
      case SloOutcome::kMissedTtft: return slo_missed_ttft;
      case SloOutcome::kMissedTpot: return slo_missed_tpot;
      case SloOutcome::kMissedBoth: return slo_missed_both;
      case SloOutcome::kDropped: return slo_dropped;
    }
    return slo_met;
  }

  prometheus::Registry registry;
  Group group;

  Gauge& running = group.AddGauge("vllm:num_requests_running", "Sequences that hold KV cache.");
  Gauge& waiting = group.AddGauge("vllm:num_requests_waiting", "Sequences that wait.");
  Gauge& parked = group.AddGauge("lamina:num_requests_parked",
                                 "Sequences that wait for a node that could hold them.");
  Gauge& suspended =
      group.AddGauge("lamina:num_requests_suspended",
                     "Sequences that sit out because a memory node with their KV is late.");
  Gauge& rebuilding =
      group.AddGauge("lamina:num_requests_rebuilding",
                     "Sequences whose KV was lost and that have got no token since.");
  Gauge& offload_interval = group.AddGauge(
      "lamina:offload_interval",
      "Of so many slices in a row the weights of one lie outside of memory in the last step, where "
      "that is chosen by objectives; 0: none do.");
  Gauge& kv_usage =
      group.AddGauge("vllm:kv_cache_usage_perc", "Used share of all KV token slots, 0 to 1.");
  Counter& preemptions = group.AddCounter("vllm:num_preemptions_total",
                                          "Sequences that lost their KV cache for a while.");
  Counter& prompt_tokens = group.AddCounter("vllm:prompt_tokens_total", "Prefill tokens computed.");
  Counter& generation_tokens =
      group.AddCounter("vllm:generation_tokens_total", "Tokens generated.");
  Counter& prefix_queries =
      group.AddCounter("vllm:prefix_cache_queries_total", "Tokens of sequences when they started.");
  Counter& prefix_hits =
      group.AddCounter("vllm:prefix_cache_hits_total",
                       "Of those: tokens whose KV was there from a sequence that began alike.");
  Counter& left_tokens = group.AddCounter(
      "lamina:left_kv_tokens_total",
      "Tokens of sequences that went on with KV which the manager before had left.");
  Counter& stopped = Success("stop");
  Counter& length = Success("length");
  Counter& aborted = Success("abort");
  Counter& failed = Success("error");
  Counter& slo_met =
      group.AddCounter("lamina:slo_met_total", "Answers that kept all of their objectives.");
  Counter& slo_missed_ttft = SloMissed("ttft");
  Counter& slo_missed_tpot = SloMissed("tpot");
  Counter& slo_missed_both = SloMissed("both");
  Counter& slo_dropped = SloMissed("dropped");
  Histogram& first_token = group.AddHistogram(
      "vllm:time_to_first_token_seconds", "From arrival to the first token.", kTimeToFirstToken);
  Histogram& inter_token = group.AddHistogram("vllm:inter_token_latency_seconds",
                                              "Between two tokens of a sequence.", kInterToken);
  Histogram& e2e = group.AddHistogram("vllm:e2e_request_latency_seconds",
                                      "From arrival to the end.", kRequestSeconds);
  Histogram& queue = group.AddHistogram("vllm:request_queue_time_seconds",
                                        "Waiting before prefill.", kRequestSeconds);
  Histogram& prefill =
      group.AddHistogram("vllm:request_prefill_time_seconds",
                         "From the start of prefill to the first token.", kRequestSeconds);
  Histogram& decode = group.AddHistogram("vllm:request_decode_time_seconds",
                                         "From the first token to the last.", kRequestSeconds);
  Histogram& request_prompt =
      group.AddHistogram("vllm:request_prompt_tokens", "Prompt tokens of a request.", kTokens);
  Histogram& request_output = group.AddHistogram("vllm:request_generation_tokens",
                                                 "Generated tokens of a request.", kTokens);
  Histogram& iteration =
      group.AddHistogram("vllm:iteration_tokens_total", "Tokens of one step.", kIterationTokens);
  Histogram& step_seconds =
      group.AddHistogram("lamina:step_seconds", "Duration of one step.", kStepSeconds);
  Histogram& attention_wait = group.AddHistogram(
      "lamina:attention_wait_seconds", "Part of a step that compute nodes waited for memory nodes.",
      kStepSeconds);
  Counter& to_memory =
      group.AddCounter("lamina:bytes_to_memory_nodes_total", "Bytes sent to memory nodes.");
  Counter& from_memory =
      group.AddCounter("lamina:bytes_from_memory_nodes_total", "Bytes received from memory nodes.");

  Mutex nodes_mutex;
  NodeGauge slots_used GUARDED_BY(nodes_mutex){registry, "lamina:kv_slots_used",
                                               "Token slots in use on a node."};
  NodeGauge slots_capacity GUARDED_BY(nodes_mutex){registry, "lamina:kv_slots_capacity",
                                                   "Token slots of a node."};
  NodeGauge node_up GUARDED_BY(nodes_mutex){
      registry, "lamina:node_up", "1 if the node is ready, or ready to take a place, else 0."};
  NodeGauge stale_messages GUARDED_BY(nodes_mutex){
      registry, "lamina:stale_messages",
      "Late or duplicate messages that a node has dropped since it was configured."};
  NodeGauge data_path GUARDED_BY(nodes_mutex){
      registry, "lamina:data_path", "1 for the fabric by which a compute node reaches the node."};
  // One for each kTimedWork, in its order.
  std::vector<std::unique_ptr<NodeCounter>> times GUARDED_BY(nodes_mutex);
};

Metrics::Metrics(const std::string& model_name)
    : families_(std::make_unique<Families>(model_name)) {}
Metrics::~Metrics() = default;

void Metrics::OnFirstToken(double time_to_first_token) {
  families_->first_token.Observe(time_to_first_token);
  families_->generation_tokens.Increment();
}

void Metrics::OnNextToken(double since_last) {
  families_->inter_token.Observe(since_last);
  families_->generation_tokens.Increment();
}

void Metrics::OnFinished(const Finished& finished) {
  switch (finished.reason) {
    case FinishReason::kStop: families_->stopped.Increment(); break;
    case FinishReason::kLength: families_->length.Increment(); break;
    case FinishReason::kAbort: families_->aborted.Increment(); break;
    case FinishReason::kError: families_->failed.Increment(); break;
  }
  if (finished.slo) families_->Of(*finished.slo).Increment();
  families_->request_prompt.Observe(static_cast<double>(finished.prompt_tokens));
  families_->request_output.Observe(static_cast<double>(finished.output_tokens));
  if (finished.queue) families_->queue.Observe(*finished.queue);
  if (finished.prefill) families_->prefill.Observe(*finished.prefill);
  families_->decode.Observe(finished.decode);
  families_->e2e.Observe(finished.e2e);
}

void Metrics::OnStep(const Step& step) {
  families_->prompt_tokens.Increment(static_cast<double>(step.num_prefill_tokens));
  families_->iteration.Observe(static_cast<double>(step.num_decode + step.num_prefill_tokens));
  families_->step_seconds.Observe(step.total);
  families_->attention_wait.Observe(step.attention_wait);
  families_->to_memory.Increment(static_cast<double>(step.bytes_to_memory));
  families_->from_memory.Increment(static_cast<double>(step.bytes_from_memory));
  if (step.offload_interval) families_->offload_interval.Set(*step.offload_interval);
}

Metrics::Totals Metrics::totals() const {
  return {families_->prompt_tokens.Value(), families_->generation_tokens.Value(),
          families_->stopped.Value() + families_->length.Value() + families_->aborted.Value() +
              families_->failed.Value()};
}

std::string Metrics::Serialize(const EngineStatus& status) {
  MutexLock lock(families_->nodes_mutex);
  families_->running.Set(status.scheduler.num_running);
  families_->waiting.Set(status.scheduler.num_waiting);
  families_->parked.Set(status.scheduler.num_parked);
  families_->suspended.Set(status.scheduler.num_suspended);
  families_->rebuilding.Set(status.num_rebuilding);
  const auto count = [](Counter& counter, int64_t total) {
    if (const double more = static_cast<double>(total) - counter.Value(); more > 0)
      counter.Increment(more);
  };
  count(families_->preemptions, status.scheduler.num_preemptions);
  count(families_->prefix_queries, status.scheduler.num_started_tokens);
  count(families_->prefix_hits, status.scheduler.num_shared_tokens);
  count(families_->left_tokens, status.scheduler.num_left_tokens);
  double used = 0;
  double capacity = 0;
  for (const NodeUse& node : status.scheduler.nodes) {
    used += static_cast<double>(node.used_tokens);
    capacity += static_cast<double>(node.capacity_tokens);
  }
  families_->kv_usage.Set(capacity > 0 ? used / capacity : 0);
  for (NodeGauge* gauge : {&families_->slots_used, &families_->slots_capacity, &families_->node_up,
                           &families_->stale_messages, &families_->data_path})
    gauge->Forget();
  for (const std::unique_ptr<NodeCounter>& counter : families_->times) counter->Forget();
  for (const NodeStatus& node : status.nodes) {
    for (size_t i = 0; i < families_->times.size(); ++i) {
      const TimedWork& timed = kTimedWork[i];
      if (node.role == NodeRole::kCompute ? timed.compute : timed.memory)
        families_->times[i]->Set(node, static_cast<double>(node.times.of(timed.work)) * 1e-9);
    }
    families_->node_up.Set(node, node.state == NodeState::kReady ? 1 : 0);
    families_->stale_messages.Set(node, static_cast<double>(node.stale_messages));
    // Why others were not used is text of many forms, which would make new series: `lamina cluster
    // status` has it.
    for (const DataPathStatus& path : node.paths)
      families_->data_path.Set(node, 1, {{"from", path.from}, {"fabric", path.fabric}});
    if (node.capacity_tokens == 0) continue;  // keeps no KV
    families_->slots_used.Set(node, static_cast<double>(node.used_tokens));
    families_->slots_capacity.Set(node, static_cast<double>(node.capacity_tokens));
  }
  for (const NodeStatus& node : status.standbys)
    families_->node_up.Set(node, node.state == NodeState::kStandby ? 1 : 0);
  return prometheus::TextSerializer().Serialize(families_->registry.Collect());
}

}  // namespace lamina
