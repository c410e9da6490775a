#include "manager/serving_engine.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "base/log.h"
#include "base/mutex.h"
#include "wire/step_times.h"

namespace lamina {
namespace {

// Of the loop, so that it notices when it does not run.
constexpr auto kLongestTurn = std::chrono::seconds(1);

double Seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

// Of about one step: what the nodes timed since the result before.
StepCost CostOf(const StepResult& result) {
  StepCost cost;
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
  return cost;
}

// Also what is left of a prompt whose beginning is shared.
bool IsPrefill(const Work& work) { return work.prefill || work.tokens.size() > 1; }

}  // namespace

ServingEngineOptions ServingEngineOptions::Of(const ClusterConfig& config,
                                              const ModelConfig& model) {
  ServingEngineOptions options;
  options.scheduler.max_num_seqs = config.max_num_seqs;
  options.scheduler.num_batches = config.num_batches;
  options.num_compute_nodes = std::max(
      1, static_cast<int>(std::ranges::count(config.nodes, NodeRole::kCompute, &NodeConfig::role)));
  options.pipeline_parallel_size = config.pipeline_parallel_size;
  options.tensor_parallel_size = config.tensor_parallel_size;
  options.chooses_pipeline = config.pipeline == PipelineMode::kAuto;
  const int fewest = config.shares_model()
                         ? std::min(config.pipeline_parallel_size, config.num_batches)
                         : options.num_compute_nodes;
  options.pipeline = {options.chooses_pipeline ? fewest : config.num_batches,
                      config.pipeline == PipelineMode::kRotational};
  options.scheduler.max_num_batched_tokens = config.max_num_batched_tokens;
  options.scheduler.max_model_len = config.max_model_len;
  options.scheduler.max_queued = config.max_num_queued_reqs;
  options.scheduler.prefix_caching = config.prefix_caching;
  options.eos_tokens = model.eos_tokens;
  options.vocab_size = model.vocab_size;
  options.step_timeout = config.step_timeout;
  options.give_up_after = config.start_timeout;
  options.spread_tokens = config.spread_tokens;
  return options;
}

StepCycleOptions ServingEngineOptions::cycle() const {
  const bool stages = pipeline_parallel_size * tensor_parallel_size > 1;
  return {pipeline, chooses_pipeline, scheduler.num_batches,
          stages ? pipeline_parallel_size : num_compute_nodes, stages};
}

ServingEngine::ServingEngine(const ServingEngineOptions& options,
                             std::unique_ptr<StepExecutor> executor,
                             std::unique_ptr<QueuePolicy> queue,
                             std::unique_ptr<PlacementPolicy> placement)
    : options_(options),
      scheduler_(options.scheduler, queue != nullptr ? std::move(queue) : MakeFifoQueue(),
                 placement != nullptr        ? std::move(placement)
                 : options.spread_tokens > 0 ? MakeSpreadPlacement(options.spread_tokens)
                                             : MakeLeastLoadedPlacement()),
      in_flight_(static_cast<size_t>(options.scheduler.num_batches)),
      cycle_(options.cycle()),
      outages_(options.retry),
      outage_tries_(options.retry),
      turns_(std::min<Clock::duration>(kLongestTurn, options.step_timeout / 4)) {
  scheduler_.SetPipeline(options.pipeline);
  for (const KvNode& node : executor->kv_nodes()) scheduler_.AddNode(node);
  StartExecutor(std::move(executor));
  thread_ = std::thread([this] { Loop(); });
}

void ServingEngine::StartExecutor(std::shared_ptr<StepExecutor> executor) {
  executor_ = std::move(executor);
  executor_->Start([this, generation = ++generation_](ExecutorEvent event) {
    events_.Push({generation, std::move(event)});
  });
}

ServingEngine::~ServingEngine() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.Signal();
  options_.stop.request_stop();
  thread_.join();
  if (reconnecting_.joinable()) reconnecting_.join();
  if (looking_.joinable()) looking_.join();
  executor_.reset();  // its threads push into events_
}

Status ServingEngine::Check(const GenerateRequest& request) const {
  LAMINA_RETURN_IF_ERROR(WhyNotServing());
  if (request.prompt.empty()) return InvalidArgument("the prompt is empty");
  if (request.n < 1 || request.n > options_.scheduler.max_queued)
    return InvalidArgument("n must be between 1 and " +
                           std::to_string(options_.scheduler.max_queued) + ", not " +
                           std::to_string(request.n));
  if (request.max_new_tokens < 1)
    return InvalidArgument("max_tokens must be at least 1, not " +
                           std::to_string(request.max_new_tokens));
  for (const TokenId token : request.prompt) {
    if (token < 0 || token >= options_.vocab_size) {
      return InvalidArgument("token id " + std::to_string(token) +
                             " is outside the vocabulary of " +
                             std::to_string(options_.vocab_size));
    }
  }
  if (BansEveryToken(request)) {
    return InvalidArgument(
        "every token of the vocabulary is in 'stop_token_ids' or ends the text, so none is left "
        "for the first " +
        std::to_string(request.sampling.min_tokens) + ", as many as 'min_tokens' asks for");
  }
  return OkStatus();
}

// Nothing could be sampled, which looks like an error of the nodes.
bool ServingEngine::BansEveryToken(const GenerateRequest& request) const {
  const auto num_named = std::ssize(request.stop_tokens) + std::ssize(options_.eos_tokens);
  if (request.sampling.min_tokens == 0 || num_named < options_.vocab_size) return false;
  std::set<TokenId> banned(request.stop_tokens.begin(), request.stop_tokens.end());
  if (!request.ignore_eos) banned.insert(options_.eos_tokens.begin(), options_.eos_tokens.end());
  const auto in_vocabulary = [&](TokenId token) {
    return token >= 0 && token < options_.vocab_size;
  };
  return std::ranges::count_if(banned, in_vocabulary) >= options_.vocab_size;
}

Result<RequestId> ServingEngine::Submit(GenerateRequest request, Sink sink) {
  MutexLock lock(mutex_);
  LAMINA_RETURN_IF_ERROR(Check(request));
  const RequestId id{++last_request_};
  for (const TokenId eos : options_.eos_tokens) {
    if (!request.ignore_eos) request.sampling.banned.push_back(eos);
  }
  for (const TokenId stop : request.stop_tokens) request.sampling.banned.push_back(stop);
  Request entry{std::move(request), std::move(sink), {}, 0};
  for (int i = 0; i < entry.spec.n; ++i) {
    const SequenceId sequence{++last_sequence_};
    const uint64_t group =
        entry.spec.prefix_group == 0 && entry.spec.n > 1 ? id.value : entry.spec.prefix_group;
    const auto told_bytes = static_cast<int64_t>(MaxOrderBytes(entry.spec.sampling));
    if (Status status = scheduler_.Add(
            {sequence, entry.spec.prompt, entry.spec.max_new_tokens, group, told_bytes});
        !status.ok()) {
      for (const SequenceId added : entry.sequences) {
        scheduler_.Finish(added);
        continuations_.erase(added);
      }
      return status;
    }
    Continuation continuation;
    continuation.request = id;
    continuation.index = i;
    continuation.submitted = Clock::now();
    continuations_[sequence] = continuation;
    entry.sequences.push_back(sequence);
  }
  entry.num_open = entry.spec.n;
  requests_[id] = std::move(entry);
  wake_.Signal();
  return id;
}

void ServingEngine::Abort(RequestId request) {
  MutexLock lock(mutex_);
  const auto found = requests_.find(request);
  if (found == requests_.end()) return;
  const std::vector<SequenceId> sequences = found->second.sequences;
  for (const SequenceId sequence : sequences) {
    TokenEvent event;
    event.finish = FinishReason::kAbort;
    FinishSequence(sequence, std::move(event), pending_);
  }
  wake_.Signal();
}

void ServingEngine::Stop(RequestId request, int index) {
  MutexLock lock(mutex_);
  const auto found = requests_.find(request);
  if (found == requests_.end() || index < 0 || index >= found->second.spec.n) return;
  TokenEvent event;
  event.finish = FinishReason::kStop;
  FinishSequence(found->second.sequences[static_cast<size_t>(index)], std::move(event), pending_);
  wake_.Signal();
}

EngineStatus ServingEngine::status() {
  EngineStatus status;
  std::shared_ptr<StepExecutor> executor;
  {
    MutexLock lock(mutex_);
    executor = executor_;
    status.nodes = nodes_meanwhile_;
  }
  if (executor != nullptr) status.nodes = executor->nodes();  // may wait for its connections
  MutexLock lock(mutex_);
  const Status why_not = WhyNotServing();
  status.serving = why_not.ok();
  status.detail = why_not.message();
  const Clock::duration reconnecting =
      executor == nullptr ? Clock::now() - reconnecting_since_ : Clock::duration::zero();
  status.stands_still = status.serving && reconnecting >= options_.stands_still_after;
  if (status.stands_still)
    status.detail = "nodes are being connected anew for " +
                    std::to_string(static_cast<int>(Seconds(reconnecting))) + " s: requests wait";
  status.scheduler = scheduler_.stats();
  for (NodeStatus& node : status.nodes) {
    if (const auto lost = outages_.lost().find(node.id); lost != outages_.lost().end()) {
      node.state = NodeState::kLost;
      node.detail = lost->second;
    }
    for (const NodeUse& use : status.scheduler.nodes) {
      if (use.id != (executor != nullptr ? executor->KvNodeOf(node.id) : node.id)) continue;
      node.capacity_tokens = use.capacity_tokens;
      node.used_tokens = use.used_tokens;
      node.num_sequences = use.num_sequences;
    }
  }
  return status;
}

void ServingEngine::Loop() {
  while (true) {
    Deliveries out;
    Deadline deadline(TimePoint::max());
    {
      MutexLock lock(mutex_);
      if (stopping_) return;
      out.swap(pending_);
      NoticePause();
      if (reconnected_) TakeReconnected(out);
      if (found_) TakeFound();
      while (std::optional<Event> event = events_.TryPop()) {
        if (event->generation == generation_ && executor_ != nullptr)
          HandleEvent(event->event, out);
      }
      CheckDeadlines(out);
      TryAgainIfDue(out);
      if (given_up_.ok() && executor_ != nullptr) SubmitSteps();
      deadline =
          Deadline(std::min({CheckDeadlines(out), next_try(), Clock::now() + turns_.turn()}));
    }
    for (const Delivery& delivery : out) delivery.sink(delivery.event);
    std::array<pollfd, 2> polls = {pollfd{events_.fd(), POLLIN, 0}, pollfd{wake_.fd(), POLLIN, 0}};
    poll(polls.data(), polls.size(), deadline.RemainingMs());
    if ((polls[1].revents & POLLIN) != 0) wake_.Clear();
  }
}

TimePoint ServingEngine::CheckDeadlines(Deliveries& out) {
  TimePoint next = TimePoint::max();
  for (const std::optional<InFlight>& step : in_flight_) {
    if (!step) continue;
    next = std::min(next, step->deadline.at());
    if (!step->deadline.Passed()) continue;
    std::string names;
    for (const NodeStatus& node : executor_->nodes()) {
      if (node.role == NodeRole::kCompute) names += (names.empty() ? "" : ", ") + node.name;
    }
    LoseStep(
        TimedOut("step " + std::to_string(step->plan.step.value) + " was not answered within " +
                 std::to_string(static_cast<int>(Seconds(options_.step_timeout))) +
                 " s: compute node " + names + " hangs"),
        out);
    return TimePoint::max();
  }
  return next;
}

void ServingEngine::SubmitSteps() {
  const auto is_busy = [this](size_t batch) {
    mutex_.AssertHeld();
    return in_flight_[batch].has_value();
  };
  const auto submit = [this](size_t batch) {
    mutex_.AssertHeld();
    return SubmitNextStep(batch);
  };
  cycle_.PlanSteps(is_busy, submit);
}

bool ServingEngine::SubmitNextStep(size_t batch) {
  StepPlan plan = scheduler_.NextStep(static_cast<int>(batch));
  if (plan.work.empty()) cycle_.NothingToPlan(batch);
  if (plan.empty()) return false;
  std::vector<NewSequence> added;
  for (const Work& work : plan.work) {
    if (!work.first) continue;
    added.push_back(Announce(work.sequence));
    Continuation& continuation = continuations_.at(work.sequence);
    if (continuation.started) continue;  // again, after a preemption
    continuation.started = Clock::now();
    continuation.num_cached = work.first_position;
  }
  executor_->Submit(plan, std::move(added));
  in_flight_[batch] = {std::move(plan), Deadline::After(options_.step_timeout)};
  return true;
}

NewSequence ServingEngine::Announce(SequenceId sequence) const {
  const Continuation& continuation = continuations_.at(sequence);
  const GenerateRequest& spec = requests_.at(continuation.request).spec;
  const std::span<const TokenId> tokens = scheduler_.Tokens(sequence);
  NewSequence announced;
  announced.sequence = sequence;
  announced.sampling = spec.sampling;
  announced.sampling.seed =
      ChoiceSeed(spec.sampling.seed, spec.prompt_index, static_cast<uint64_t>(continuation.index));
  announced.tokens.assign(tokens.begin(), tokens.end());
  announced.num_prompt_tokens = static_cast<int32_t>(spec.prompt.size());
  return announced;
}

void ServingEngine::HandleEvent(const ExecutorEvent& event, Deliveries& out) {
  switch (event.kind) {
    case ExecutorEvent::Kind::kStepDone: CompleteStep(event.result, out); return;
    case ExecutorEvent::Kind::kNodeLost: LoseNode(event.node, WithPause(event.status), out); return;
    case ExecutorEvent::Kind::kSpeeds:
      for (const NodeSpeed& measured : event.speeds)
        scheduler_.SetSpeed(measured.node, measured.speed);
      return;
    case ExecutorEvent::Kind::kComputeLost:
      LoseCompute(event.node, WithPause(event.status), out);
      return;
  }
}

void ServingEngine::ObserveStep(const StepPlan& plan, const StepResult& result) {
  if (options_.observer == nullptr || plan.work.empty()) return;
  EngineObserver::Step step;
  for (const Work& work : plan.work) {
    (IsPrefill(work) ? step.num_prefill_tokens : step.num_decode) += std::ssize(work.tokens);
  }
  step.total = static_cast<double>(result.total_us) * 1e-6;
  step.attention_wait = static_cast<double>(result.attention_wait_us) * 1e-6;
  step.bytes_to_memory = result.bytes_to_memory;
  step.bytes_from_memory = result.bytes_from_memory;
  options_.observer->OnStep(step);
}

void ServingEngine::CompleteStep(const StepResult& result, Deliveries& out) {
  const auto step = std::find_if(
      in_flight_.begin(), in_flight_.end(),
      [&](const std::optional<InFlight>& s) { return s && s->plan.step == result.step; });
  if (step == in_flight_.end()) return;
  ObserveStep((*step)->plan, result);
  if (options_.chooses_pipeline) ChoosePipeline((*step)->plan, result);
  std::vector<Scheduler::Sampled> sampled;
  for (const NewToken& token : result.sampled)
    sampled.push_back({token.sequence, token.chosen.token});
  scheduler_.CompleteStep(sampled, (*step)->plan.batch);
  step->reset();
  for (const NewToken& token : result.sampled) DeliverToken(token, out);
  for (const FailedSequence& failed : result.failed) FailSequence(failed.sequence, failed.why, out);
}

void ServingEngine::ChoosePipeline(const StepPlan& plan, const StepResult& result) {
  if (plan.work.empty()) return;
  const auto prefills = [](const StepPlan& p) { return std::ranges::any_of(p.work, IsPrefill); };
  const bool any_prefills = std::ranges::any_of(
      in_flight_, [&](const std::optional<InFlight>& s) { return s && prefills(s->plan); });
  std::optional<StepCost> cost;
  if (!result.times.empty()) {
    cost = CostOf(result);
    cost->rows = static_cast<double>(plan.work.size());
    cost->slices /= options_.tensor_parallel_size;  // which so many nodes run at the same time
  }
  const Pipeline before = cycle_.pipeline();
  const int num_running = scheduler_.stats().num_running;
  const std::optional<Pipeline> next = cycle_.TakeResult(
      static_cast<size_t>(plan.batch), Clock::now(), any_prefills, num_running, std::move(cost));
  if (!next) return;
  LAMINA_LOG_DEBUG("{} batches in flight{} instead of {}{}, for {} sequences", next->num_batches,
                   next->rotates ? ", rotating," : "", before.num_batches,
                   before.rotates ? ", rotating" : "", num_running);
  scheduler_.SetPipeline(*next);
}

void ServingEngine::DeliverToken(const NewToken& sampled, Deliveries& out) {
  const SequenceId sequence = sampled.sequence;
  const auto found = continuations_.find(sequence);
  if (found == continuations_.end()) return;  // finished while the step ran
  Continuation& continuation = found->second;
  const Request& request = requests_.at(continuation.request);
  const TimePoint now = Clock::now();
  TokenEvent event;
  event.token = sampled.chosen.token;
  event.logprob = sampled.chosen.logprob;
  event.rank = sampled.chosen.rank;
  event.top = sampled.chosen.top;
  event.first = continuation.num_generated++ == 0;
  if (event.first) {
    continuation.first_token = now;
    event.num_cached = continuation.num_cached;
  }
  if (options_.observer != nullptr) {
    if (event.first) {
      options_.observer->OnFirstToken(Seconds(now - continuation.submitted));
    } else {
      options_.observer->OnNextToken(Seconds(now - continuation.last_token));
    }
  }
  continuation.last_token = now;
  const auto is = [&](const std::vector<TokenId>& tokens) {
    return std::find(tokens.begin(), tokens.end(), sampled.chosen.token) != tokens.end();
  };
  if ((!request.spec.ignore_eos && is(options_.eos_tokens)) || is(request.spec.stop_tokens)) {
    event.finish = FinishReason::kStop;
    event.stop_token = sampled.chosen.token;
  } else if (continuation.num_generated >= request.spec.max_new_tokens) {
    event.finish = FinishReason::kLength;
  }
  if (event.finish) {
    FinishSequence(sequence, std::move(event), out);
  } else {
    event.index = continuation.index;
    out.push_back({request.sink, std::move(event)});
  }
}

void ServingEngine::FinishSequence(SequenceId sequence, TokenEvent event, Deliveries& out) {
  const auto found = continuations_.find(sequence);
  if (found == continuations_.end()) return;
  const Continuation continuation = found->second;
  continuations_.erase(found);
  scheduler_.Finish(sequence);
  const auto request = requests_.find(continuation.request);
  event.index = continuation.index;
  Observe(continuation, *event.finish, request->second);
  out.push_back({request->second.sink, std::move(event)});
  if (--request->second.num_open == 0) requests_.erase(request);
}

void ServingEngine::FailSequence(SequenceId sequence, const Status& status, Deliveries& out) {
  TokenEvent event;
  event.finish = FinishReason::kError;
  event.error = status;
  scheduler_.Fail(sequence);
  FinishSequence(sequence, std::move(event), out);
}

void ServingEngine::FailAll(const Status& status, Deliveries& out) {
  std::vector<SequenceId> all;
  for (const auto& [sequence, continuation] : continuations_) all.push_back(sequence);
  std::sort(all.begin(), all.end());
  for (const SequenceId sequence : all) FailSequence(sequence, status, out);
}

void ServingEngine::Observe(const Continuation& continuation, FinishReason reason,
                            const Request& request) {
  if (options_.observer == nullptr) return;
  const TimePoint now = Clock::now();
  EngineObserver::Finished finished;
  finished.reason = reason;
  finished.prompt_tokens = static_cast<int64_t>(request.spec.prompt.size());
  finished.output_tokens = continuation.num_generated;
  finished.e2e = Seconds(now - continuation.submitted);
  finished.queue = Seconds(continuation.started.value_or(now) - continuation.submitted);
  if (continuation.started && continuation.num_generated > 0) {
    finished.prefill = Seconds(continuation.first_token - *continuation.started);
    finished.decode = Seconds(continuation.last_token - continuation.first_token);
  }
  options_.observer->OnFinished(finished);
}

}  // namespace lamina
