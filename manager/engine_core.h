// The engine without threads, locks, clocks and waits: what comes in and the time go in, decisions
// come out. The manager runs it on a thread (serving_engine.h), a test in virtual time.
//
// A step: NextStep -> Submit -> (nodes work) -> kStepDone -> tokens to sinks -> NextStep. Each
// batch has at most one step in flight.
//
// A memory node that is late is suspended: sequences with KV on it sit out until it answers or is
// lost, and the others go on.
//
// No loss of a node ends a request. When a compute node is lost, or a step comes too late, the
// nodes that are left are connected anew, and sequences go on with the KV that memory nodes have
// kept meanwhile; those whose prompt was not complete start again. When a memory node is lost,
// sequences with KV on it start again on the others; one that no node could hold is parked for
// `give_up_after`, in case one comes that can. Nodes that are lost are looked for: one that could
// serve again is connected, with an empty pool, in the same way.
//
// When too little is left to serve with (no memory node, no compute node, or not all that share a
// model) requests wait, old and new ones, while nodes are looked for. If that does not help within
// `give_up_after`, the engine gives up: every request fails, and given_up() says why.
//
// A request fails alone if its KV is lost more than `max_rebuilds` times, and if a row of it fails
// twice though nodes did what they were told.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/pause_watch.h"
#include "manager/engine.h"
#include "manager/engine_options.h"
#include "manager/expansion_choice.h"
#include "manager/node_outages.h"
#include "manager/offload_choice.h"
#include "manager/open_requests.h"
#include "manager/reconnect.h"
#include "manager/step_executor.h"
#include "manager/suspensions.h"
#include "scheduler/batch_steps.h"

namespace lamina {

// What a turn of the engine came to, besides steps that it has submitted to its executor.
struct EngineDecisions {
  // To be made in this order.
  std::vector<Delivery> deliveries;
  // See ReconnectByTurns. The outcome is given to EngineCore::TakeReconnected; there is one task at
  // a time.
  std::optional<ReconnectTask> reconnect;
  // Lost nodes to look for, with the reasons, see LookForNodes. The outcome is given to
  // EngineCore::TakeFound; there is one task at a time, and it has no end.
  std::optional<std::map<NodeId, std::string>> look_for;
  // When the next turn is due if nothing happens before.
  TimePoint next_turn;
};

// Executors' events, results of tasks and Turn come from one loop, whose times never decrease;
// Turn follows on them. A loop that runs calls Turn at `next_turn` at the latest: the core notices
// by the times when it did not run, and that time does not count against nodes. Thread: one at a
// time.
class EngineCore {
 public:
  // What an executor reports, and which executor it was, so that one that is gone cannot speak.
  struct Event {
    uint64_t generation = 0;
    ExecutorEvent event;
  };
  // Takes events to the loop, which gives them to Handle. Thread: any.
  using PostEvent = std::function<void(Event)>;

  // Starts `executor`. Takes the scheduler's policies; where they are null, those that the options
  // name.
  EngineCore(const EngineOptions& options, std::unique_ptr<StepExecutor> executor, PostEvent post,
             std::unique_ptr<QueuePolicy> queue = nullptr,
             std::unique_ptr<PlacementPolicy> placement = nullptr);
  EngineCore(const EngineCore&) = delete;

  // Submit takes a request and says why it is refused, with the errors of Engine::Submit; Abort
  // ends it, and Stop ends one of its continuations. A turn is due after each.
  Result<RequestId> Submit(GenerateRequest request, Engine::Sink sink, TimePoint now);
  void Abort(RequestId request, TimePoint now);
  void Stop(RequestId request, int index, TimePoint now);

  // Takes what an executor reported; drops it if that is not the present one.
  void Handle(const Event& event, TimePoint now);
  void TakeReconnected(Result<std::unique_ptr<StepExecutor>> outcome, TimePoint now);
  void TakeFound(FoundNodes found, TimePoint now);

  // Does what is due, and submits steps.
  EngineDecisions Turn(TimePoint now);

  EngineStatus status(TimePoint now) const;
  // Not ok once nothing will be served any more: why.
  const Status& given_up() const { return given_up_; }

 private:
  using InFlight = BatchSteps::InFlight;

  void CompleteStep(const StepResult& result, TimePoint now);
  void TakeToken(const NewToken& token, TimePoint now);
  void TakeEmbedding(const EmbeddedPrompt& embedded, TimePoint now);
  void ObserveStep(const StepPlan& plan, const StepResult& result) const;
  void SubmitStep(StepPlan& plan, TimePoint now);
  void CheckDeadlines(TimePoint now);
  // Requests that wait and cannot be in time any more.
  void CheckHopeless(TimePoint now);
  TimePoint NextDeadline() const;
  void Finish(SequenceId sequence, TokenEvent event, TimePoint now);
  void Fail(SequenceId sequence, const Status& status, TimePoint now);
  // The sequence's row failed: it starts again, unless that happened too often.
  void TakeFailure(const FailedSequence& failed, TimePoint now);
  void FailAll(const Status& status, TimePoint now);

  // Losses and returns: engine_outage.cc.
  void LoseNode(NodeId node, const Status& status, TimePoint now);
  // The memory node is late; it answers again.
  void SuspendNode(const ExecutorEvent& told);
  void ResumeNode(const ExecutorEvent& told);
  // The node holds no KV any more: sequences with KV on it start again, or are parked.
  void LoseKv(NodeId kv_node, const Status& status, TimePoint now);
  // Whether the sequence has had its KV lost for so many times that it must end.
  bool IsLostTooOften(SequenceId sequence);
  void Park(SequenceId sequence, const Status& why, TimePoint now);
  void CheckParked(TimePoint now);
  void LoseCompute(NodeId node, const Status& status, TimePoint now);
  void LoseStep(const Status& status, TimePoint now);
  void BeginReconnecting(std::map<NodeId, std::string> left_out,
                         std::map<NodeId, std::string> doubtful, TimePoint now);
  // What a manager that is gone left on memory nodes waits in the scheduler for those who ask for
  // it.
  void TakeLeft(StepExecutor& executor);
  void DropLeftIfDue(TimePoint now);
  void TakePools(const std::vector<NodeStatus>& nodes, const std::set<NodeId>& kept, TimePoint now);
  // Those of kv_nodes() whose memory nodes all have the KV of these ids.
  std::set<NodeId> KeptPools(const std::map<NodeId, uint64_t>& ids) const;
  void UsePipelineOf(const std::vector<NodeStatus>& nodes);
  void BeginOutage(const Status& status, TimePoint now);
  void GiveUp(const Status& status, TimePoint now);
  void TryAgainIfDue(TimePoint now);
  TimePoint next_try() const;  // the end of time: none is due
  void NoticePause(TimePoint now);
  Status WithPause(const Status& loss, TimePoint now) const;
  Status WhyNotServing(TimePoint now) const;
  void StartExecutor(std::unique_ptr<StepExecutor> executor);

  Scheduler& scheduler() { return steps_.scheduler(); }

  const EngineOptions options_;
  const PostEvent post_;
  BatchSteps steps_;
  std::optional<OffloadChoice> offload_;  // nullopt: that is not chosen here
  ExpansionChoice expansion_;
  OpenRequests requests_;
  EngineDecisions decisions_;  // since the last turn
  NodeOutages outages_;
  Suspensions suspensions_;
  // Sequences that wait for a node that could hold them; also some that do so no more.
  struct Parked {
    TimePoint until;
    Status why;
  };
  std::map<SequenceId, Parked> parked_;
  std::optional<TimePoint> left_until_;  // what is left is kept; set by the first turn
  Status outage_;                        // why nothing can be served at the moment
  // Of that: when nothing was served any more, which may be before it was known to be one.
  TimePoint outage_since_{};
  Retries outage_tries_;  // to end it
  Status given_up_;       // why nothing will be served any more
  // Null: being reconnected, or nothing can be served.
  std::unique_ptr<StepExecutor> executor_;
  uint64_t generation_ = 0;            // of executor_
  std::map<NodeId, uint64_t> kv_ids_;  // by memory node: of the KV that the scheduler knows
  // While it is null.
  std::vector<NodeStatus> nodes_meanwhile_, standbys_meanwhile_;
  ComputePlaces places_;       // as the last executor had them
  bool reconnecting_ = false;  // there is a task
  TimePoint reconnecting_since_{};
  std::optional<std::set<NodeId>> looked_for_;  // of the task; nullopt: there is none
  PauseWatch turns_;                            // of the loop
  Clock::duration paused_{};  // the last time that this process did not run for a while
  TimePoint paused_until_{};  // of that
};

}  // namespace lamina
