// The engine: takes requests, asks the scheduler for one step after another, has nodes carry it
// out, and hands tokens back.
//
// This is the manager's loop. A step: NextStep -> Submit -> (nodes work) -> kStepDone -> tokens to
// sinks -> CompleteStep -> NextStep. Each batch has at most one step in flight.
//
// When a compute node is lost, or a step comes too late, the nodes that are left are connected anew
// and every sequence starts again there with the tokens it has: requests only wait. When a memory
// node is lost, sequences with KV on it fail. Nodes that are lost are looked for: one that could
// serve again is connected, with an empty pool, in the same way.
//
// When too little is left to serve with (no memory node, no compute node, or not all that share a
// model) every request fails and new ones are refused, while nodes are still looked for. If that
// does not help within `give_up_after`, the engine gives up: given_up() says why.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/inbox.h"
#include "base/mutex.h"
#include "base/pause_watch.h"
#include "manager/cluster_config.h"
#include "manager/engine.h"
#include "manager/node_outages.h"
#include "manager/step_executor.h"
#include "scheduler/scheduler.h"
#include "scheduler/step_cycle.h"

namespace lamina {

struct ServingEngineOptions {
  SchedulerOptions scheduler;
  Pipeline pipeline;
  // Another is taken when steps show that it is faster; num_batches is then the most.
  bool chooses_pipeline = false;
  int num_compute_nodes = 1;
  int pipeline_parallel_size = 1, tensor_parallel_size = 1;  // as manager/cluster_config.h
  std::vector<TokenId> eos_tokens;
  int64_t vocab_size = 0;
  Clock::duration step_timeout = std::chrono::seconds(60);
  int64_t spread_tokens = 0;  // sequences of more tokens are spread over nodes; 0: none is
  // None: when a compute node or the last memory node is lost, the engine gives up.
  Reconnect reconnect;
  LookForNodes look;  // none: a node that is lost stays so
  // Of this engine; its destructor asks, and `reconnect` and `look` then wait for nobody any more.
  std::stop_source stop;
  RetryOptions retry;
  Clock::duration give_up_after = std::chrono::seconds(60);  // of serving nothing
  // Of connecting nodes anew: the status says so then.
  Clock::duration stands_still_after = std::chrono::seconds(5);
  EngineObserver* observer = nullptr;  // borrowed; may be null

  // REQUIRES: ResolveConfig accepted `config`.
  static ServingEngineOptions Of(const ClusterConfig& config, const ModelConfig& model);

  StepCycleOptions cycle() const;
};

class ServingEngine : public Engine {
 public:
  // Takes the scheduler's policies; null: FIFO, and least loaded or spread as the options say.
  ServingEngine(const ServingEngineOptions& options, std::unique_ptr<StepExecutor> executor,
                std::unique_ptr<QueuePolicy> queue = nullptr,
                std::unique_ptr<PlacementPolicy> placement = nullptr);
  ~ServingEngine() override;

  Result<RequestId> Submit(GenerateRequest request, Sink sink) override;
  void Abort(RequestId request) override;
  void Stop(RequestId request, int index) override;
  EngineStatus status() override;
  int64_t max_model_len() const override { return options_.scheduler.max_model_len; }
  std::span<const TokenId> eos_tokens() const override { return options_.eos_tokens; }

  // Not ok once nothing will be served any more: why. Thread: any.
  Status given_up();

 private:
  struct Continuation {
    RequestId request;
    int index = 0;
    int64_t num_generated = 0;
    TimePoint submitted, first_token, last_token;
    std::optional<TimePoint> started;  // first prefill chunk sent
    int64_t num_cached = 0;            // as TokenEvent's
    int num_late_steps = 0;            // that it was in and that were not answered in time
  };
  struct Request {
    GenerateRequest spec;
    Sink sink;
    std::vector<SequenceId> sequences;  // [n]
    int num_open = 0;
  };
  // A sink call that is made after the lock is released.
  struct Delivery {
    Sink sink;
    TokenEvent event;
  };
  using Deliveries = std::vector<Delivery>;
  struct InFlight {
    StepPlan plan;
    Deadline deadline;
  };

  void Loop();
  void HandleEvent(const ExecutorEvent& event, Deliveries& out) REQUIRES(mutex_);
  void CompleteStep(const StepResult& result, Deliveries& out) REQUIRES(mutex_);
  void ObserveStep(const StepPlan& plan, const StepResult& result) REQUIRES(mutex_);
  void ChoosePipeline(const StepPlan& plan, const StepResult& result) REQUIRES(mutex_);
  void DeliverToken(const NewToken& sampled, Deliveries& out) REQUIRES(mutex_);
  void SubmitSteps() REQUIRES(mutex_);
  bool SubmitNextStep(size_t batch) REQUIRES(mutex_);
  TimePoint CheckDeadlines(Deliveries& out) REQUIRES(mutex_);  // returns the next one
  void FinishSequence(SequenceId sequence, TokenEvent event, Deliveries& out) REQUIRES(mutex_);
  void FailSequence(SequenceId sequence, const Status& status, Deliveries& out) REQUIRES(mutex_);
  void FailAll(const Status& status, Deliveries& out) REQUIRES(mutex_);

  // Losses and returns: serving_outage.cc.
  void LoseNode(NodeId node, const Status& status, Deliveries& out) REQUIRES(mutex_);
  // Which holds no KV any more.
  void FailSequencesOf(NodeId kv_node, const Status& status, Deliveries& out) REQUIRES(mutex_);
  void LoseCompute(NodeId node, const Status& status, Deliveries& out) REQUIRES(mutex_);
  void LoseStep(const Status& status, Deliveries& out) REQUIRES(mutex_);
  void BeginReconnecting(std::map<NodeId, std::string> left_out,
                         std::map<NodeId, std::string> doubtful = {}) REQUIRES(mutex_);
  void TakeReconnected(Deliveries& out) REQUIRES(mutex_);
  void TakePools(const std::vector<NodeStatus>& nodes, Deliveries& out) REQUIRES(mutex_);
  void UsePipelineOf(const std::vector<NodeStatus>& nodes) REQUIRES(mutex_);
  void BeginOutage(const Status& status, Deliveries& out) REQUIRES(mutex_);
  void GiveUp(const Status& status, Deliveries& out) REQUIRES(mutex_);
  void TryAgainIfDue(Deliveries& out) REQUIRES(mutex_);
  void TakeFound() REQUIRES(mutex_);
  TimePoint next_try() const REQUIRES(mutex_);  // the end of time: none is due
  void NoticePause() REQUIRES(mutex_);
  Status WithPause(const Status& loss) const REQUIRES(mutex_);
  Status WhyNotServing() const REQUIRES(mutex_);
  void StartExecutor(std::shared_ptr<StepExecutor> executor) REQUIRES(mutex_);
  NewSequence Announce(SequenceId sequence) const REQUIRES(mutex_);
  Status Check(const GenerateRequest& request) const REQUIRES(mutex_);
  bool BansEveryToken(const GenerateRequest& request) const;  // until it has min_tokens
  void Observe(const Continuation& continuation, FinishReason reason, const Request& request);

  const ServingEngineOptions options_;
  Mutex mutex_;
  Scheduler scheduler_ GUARDED_BY(mutex_);
  std::unordered_map<RequestId, Request> requests_ GUARDED_BY(mutex_);
  std::unordered_map<SequenceId, Continuation> continuations_ GUARDED_BY(mutex_);
  uint64_t last_request_ GUARDED_BY(mutex_) = 0, last_sequence_ GUARDED_BY(mutex_) = 0;
  // Made outside the engine's thread, delivered on it.
  Deliveries pending_ GUARDED_BY(mutex_);
  std::vector<std::optional<InFlight>> in_flight_ GUARDED_BY(mutex_);  // by batch
  StepCycle cycle_ GUARDED_BY(mutex_);
  NodeOutages outages_ GUARDED_BY(mutex_);
  Status outage_ GUARDED_BY(mutex_);  // why nothing can be served at the moment
  // Of that: when nothing was served any more, which may be before it was known to be one.
  TimePoint outage_since_ GUARDED_BY(mutex_){};
  Retries outage_tries_ GUARDED_BY(mutex_);  // to end it
  Status given_up_ GUARDED_BY(mutex_);       // why nothing will be served any more
  bool stopping_ GUARDED_BY(mutex_) = false;
  // Null: being reconnected, or nothing can be served.
  std::shared_ptr<StepExecutor> executor_ GUARDED_BY(mutex_);
  uint64_t generation_ GUARDED_BY(mutex_) = 0;                  // of executor_
  std::vector<NodeStatus> nodes_meanwhile_ GUARDED_BY(mutex_);  // while it is null
  std::optional<Result<std::unique_ptr<StepExecutor>>> reconnected_ GUARDED_BY(mutex_);
  std::set<NodeId> looked_for_ GUARDED_BY(mutex_);            // by looking_
  std::optional<std::set<NodeId>> found_ GUARDED_BY(mutex_);  // of these

  struct Event {
    uint64_t generation = 0;
    ExecutorEvent event;
  };
  Inbox<Event> events_;
  WakeFd wake_;
  TimePoint reconnecting_since_{};
  PauseWatch turns_;          // of the loop
  Clock::duration paused_{};  // the last time that this process did not run for a while
  TimePoint paused_until_{};  // of that
  // The engine's thread, and the destructor. Both wait for nodes.
  std::thread reconnecting_;  // makes the next executor
  std::thread looking_;       // for nodes that are lost, while others serve
  std::thread thread_;
};

}  // namespace lamina
