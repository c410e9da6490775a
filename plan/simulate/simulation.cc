#include "plan/simulate/simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "manager/attention_speed.h"
#include "manager/expansion_choice.h"
#include "manager/offload_choice.h"
#include "plan/simulate/event_queue.h"
#include "plan/simulate/virtual_nodes.h"
#include "scheduler/batch_steps.h"

namespace lamina {
namespace {

constexpr int64_t kProgressSteps = 256;  // between two calls of progress
// Far from where nanoseconds overflow.
constexpr auto kLongestRun = std::chrono::hours(10 * 366 * 24);

using Outcome = RequestTimes::Outcome;

// A prompt whose token values only say which prompts begin alike: those of a shared block come from
// the block's id, all others from the sequence's own number.
std::vector<TokenId> PromptOf(const TraceRequest& request, int64_t block_tokens,
                              SequenceId sequence) {
  const auto own = static_cast<TokenId>(sequence.value & 0x3fffffff);
  std::vector<TokenId> prompt(static_cast<size_t>(request.input_tokens), own);
  for (size_t i = 0; i < prompt.size() && block_tokens > 0; ++i) {
    const size_t block = i / static_cast<size_t>(block_tokens);
    if (block >= request.prefix_blocks.size()) break;
    prompt[i] = static_cast<TokenId>(0x40000000 | (request.prefix_blocks[block] & 0x3fffffff));
  }
  return prompt;
}

// One run: what EngineCore decides about batches and sequences (both do it with BatchSteps), with
// counts in place of requests, sinks and outages. plan/README.md says why it is not EngineCore
// itself.
class Simulation {
 public:
  Simulation(const ClusterModel& cluster, const RequestTrace& workload,
             const SimulationOptions& options)
      : cluster_(cluster),
        workload_(workload),
        options_(options),
        engine_(EngineOptionsOf(cluster, workload, options)),
        steps_(engine_.scheduler, engine_.cycle(), engine_.MakeQueue(), engine_.MakePlacement()),
        nodes_(cluster, options.host, options.prompts_appear, events_, result_.usage),
        sampled_(static_cast<size_t>(engine_.scheduler.num_batches)),
        num_standbys_(cluster.config.standbys.size()) {
    for (const KvNode& node : cluster.kv_nodes) {
      scheduler().AddNode(node);
      result_.num_kv_tokens += node.capacity_tokens;
    }
    if (engine_.step_profile != nullptr) {
      offload_.emplace(engine_.step_profile, engine_.offload_bus);
      offload_->SetLargest(nodes_.largest_interval());
    }
    for (const auto& [node, kv] : nodes_.elastic_kv())
      expansion_.Begin(node, kv, kv.num_layers, scheduler());
    result_.requests.resize(workload.requests.size());
    result_.num_left_out = workload.num_left_out;
  }

  Status Schedule(const std::vector<NodeChange>& changes);
  Result<SimulationResult> Run();

 private:
  // Which node a change happens to: an index into the cluster's memory or compute nodes.
  struct Place {
    bool memory = false;
    size_t index = 0;
  };

  Result<Place> Find(const std::string& name) const;
  void Handle(const VirtualEvent& event);
  void TakeArrivals(TimePoint now);
  void Arrive(size_t request, TimePoint now);
  std::string WhyRefused(const Status& status, const TraceRequest& request) const;
  void Refuse(size_t request, const std::string& why);
  void ScheduleNextArrival(TimePoint now);
  void PlanSteps(TimePoint now);
  void CheckHopeless(TimePoint now);
  void Submit(StepPlan& plan, TimePoint now);
  void TakeResult(int batch, TimePoint now);
  void TakeToken(SequenceId sequence, TimePoint now);
  void End(size_t request, Outcome outcome);
  void Change(const NodeChange& change, TimePoint now);
  void Fail(const Place& place, const std::string& name, TimePoint now);
  void Interrupt(size_t request, bool again);  // by the last loss
  void Resume(size_t request, TimePoint now);
  void FailAll(const std::string& why);
  void Observe(TimePoint now);

  Scheduler& scheduler() { return steps_.scheduler(); }
  static size_t RequestOf(SequenceId sequence) { return static_cast<size_t>(sequence.value - 1); }

  const ClusterModel& cluster_;
  const RequestTrace& workload_;
  const SimulationOptions& options_;
  const EngineOptions engine_;
  BatchSteps steps_;
  std::optional<OffloadChoice> offload_;
  ExpansionChoice expansion_;
  SimulationResult result_;
  EventQueue events_;
  VirtualNodes nodes_;
  // By batch: the sequences that get a token from its step in flight.
  std::vector<std::vector<SequenceId>> sampled_;
  std::vector<Place> places_;  // [changes]
  DeviceTimeline manager_;
  // When the manager has sent the last orders.
  TimePoint manager_free_;
  size_t next_request_ = 0;
  // Requests before this one have had their kArrival.
  size_t scheduled_ = 0;
  int64_t num_open_ = 0, num_ended_ = 0;
  SpeedRounds speed_rounds_;
  bool speeds_known_ = false;
  bool reconnecting_ = false;
  size_t num_standbys_ = 0;  // that have no place yet
  // By request: it was interrupted by this loss, and has had no token since. Empty: nothing is
  // lost.
  std::vector<std::optional<size_t>> interrupted_;
  // The state that was seen last and when, for the sums over time.
  TimePoint observed_;
  double running_ = 0, waiting_ = 0, used_share_ = 0;
};

Result<Simulation::Place> Simulation::Find(const std::string& name) const {
  std::string known;
  for (size_t i = 0; i < cluster_.compute.size(); ++i) {
    if (cluster_.compute[i].name == name) return Place{false, i};
    if (i < 4) known += (known.empty() ? "" : ", ") + cluster_.compute[i].name;
  }
  for (size_t i = 0; i < cluster_.memory.size(); ++i) {
    if (cluster_.memory[i].name == name) return Place{true, i};
    if (i < 4) known += ", " + cluster_.memory[i].name;
  }
  return InvalidArgument("there is no node '" + name +
                         "' that something could happen to; there are " + known +
                         (cluster_.compute.size() + cluster_.memory.size() > 8 ? ", ..." : ""));
}

Status Simulation::Schedule(const std::vector<NodeChange>& changes) {
  for (const NodeChange& change : changes) {
    LAMINA_ASSIGN_OR_RETURN(const Place place, Find(change.node));
    if (place.memory && change.kind == NodeChange::Kind::kSlowLink)
      return InvalidArgument("node '" + change.node +
                             "' is a memory node, and only links of compute nodes to their hosts' "
                             "memory are simulated");
    events_.Push(TimePoint(FromSeconds(change.at_s)), VirtualEvent::Kind::kChange,
                 static_cast<int>(places_.size()));
    places_.push_back(place);
  }
  return OkStatus();
}

Result<SimulationResult> Simulation::Run() {
  ScheduleNextArrival(TimePoint{});
  const auto num_requests = static_cast<int64_t>(workload_.requests.size());
  while (!events_.empty() && num_ended_ < num_requests) {
    const VirtualEvent event = events_.Pop();
    if (event.at > TimePoint(kLongestRun))
      return InvalidArgument(
          "it takes more than ten years; a device, the network or a slow node is far too slow");
    Handle(event);
    result_.end = event.at;
  }
  Observe(result_.end);
  const double seconds = std::max(SecondsOf(result_.end), 1e-12);
  for (size_t i = 0; i < cluster_.compute.size(); ++i) {
    result_.compute_busy.push_back(nodes_.compute_busy_s(i) / seconds);
    result_.network_busy.push_back(nodes_.network_busy_s(i) / seconds);
  }
  for (size_t i = 0; i < cluster_.memory.size(); ++i)
    result_.memory_busy.push_back(nodes_.memory_busy_s(i) / seconds);
  double weight = 0;
  for (const UsageTimeline::Piece& piece : result_.usage.pieces()) {
    weight += piece.weight;
    result_.mean_running += piece.running;
    result_.mean_waiting += piece.waiting;
    result_.mean_used_share += piece.used_share;
  }
  for (double* mean : {&result_.mean_running, &result_.mean_waiting, &result_.mean_used_share})
    *mean /= std::max(weight, 1e-12);
  const SchedulerStats stats = scheduler().stats();
  result_.num_preemptions = stats.num_preemptions;
  for (const NodeUse& node : stats.nodes) result_.used_tokens_at_end += node.used_tokens;
  return std::move(result_);
}

void Simulation::Handle(const VirtualEvent& event) {
  switch (event.kind) {
    case VirtualEvent::Kind::kArrival: return TakeArrivals(event.at);
    case VirtualEvent::Kind::kChange:
      return Change(options_.changes[static_cast<size_t>(event.index)], event.at);
    case VirtualEvent::Kind::kReconnected:
      if (event.generation != nodes_.generation()) return;  // another one was lost meanwhile
      reconnecting_ = false;
      steps_.LeaveNodes(nodes_.num_compute_left());
      return PlanSteps(event.at);
    case VirtualEvent::Kind::kResult:
      if (event.generation != nodes_.generation()) return;
      // The manager is still at an earlier step, and takes this result when it is done.
      if (manager_free_ > event.at)
        return events_.Push(manager_free_, event.kind, event.index, event.generation);
      return TakeResult(event.index, event.at);
    default: return nodes_.Handle(event);
  }
}

// Schedules the next request that comes by itself. With a limit on open requests it may have to
// wait until another ends, and is taken then.
void Simulation::ScheduleNextArrival(TimePoint now) {
  if (next_request_ == workload_.requests.size() || scheduled_ > next_request_) return;
  if (options_.max_concurrency > 0 && num_open_ >= options_.max_concurrency) return;
  const TimePoint due(FromSeconds(workload_.requests[next_request_].arrival_seconds));
  scheduled_ = next_request_ + 1;
  events_.Push(std::max(now, due), VirtualEvent::Kind::kArrival, static_cast<int>(next_request_));
}

void Simulation::TakeArrivals(TimePoint now) {
  const auto is_due = [&] {
    return next_request_ < workload_.requests.size() &&
           TimePoint(FromSeconds(workload_.requests[next_request_].arrival_seconds)) <= now &&
           (options_.max_concurrency == 0 || num_open_ < options_.max_concurrency);
  };
  bool any = false;
  while (is_due()) {
    Arrive(next_request_++, now);
    any = true;
  }
  ScheduleNextArrival(now);
  if (!any) return;
  // Planning is worth it only if a batch is not in flight: arrivals are many.
  for (size_t batch = 0; batch < static_cast<size_t>(steps_.pipeline().num_batches); ++batch) {
    if (!steps_.in_flight()[batch]) return PlanSteps(now);
  }
}

void Simulation::Arrive(size_t request, TimePoint now) {
  const TraceRequest& spec = workload_.requests[request];
  RequestTimes& record = result_.requests[request];
  record.arrival = record.first_token = record.last_token = now;
  record.input_tokens = static_cast<int32_t>(spec.input_tokens);
  ++num_open_;
  const SequenceId sequence{request + 1};
  const bool dead = !result_.failure.empty();
  if (dead) return Refuse(request, "no node is left");
  const int64_t block_tokens = engine_.scheduler.prefix_caching ? workload_.block_tokens : 0;
  SequenceSpec asked{sequence, PromptOf(spec, block_tokens, sequence), spec.output_tokens};
  asked.start = now;
  asked.slo = engine_.slo.Of(spec.input_tokens);
  if (offload_ && !offload_->Check(asked.slo).ok())
    return Refuse(request, "a TPOT that cannot be kept");
  const Status added = scheduler().Add(std::move(asked));
  if (!added.ok()) Refuse(request, WhyRefused(added, spec));
}

// Says nothing of the single request, so that many requests share one reason.
std::string Simulation::WhyRefused(const Status& status, const TraceRequest& request) const {
  const int64_t max_model_len = engine_.scheduler.max_model_len;
  if (status.code() == StatusCode::kTryAgain)
    return fmt::format("{} were waiting already", engine_.scheduler.max_queued);
  if (status.code() == StatusCode::kPeerLost) return "no memory node is left";
  if (request.input_tokens + request.output_tokens > max_model_len)
    return fmt::format("longer than max_model_len, {} tokens", max_model_len);
  return "longer than the memory nodes have room for";
}

void Simulation::Refuse(size_t request, const std::string& why) {
  ++result_.refusals[why];
  End(request, Outcome::kRefused);
}

void Simulation::End(size_t request, Outcome outcome) {
  result_.requests[request].outcome = outcome;
  --num_open_;
  ++num_ended_;
}

void Simulation::PlanSteps(TimePoint now) {
  CheckHopeless(now);
  if (reconnecting_ || !result_.failure.empty()) return;
  steps_.PlanSteps(now, [&](StepPlan& plan) { Submit(plan, now); });
  Observe(now);
}

void Simulation::CheckHopeless(TimePoint now) {
  for (const SequenceId sequence : scheduler().TakeHopeless(now)) {
    if (engine_.drops_hopeless) {
      scheduler().Finish(sequence);
      End(RequestOf(sequence), Outcome::kDropped);
    } else {
      scheduler().PutLast(sequence);
    }
  }
}

void Simulation::Submit(StepPlan& plan, TimePoint now) {
  plan.dummy_prefill = options_.prompts_appear;
  if (offload_) plan.offload_interval = offload_->Choose(plan, scheduler(), now);
  plan.layers_inside = expansion_.ordered();
  std::vector<SequenceId>& sampled = sampled_[static_cast<size_t>(plan.batch)];
  sampled.clear();
  int64_t num_rows = 0;
  for (const Work& work : plan.work) {
    num_rows += std::ssize(work.tokens);
    if (work.sample) sampled.push_back(work.sequence);
  }
  if (speed_rounds_.Next(speeds_known_)) {
    for (const auto& [node, speed] : nodes_.MeasureSpeeds()) {
      scheduler().SetSpeed(node, speed);
      speeds_known_ = true;
    }
  }
  // Prompts that appear cost the manager one row each.
  const double rows = options_.prompts_appear ? static_cast<double>(plan.work.size())
                                              : static_cast<double>(num_rows);
  manager_free_ =
      manager_.Book(now, FromMicroseconds(options_.host.step_us + options_.host.row_us * rows));
  nodes_.Submit(plan, manager_free_);
  if (!plan.work.empty()) ++result_.num_steps;
  result_.num_rows += num_rows;
  // Plans of large steps are freed while they are in the processor's caches.
  plan.work = {};
}

void Simulation::TakeResult(int batch, TimePoint now) {
  if (!steps_.in_flight()[static_cast<size_t>(batch)]) return;
  std::vector<Scheduler::Sampled> sampled;
  for (const SequenceId sequence : sampled_[static_cast<size_t>(batch)])
    sampled.push_back({sequence, static_cast<TokenId>(sequence.value & 0x3fffffff)});
  const TimePoint submitted = steps_.in_flight()[static_cast<size_t>(batch)]->submitted;
  const std::vector<size_t> taken =
      steps_.Complete(static_cast<size_t>(batch), now, sampled, nodes_.cost(batch)).taken;
  result_.usage.At(now).tokens += static_cast<double>(taken.size());
  for (const size_t i : taken) TakeToken(sampled[i].sequence, now);
  for (const auto& [node, state] : nodes_.layers_inside()) expansion_.TakeState(node, state);
  expansion_.TakeStep(now - submitted, scheduler());
  PlanSteps(now);
  // Clients hear of their tokens when the next steps are on their way.
  if (options_.max_concurrency > 0) TakeArrivals(now);
  if (options_.progress && result_.num_steps % kProgressSteps == 0)
    options_.progress(num_ended_, SecondsOf(now));
}

void Simulation::TakeToken(SequenceId sequence, TimePoint now) {
  const size_t request = RequestOf(sequence);
  RequestTimes& record = result_.requests[request];
  if (!interrupted_.empty()) Resume(request, now);
  if (record.output_tokens++ == 0) {
    record.first_token = now;
  } else {
    result_.token_gaps.Add(now - record.last_token);
  }
  record.last_token = now;
  if (record.output_tokens < workload_.requests[request].output_tokens) return;
  scheduler().Finish(sequence);
  End(request, Outcome::kDone);
}

void Simulation::Change(const NodeChange& change, TimePoint now) {
  const Place& place = places_[static_cast<size_t>(&change - options_.changes.data())];
  if (change.kind == NodeChange::Kind::kFail) return Fail(place, change.node, now);
  if (change.kind == NodeChange::Kind::kSlowLink) {
    nodes_.SlowLink(place.index, change.factor);
  } else if (place.memory) {
    nodes_.SlowMemory(place.index, change.factor);
  } else {
    nodes_.SlowCompute(place.index, change.factor);
  }
}

void Simulation::Interrupt(size_t request, bool again) {
  const RequestTimes& record = result_.requests[request];
  NodeLoss& loss = result_.losses.back();
  ++loss.num_interrupted;
  if (again) loss.tokens_again += record.input_tokens + record.output_tokens;
  interrupted_[request] = result_.losses.size() - 1;
}

// The request has a token, its first one or the next.
void Simulation::Resume(size_t request, TimePoint now) {
  const RequestTimes& record = result_.requests[request];
  const std::optional<size_t> by = std::exchange(interrupted_[request], std::nullopt);
  NodeLoss& last = result_.losses.back();
  if (record.output_tokens > 0) {
    double& largest = by ? last.largest_gap_s : last.largest_gap_others_s;
    largest = std::max(largest, SecondsOf(now - record.last_token));
  }
  if (!by) return;
  NodeLoss& loss = result_.losses[*by];
  const double after_s = SecondsOf(now) - loss.at_s;
  if (loss.num_resumed++ == 0) loss.first_resumed_s = after_s;
  loss.last_resumed_s = after_s;
}

void Simulation::Fail(const Place& place, const std::string& name, TimePoint now) {
  result_.losses.push_back({name, SecondsOf(now)});
  interrupted_.resize(result_.requests.size());
  if (place.memory) {
    const size_t group = cluster_.memory[place.index].group;
    nodes_.LoseGroup(group);
    // What had KV there starts again elsewhere. No node comes that could hold what is parked.
    const LostSequences lost = scheduler().LoseNode(cluster_.kv_nodes[group].id);
    for (const SequenceId sequence : lost.again) Interrupt(RequestOf(sequence), true);
    for (const SequenceId sequence : lost.parked) {
      scheduler().Finish(sequence);
      End(RequestOf(sequence), Outcome::kFailed);
    }
    if (scheduler().stats().nodes.empty())
      return FailAll("no memory node is left; the last one was " + name);
  } else {
    const bool replaced = num_standbys_ > 0;
    num_standbys_ -= replaced ? 1 : 0;
    nodes_.LoseCompute(place.index, replaced);
    for (size_t request = 0; request < next_request_; ++request) {
      const RequestTimes& record = result_.requests[request];
      if (record.outcome == Outcome::kUnfinished && record.output_tokens > 0)
        Interrupt(request, cluster_.memory.empty());
    }
    manager_free_ = now;
    steps_.DropSteps();
    if (nodes_.num_compute_left() == 0 || (cluster_.config.shares_model() && !replaced))
      return FailAll("compute node " + name + " was lost, and the others cannot do without it");
    steps_.Abandon();
    if (cluster_.memory.empty()) {
      for (const KvNode& node : cluster_.kv_nodes) scheduler().DropKv(node.id);
    }
    reconnecting_ = true;
    events_.Push(now + options_.reconnect, VirtualEvent::Kind::kReconnected, 0,
                 nodes_.generation());
  }
  // Clients hear of their tokens when the next steps are on their way, and send their next request
  // then.
  if (options_.max_concurrency > 0) TakeArrivals(now);
  PlanSteps(now);
}

void Simulation::FailAll(const std::string& why) {
  result_.failure = why;
  for (size_t request = 0; request < next_request_; ++request) {
    if (result_.requests[request].outcome != Outcome::kUnfinished) continue;
    scheduler().Finish(SequenceId{request + 1});
    End(request, Outcome::kFailed);
  }
  // What has not come yet is refused as it would come.
  for (; next_request_ < result_.requests.size(); ++next_request_)
    Arrive(next_request_,
           TimePoint(FromSeconds(workload_.requests[next_request_].arrival_seconds)));
}

void Simulation::Observe(TimePoint now) {
  result_.usage.AddState(observed_, now, running_, waiting_, used_share_);
  observed_ = now;
  const SchedulerStats stats = scheduler().stats();
  int64_t used = 0, capacity = 0;
  for (const NodeUse& node : stats.nodes) {
    used += node.used_tokens;
    capacity += node.capacity_tokens;
  }
  running_ = stats.num_running;
  waiting_ = stats.num_waiting;
  used_share_ = capacity == 0 ? 0 : static_cast<double>(used) / static_cast<double>(capacity);
  result_.peak_used_share = std::max(result_.peak_used_share, used_share_);
}

}  // namespace

EngineOptions EngineOptionsOf(const ClusterModel& cluster, const RequestTrace& workload,
                              const SimulationOptions& options) {
  EngineOptions engine = EngineOptions::Of(cluster.config, cluster.model);
  // Prompts cost nothing, so that a step can have as many of their tokens as come.
  if (options.prompts_appear) engine.scheduler.max_num_batched_tokens = 1 << 20;
  // Without block ids nothing is known of which prompts begin alike.
  engine.scheduler.prefix_caching &= workload.block_tokens > 0 && !options.prompts_appear;
  if (options.max_concurrency > 0)
    engine.scheduler.max_queued = std::max(engine.scheduler.max_queued, options.max_concurrency);
  engine.eos_tokens.clear();
  if (cluster.kv_baseline.kind == KvBaseline::Kind::kSwap) {
    engine.scheduler.prefix_caching = false;
    engine.scheduler.swap_tokens = int64_t{1} << 60;
  }
  return engine;
}

Result<SimulationResult> Simulate(const ClusterModel& cluster, const RequestTrace& workload,
                                  const SimulationOptions& options) {
  Simulation simulation(cluster, workload, options);
  LAMINA_RETURN_IF_ERROR(simulation.Schedule(options.changes));
  return simulation.Run();
}

}  // namespace lamina
