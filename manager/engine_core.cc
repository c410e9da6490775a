#include "manager/engine_core.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "wire/step_times.h"

namespace lamina {
namespace {

// Of the loop, so that it notices when it does not run.
constexpr auto kLongestTurn = std::chrono::seconds(1);

int WholeSeconds(Clock::duration duration) {
  return static_cast<int>(std::chrono::duration<double>(duration).count());
}

// Of about one step: what the nodes timed since the result before. nullopt if they did not.
std::optional<StepCost> CostOf(const StepResult& result, size_t num_rows,
                               int tensor_parallel_size) {
  if (result.times.empty()) return std::nullopt;
  StepCost cost;
  cost.rows = static_cast<double>(num_rows);
  // By memory node: several compute nodes may each tell a part.
  std::map<NodeId, double> attention, wires;
  for (const NodeTimes& node : result.times) {
    const auto seconds = [&](StepWork work) {
      return static_cast<double>(node.times.of(work)) * 1e-9;
    };
    for (const StepWork work :
         {StepWork::kSlice, StepWork::kPost, StepWork::kTake, StepWork::kSample})
      cost.slices += seconds(work);
    attention[node.node] += seconds(StepWork::kAttention);
    wires[node.node] += seconds(StepWork::kQWire) + seconds(StepWork::kOutputWire);
  }
  const auto most = [](const std::map<NodeId, double>& by_node) {
    double longest = 0;
    for (const auto& [node, seconds] : by_node) longest = std::max(longest, seconds);
    return longest;
  };
  cost.attention = most(attention);
  cost.wires = most(wires);
  cost.slices /= tensor_parallel_size;  // so many nodes run them at the same time
  return cost;
}

}  // namespace

EngineCore::EngineCore(const EngineOptions& options, std::unique_ptr<StepExecutor> executor,
                       PostEvent post, std::unique_ptr<QueuePolicy> queue,
                       std::unique_ptr<PlacementPolicy> placement)
    : options_(options),
      post_(std::move(post)),
      steps_(options.scheduler, options.cycle(),
             queue != nullptr ? std::move(queue) : options.MakeQueue(),
             placement != nullptr ? std::move(placement) : options.MakePlacement()),
      requests_(options_),
      outages_(options.retry),
      outage_tries_(options.retry),
      turns_(std::min<Clock::duration>(kLongestTurn, options.step_timeout / 4)) {
  for (const KvNode& node : executor->kv_nodes()) scheduler().AddNode(node);
  for (const auto& [node, cache] : executor->elastic_kv())
    expansion_.Begin(node, cache.kv, cache.inside, scheduler());
  TakeLeft(*executor);
  if (options.step_profile != nullptr) offload_.emplace(options.step_profile, options.offload_bus);
  StartExecutor(std::move(executor));
}

void EngineCore::StartExecutor(std::unique_ptr<StepExecutor> executor) {
  executor_ = std::move(executor);
  kv_ids_.clear();
  for (const auto& [node, kv] : executor_->kv()) kv_ids_.emplace(node, kv.id);
  if (offload_) offload_->SetLargest(executor_->largest_interval());
  executor_->Start([post = post_, generation = ++generation_](ExecutorEvent event) {
    post({generation, std::move(event)});
  });
}

Result<RequestId> EngineCore::Submit(GenerateRequest request, Engine::Sink sink, TimePoint now) {
  LAMINA_RETURN_IF_ERROR(given_up_);
  LAMINA_RETURN_IF_ERROR(requests_.Check(request));
  const RequestId id = requests_.Add(std::move(request), std::move(sink), now);
  const GenerateRequest& spec = requests_.Spec(id);
  // One that goes on where another engine left it is not given up for that.
  if (const Status kept = offload_ && spec.told.empty() ? offload_->Check(spec.slo) : OkStatus();
      !kept.ok()) {
    requests_.Drop(id);
    return kept;
  }
  const uint64_t group = spec.prefix_group == 0 && spec.n > 1 ? id.value : spec.prefix_group;
  const auto told_bytes = static_cast<int64_t>(MaxOrderBytes(spec.sampling));
  const std::span<const SequenceId> sequences = requests_.Sequences(id);
  for (size_t i = 0; i < sequences.size(); ++i) {
    const Told told = spec.told.empty() ? Told() : spec.told[i];
    if (told.over) continue;
    Status status =
        scheduler().Add({sequences[i], spec.prompt, spec.max_new_tokens, group, told_bytes,
                         told.tokens, told.num_cached, told.kv, spec.priority, now, spec.slo,
                         requests_.LacksScores(sequences[i])});
    if (status.ok()) continue;
    for (const SequenceId added : sequences.first(i)) scheduler().Finish(added);
    requests_.Drop(id);
    return status;
  }
  for (const SequenceId sequence : sequences) {
    if (scheduler().IsParked(sequence)) Park(sequence, WhyNotServing(now), now);
  }
  return id;
}

void EngineCore::Abort(RequestId request, TimePoint now) {
  const std::span<const SequenceId> sequences = requests_.Sequences(request);
  // A copy: the request goes with its last sequence.
  for (const SequenceId sequence : std::vector<SequenceId>(sequences.begin(), sequences.end())) {
    TokenEvent event;
    event.finish = FinishReason::kAbort;
    Finish(sequence, std::move(event), now);
  }
}

void EngineCore::Stop(RequestId request, int index, TimePoint now) {
  const std::span<const SequenceId> sequences = requests_.Sequences(request);
  if (index < 0 || index >= std::ssize(sequences)) return;
  TokenEvent event;
  event.finish = FinishReason::kStop;
  Finish(sequences[static_cast<size_t>(index)], std::move(event), now);
}

EngineStatus EngineCore::status(TimePoint now) const {
  EngineStatus status;
  status.nodes = executor_ != nullptr ? executor_->nodes() : nodes_meanwhile_;
  status.standbys = executor_ != nullptr ? executor_->standbys() : standbys_meanwhile_;
  const Status why_not = WhyNotServing(now);
  status.serving = why_not.ok();
  status.given_up = !given_up_.ok();
  status.num_rebuilding = requests_.num_rebuilding();
  status.detail = why_not.message();
  const Clock::duration reconnecting =
      executor_ == nullptr ? now - reconnecting_since_ : Clock::duration::zero();
  status.stands_still = status.serving && reconnecting >= options_.stands_still_after;
  if (status.stands_still)
    status.detail = "nodes are being connected anew for " +
                    std::to_string(WholeSeconds(reconnecting)) + " s: requests wait";
  status.scheduler = steps_.scheduler().stats();
  for (NodeStatus& node : status.nodes) {
    if (const auto lost = outages_.lost().find(node.id); lost != outages_.lost().end()) {
      node.state = NodeState::kLost;
      node.detail = lost->second;
    } else if (const std::string* const why = suspensions_.WhyOf(node.id)) {
      node.state = NodeState::kSuspended;
      node.detail = *why;
    }
    for (const NodeUse& use : status.scheduler.nodes) {
      if (use.id != (executor_ != nullptr ? executor_->KvNodeOf(node.id) : node.id)) continue;
      node.capacity_tokens = use.capacity_tokens;
      node.used_tokens = use.used_tokens;
      node.num_sequences = use.num_sequences;
    }
  }
  return status;
}

EngineDecisions EngineCore::Turn(TimePoint now) {
  NoticePause(now);
  CheckDeadlines(now);
  CheckParked(now);
  CheckHopeless(now);
  DropLeftIfDue(now);
  TryAgainIfDue(now);
  decisions_.next_turn = now + turns_.turn();
  if (executor_ != nullptr) {
    if (given_up_.ok()) steps_.PlanSteps(now, [&](StepPlan& plan) { SubmitStep(plan, now); });
    decisions_.next_turn = std::min(decisions_.next_turn, executor_->Turn(now));
  }
  decisions_.next_turn = std::min({decisions_.next_turn, NextDeadline(), next_try()});
  return std::exchange(decisions_, {});
}

TimePoint EngineCore::NextDeadline() const {
  TimePoint next = steps_.scheduler().next_hopeless();
  for (const std::optional<InFlight>& step : steps_.in_flight()) {
    if (step) next = std::min(next, step->submitted + options_.step_timeout);
  }
  if (outage_.ok()) {
    for (const auto& [sequence, parked] : parked_) next = std::min(next, parked.until);
  }
  if (left_until_ && steps_.scheduler().has_left()) next = std::min(next, *left_until_);
  return next;
}

void EngineCore::CheckDeadlines(TimePoint now) {
  for (const std::optional<InFlight>& step : steps_.in_flight()) {
    if (!step || now < step->submitted + options_.step_timeout) continue;
    std::string names;
    for (const NodeStatus& node : executor_->nodes()) {
      if (node.role == NodeRole::kCompute) names += (names.empty() ? "" : ", ") + node.name;
    }
    return LoseStep(
        TimedOut("step " + std::to_string(step->plan.step.value) + " was not answered within " +
                 std::to_string(WholeSeconds(options_.step_timeout)) + " s: compute node " + names +
                 " hangs"),
        now);
  }
}

void EngineCore::CheckHopeless(TimePoint now) {
  for (const SequenceId sequence : scheduler().TakeHopeless(now)) {
    if (options_.drops_hopeless) {
      Fail(sequence, requests_.MarkDropped(sequence), now);
    } else {
      scheduler().PutLast(sequence);
    }
  }
}

void EngineCore::SubmitStep(StepPlan& plan, TimePoint now) {
  if (offload_) plan.offload_interval = offload_->Choose(plan, scheduler(), now);
  plan.layers_inside = expansion_.ordered();
  std::vector<NewSequence> added;
  for (const Work& work : plan.work) {
    if (!work.first) continue;
    added.push_back(requests_.Announce(work.sequence, scheduler().Tokens(work.sequence)));
    requests_.Start(work.sequence, work.first_position, now);
  }
  executor_->Submit(plan, std::move(added));
}

void EngineCore::Handle(const Event& event, TimePoint now) {
  NoticePause(now);
  if (event.generation != generation_ || executor_ == nullptr) return;
  const ExecutorEvent& told = event.event;
  switch (told.kind) {
    case ExecutorEvent::Kind::kStepDone: return CompleteStep(told.result, now);
    case ExecutorEvent::Kind::kNodeLost:
      return LoseNode(told.node, WithPause(told.status, now), now);
    case ExecutorEvent::Kind::kComputeLost:
      return LoseCompute(told.node, WithPause(told.status, now), now);
    case ExecutorEvent::Kind::kNodeSuspended: return SuspendNode(told);
    case ExecutorEvent::Kind::kNodeResumed: return ResumeNode(told);
    case ExecutorEvent::Kind::kSpeeds:
      for (const NodeSpeed& measured : told.speeds)
        scheduler().SetSpeed(measured.node, measured.speed);
      return;
    case ExecutorEvent::Kind::kLayersInside:
      return expansion_.TakeState(told.node, told.layers_inside);
  }
}

void EngineCore::ObserveStep(const StepPlan& plan, const StepResult& result) const {
  if (options_.observer == nullptr || plan.work.empty()) return;
  EngineObserver::Step step;
  for (const Work& work : plan.work) {
    (IsOfPrompt(work) ? step.num_prefill_tokens : step.num_decode) += std::ssize(work.tokens);
  }
  step.total = static_cast<double>(result.total_us) * 1e-6;
  step.attention_wait = static_cast<double>(result.attention_wait_us) * 1e-6;
  step.bytes_to_memory = result.bytes_to_memory;
  step.bytes_from_memory = result.bytes_from_memory;
  step.offload_interval = plan.offload_interval;
  options_.observer->OnStep(step);
}

void EngineCore::CompleteStep(const StepResult& result, TimePoint now) {
  const auto step = std::ranges::find_if(
      steps_.in_flight(), [&](const auto& s) { return s && s->plan.step == result.step; });
  if (step == steps_.in_flight().end()) return;
  const auto batch = static_cast<size_t>(step - steps_.in_flight().begin());
  const StepPlan& plan = (*step)->plan;
  ObserveStep(plan, result);
  std::optional<StepCost> cost;
  if (options_.chooses_pipeline)
    cost = CostOf(result, plan.work.size(), options_.tensor_parallel_size);
  std::vector<Scheduler::Sampled> sampled;
  for (const NewToken& token : result.sampled)
    sampled.push_back({token.sequence, token.chosen.token});
  // A prompt that is embedded is over, whatever token the scheduler is told.
  for (const EmbeddedPrompt& embedded : result.embedded) sampled.push_back({embedded.sequence, 0});
  // A sequence that has lost its slots since this step was planned is of it no more.
  std::vector<const ScoredTokens*> scores;
  for (const ScoredTokens& scored : result.scored) {
    if (scheduler().IsInStep(scored.sequence, static_cast<int>(batch))) scores.push_back(&scored);
  }
  std::vector<const FailedSequence*> failures;
  for (const FailedSequence& failed : result.failed) {
    if (scheduler().IsInStep(failed.sequence, static_cast<int>(batch))) failures.push_back(&failed);
  }
  const Pipeline before = steps_.pipeline();
  const TimePoint submitted = (*step)->submitted;
  const BatchSteps::Completed completed = steps_.Complete(batch, now, sampled, std::move(cost));
  if (const std::optional<Pipeline>& next = completed.pipeline) {
    LAMINA_LOG_DEBUG("{} batches in flight{} instead of {}{}, for {} sequences", next->num_batches,
                     next->rotates ? ", rotating," : "", before.num_batches,
                     before.rotates ? ", rotating" : "", scheduler().stats().num_running);
  }
  // Before a first token, which comes behind all of the prompt.
  for (const ScoredTokens* scored : scores) requests_.TakeScores(*scored, decisions_.deliveries);
  // Only these are told: the others are sampled again.
  for (const size_t taken : completed.taken) {
    if (taken < result.sampled.size())
      TakeToken(result.sampled[taken], now);
    else
      TakeEmbedding(result.embedded[taken - result.sampled.size()], now);
  }
  for (const FailedSequence* failed : failures) TakeFailure(*failed, now);
  expansion_.TakeStep(now - submitted, scheduler());
}

void EngineCore::TakeToken(const NewToken& token, TimePoint now) {
  if (requests_.Embeds(token.sequence))
    return Fail(token.sequence,
                InternalError("the nodes chose a token behind a prompt that is only embedded"),
                now);
  if (requests_.LacksScores(token.sequence))
    return Fail(token.sequence,
                InternalError("the nodes did not say how likely all tokens of the prompt are"),
                now);
  if (requests_.TakeToken(token, now, decisions_.deliveries)) scheduler().Finish(token.sequence);
}

// A node may say anything.
void EngineCore::TakeEmbedding(const EmbeddedPrompt& embedded, TimePoint now) {
  if (!requests_.Embeds(embedded.sequence) || std::ssize(embedded.values) != options_.state_size)
    return Fail(
        embedded.sequence,
        InternalError("the nodes told an embedding of " + std::to_string(embedded.values.size()) +
                      " values where none of that size was asked for"),
        now);
  requests_.TakeEmbedding(embedded, now, decisions_.deliveries);
  scheduler().Finish(embedded.sequence);
}

// Wrong K and V show as a fault of the sequence's own, which starting again mends; a fault of its
// tokens comes again.
void EngineCore::TakeFailure(const FailedSequence& failed, TimePoint now) {
  const bool too_often = failed.cause == FailureCause::kKvLost
                             ? IsLostTooOften(failed.sequence)
                             : requests_.CountSetback(failed.sequence, Setback::kOwnFault) > 1;
  if (too_often) return Fail(failed.sequence, failed.why, now);
  LAMINA_LOG_WARN("sequence {} starts again: {}", failed.sequence.value, failed.why.message());
  scheduler().Again(failed.sequence);
}

void EngineCore::Finish(SequenceId sequence, TokenEvent event, TimePoint now) {
  if (requests_.Finish(sequence, std::move(event), now, decisions_.deliveries))
    scheduler().Finish(sequence);
}

void EngineCore::Fail(SequenceId sequence, const Status& status, TimePoint now) {
  TokenEvent event;
  event.finish = FinishReason::kError;
  event.error = status;
  scheduler().Fail(sequence);
  Finish(sequence, std::move(event), now);
}

void EngineCore::FailAll(const Status& status, TimePoint now) {
  for (const SequenceId sequence : requests_.AllSequences()) Fail(sequence, status, now);
}

}  // namespace lamina
