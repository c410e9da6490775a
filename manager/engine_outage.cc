// What the engine does when nodes are lost and when they come back.
#include <algorithm>
#include <utility>

#include "base/log.h"
#include "manager/engine_core.h"
#include "manager/left_kv.h"

namespace lamina {
namespace {

// A step may be late because of a node, which is another one the next time, or because of what is
// in it.
constexpr int kMostLateSteps = 2;

// What is lost so soon after a pause of this process was lost because of it.
constexpr auto kPauseEcho = std::chrono::seconds(5);

double SecondsOf(Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

Status EngineCore::WhyNotServing(TimePoint now) const {
  if (!given_up_.ok() || outage_.ok()) return given_up_;
  const double left = std::max(0.0, SecondsOf(options_.give_up_after - (now - outage_since_)));
  return PeerLost(outage_.message() + "; waiting for nodes to come back, for " +
                  std::to_string(static_cast<int>(left)) + " s at most");
}

// The executor may have told of the node's loss before the engine heard of it, so whether the
// scheduler counts on its KV decides, not whether it is among those that are lost.
void EngineCore::LoseNode(NodeId node, const Status& status, TimePoint now) {
  if (outages_.Lose(node, status.message(), now, executor_->KvNodeOf(node)))
    LAMINA_LOG_ERROR("{}", status.message());
  executor_->Leave(node);
  suspensions_.Forget(node);
  LoseKv(executor_->KvNodeOf(node), status, now);
  if (scheduler().stats().nodes.empty())
    BeginOutage(PeerLost("no memory node is left; the last one: " + status.message()), now);
}

// Nodes of a group hold parts of the same tokens, so each of them suspends all.
void EngineCore::SuspendNode(const ExecutorEvent& told) {
  const std::string& why = told.status.message();
  if (outages_.lost().contains(told.node) ||
      !suspensions_.Begin(told.node, told.by, told.suspension, why))
    return;
  const std::vector<SequenceId> again = scheduler().Suspend(executor_->KvNodeOf(told.node));
  LAMINA_LOG_WARN("{}; {} sequences sit out, {} start again elsewhere", why,
                  scheduler().stats().num_suspended, again.size());
}

void EngineCore::ResumeNode(const ExecutorEvent& told) {
  if (!suspensions_.End(told.node, told.by, told.suspension)) return;
  const NodeId kv_node = executor_->KvNodeOf(told.node);
  const auto of_group = [&](NodeId other) { return executor_->KvNodeOf(other) == kv_node; };
  if (std::ranges::any_of(suspensions_.nodes(), of_group)) return;
  scheduler().Resume(kv_node);
}

void EngineCore::LoseKv(NodeId kv_node, const Status& status, TimePoint now) {
  expansion_.End(kv_node);
  const LostSequences lost = scheduler().LoseNode(kv_node);
  for (const SequenceId sequence : lost.again) {
    if (IsLostTooOften(sequence)) Fail(sequence, status, now);
  }
  for (const SequenceId sequence : lost.parked) Park(sequence, status, now);
  if (lost.again.empty() && lost.parked.empty()) return;
  LAMINA_LOG_WARN("{} sequences start again elsewhere, {} wait for a node that can hold them",
                  lost.again.size(), lost.parked.size());
}

bool EngineCore::IsLostTooOften(SequenceId sequence) {
  return requests_.CountSetback(sequence, Setback::kLostKv) > options_.max_rebuilds;
}

void EngineCore::Park(SequenceId sequence, const Status& why, TimePoint now) {
  parked_.try_emplace(sequence, Parked{now + options_.give_up_after, why});
}

// In an outage everybody waits for its end, and hears of its reason.
void EngineCore::CheckParked(TimePoint now) {
  if (!outage_.ok()) return;
  std::vector<SequenceId> overdue;
  for (const auto& [sequence, parked] : parked_) {
    if (now >= parked.until) overdue.push_back(sequence);
  }
  for (const SequenceId sequence : overdue) {
    const Status why = parked_.extract(sequence).mapped().why;
    if (!scheduler().IsParked(sequence)) continue;
    Fail(sequence,
         PeerLost(why.message() + "; no node came that could hold the request, within " +
                  std::to_string(static_cast<int>(SecondsOf(options_.give_up_after))) + " s"),
         now);
  }
}

void EngineCore::LoseCompute(NodeId node, const Status& status, TimePoint now) {
  if (node != NodeId{}) outages_.Lose(node, status.message(), now, executor_->KvNodeOf(node));
  if (!options_.reconnects) return GiveUp(status, now);
  LAMINA_LOG_ERROR("{}; what runs goes on with the nodes that are left", status.message());
  BeginReconnecting(outages_.lost(), {}, now);
}

// Some compute node hangs although its connection is alive: those that answer go on.
void EngineCore::LoseStep(const Status& status, TimePoint now) {
  if (!options_.reconnects) return GiveUp(status, now);
  LAMINA_LOG_ERROR("{}; what runs goes on with the nodes that answer", status.message());
  std::vector<SequenceId> too_often;
  for (const std::optional<InFlight>& step : steps_.in_flight()) {
    if (!step || now < step->submitted + options_.step_timeout) continue;
    for (const Work& work : step->plan.work) {
      if (requests_.CountSetback(work.sequence, Setback::kLateStep) >= kMostLateSteps)
        too_often.push_back(work.sequence);
    }
  }
  for (const SequenceId sequence : too_often) Fail(sequence, status, now);
  std::map<NodeId, std::string> doubtful;
  for (const NodeStatus& node : executor_->nodes()) {
    if (node.role == NodeRole::kCompute && node.state == NodeState::kReady)
      doubtful.emplace(node.id, status.message());
  }
  BeginReconnecting(outages_.lost(), std::move(doubtful), now);
}

// Nodes in doubt are left out unless they answer.
void EngineCore::BeginReconnecting(std::map<NodeId, std::string> left_out,
                                   std::map<NodeId, std::string> doubtful, TimePoint now) {
  steps_.Abandon();
  suspensions_.Clear();
  reconnecting_ = true;
  reconnecting_since_ = now;
  if (executor_ != nullptr) {
    nodes_meanwhile_ = executor_->nodes();
    standbys_meanwhile_ = executor_->standbys();
    for (const NodeStatus& one : nodes_meanwhile_) {
      if (one.role == NodeRole::kCompute) places_.insert_or_assign(one.id, one.name);
    }
    for (const NodeStatus& one : nodes_meanwhile_) {
      // An event that is on its way comes too late.
      if (one.state == NodeState::kLost &&
          outages_.Lose(one.id, one.detail, now, executor_->KvNodeOf(one.id)))
        (outage_.ok() ? left_out : doubtful).emplace(one.id, one.detail);
    }
  }
  for (NodeStatus& one : nodes_meanwhile_) {
    if (!left_out.contains(one.id)) one.state = NodeState::kReconnecting;
  }
  // If this try is in vain, the outage began with it.
  const TimePoint until = (outage_.ok() ? now : outage_since_) + options_.give_up_after;
  KnownNodes known;
  known.lost = std::move(left_out);
  known.held.ids = kv_ids_;
  known.held.tokens = scheduler().Held();
  known.places = places_;
  for (const NodeStatus& one : standbys_meanwhile_) {
    if (one.state == NodeState::kLost) known.lost_standbys.insert(one.name);
  }
  decisions_.reconnect = {std::move(executor_), std::move(known), std::move(doubtful), until};
}

// A pause is no fault of nodes, and no time in which they could come back.
void EngineCore::NoticePause(TimePoint now) {
  const Clock::duration missed = turns_.Turn(now);
  if (missed == Clock::duration::zero()) return;
  paused_ = missed;
  paused_until_ = now;
  LAMINA_LOG_WARN(
      "the manager did not run for {:.1f} s (was it stopped, swapped out, without a core?): that "
      "time does not count against nodes",
      SecondsOf(missed));
  steps_.Delay(missed);
  for (TimePoint* since : {&outage_since_, &reconnecting_since_})
    *since = std::min(*since + missed, now);
  for (auto& [sequence, parked] : parked_) parked.until += missed;
  if (left_until_) *left_until_ += missed;
}

Status EngineCore::WithPause(const Status& loss, TimePoint now) const {
  if (paused_ == Clock::duration::zero() || now - paused_until_ > kPauseEcho) return loss;
  return {loss.code(), loss.message() + "; the manager itself had not run for " +
                           std::to_string(static_cast<int>(SecondsOf(paused_))) + " s"};
}

void EngineCore::TakeReconnected(Result<std::unique_ptr<StepExecutor>> outcome, TimePoint now) {
  NoticePause(now);
  reconnecting_ = false;
  if (!outcome.ok()) return BeginOutage(outcome.status(), now);
  const std::map<NodeId, uint64_t> ids_before = kv_ids_;
  StartExecutor(std::move(*outcome));
  const std::vector<NodeStatus> nodes = executor_->nodes();
  for (const NodeStatus& node : nodes) {
    if (node.state == NodeState::kLost) {
      if (outages_.Lose(node.id, node.detail, now, executor_->KvNodeOf(node.id)))
        LAMINA_LOG_ERROR("{}", node.detail);
    } else {
      outages_.TakeBack(node.id, now);
    }
  }
  TakePools(nodes, KeptPools(ids_before), now);
  if (scheduler().stats().nodes.empty())
    return BeginOutage(PeerLost("no memory node is left"), now);
  outage_ = OkStatus();
  UsePipelineOf(nodes);
  LAMINA_LOG_INFO("reconnected: {} sequences go on, {} start again or wait",
                  scheduler().stats().num_running, scheduler().stats().num_waiting);
}

void EngineCore::TakeLeft(StepExecutor& executor) {
  const std::map<NodeId, LeftKv> by_node = executor.TakeLeftKv();
  int64_t num_sequences = 0, num_tokens = 0;
  for (auto& [handle, left] :
       FindLeft(by_node, [&](NodeId node) { return executor.KvNodeOf(node); })) {
    ++num_sequences;
    num_tokens += std::ssize(left.slots);
    scheduler().AddLeft(handle, left.pool, std::move(left.slots));
  }
  if (num_sequences > 0) {
    LAMINA_LOG_INFO("the manager before this one left {} sequences with {} tokens on memory nodes",
                    num_sequences, num_tokens);
  }
}

void EngineCore::DropLeftIfDue(TimePoint now) {
  if (!scheduler().has_left()) return;
  if (!left_until_) left_until_ = now + options_.keep_left_for;
  if (now < *left_until_) return;
  LAMINA_LOG_INFO("the rest of what the manager before this one left is dropped: nobody asked");
  scheduler().DropLeft();
}

std::set<NodeId> EngineCore::KeptPools(const std::map<NodeId, uint64_t>& ids) const {
  std::set<NodeId> kept, changed;
  for (const auto& [node, kv] : executor_->kv()) {
    const auto before = ids.find(node);
    (before != ids.end() && before->second == kv.id ? kept : changed)
        .insert(executor_->KvNodeOf(node));
  }
  for (const NodeId pool : changed) kept.erase(pool);
  return kept;
}

// The scheduler's pools become those of the executor. `kept`: what is in them is there still.
void EngineCore::TakePools(const std::vector<NodeStatus>& nodes, const std::set<NodeId>& kept,
                           TimePoint now) {
  std::map<NodeId, std::string> why;  // by the node that routes name
  for (const NodeStatus& node : nodes) {
    if (node.state == NodeState::kLost) why.emplace(executor_->KvNodeOf(node.id), node.detail);
  }
  std::map<NodeId, KvNode> pools;
  for (const KvNode& pool : executor_->kv_nodes()) {
    if (!why.contains(pool.id)) pools.emplace(pool.id, pool);
  }
  const std::vector<NodeUse> before = scheduler().stats().nodes;
  // The new ones first: what the others cannot hold any more may fit there.
  for (const auto& [id, node] : pools) {
    if (std::ranges::find(before, id, &NodeUse::id) == before.end()) scheduler().AddNode(node);
  }
  for (const NodeUse& pool : before) {
    const auto same = pools.find(pool.id);
    if (same != pools.end() && scheduler().Has(same->second)) {
      if (!kept.contains(pool.id)) scheduler().DropKv(pool.id);
      continue;
    }
    LoseKv(pool.id,
           PeerLost(why.contains(pool.id) ? why[pool.id]
                                          : "a memory node came back with another capacity"),
           now);
    if (same != pools.end()) scheduler().AddNode(same->second);
  }
  for (const auto& [id, cache] : executor_->elastic_kv()) {
    if (pools.contains(id)) expansion_.Begin(id, cache.kv, cache.inside, scheduler());
  }
  for (const auto& [node, kv] : executor_->kv()) {
    for (const SequenceId sequence : kv.missing) scheduler().Again(sequence);
  }
  std::erase_if(parked_, [&](const auto& one) { return !scheduler().IsParked(one.first); });
}

void EngineCore::UsePipelineOf(const std::vector<NodeStatus>& nodes) {
  const auto is_left = [](const NodeStatus& node) {
    return node.role == NodeRole::kCompute && node.state == NodeState::kReady;
  };
  // Those that share a model are all there, or nothing is.
  steps_.LeaveNodes(options_.shares_model()
                        ? options_.pipeline_parallel_size
                        : static_cast<int>(std::ranges::count_if(nodes, is_left)));
}

// Or goes on with one: trying again was in vain.
void EngineCore::BeginOutage(const Status& status, TimePoint now) {
  if (!options_.reconnects) return GiveUp(status, now);
  const bool begins = outage_.ok();
  // A try that had to end early tells nothing but that.
  if (begins || now - outage_since_ < options_.give_up_after) outage_ = PeerLost(status.message());
  if (begins) {
    LAMINA_LOG_ERROR("nothing can be served until nodes come back: {}", status.message());
    outage_since_ = executor_ == nullptr ? reconnecting_since_ : now;
    outage_tries_.Begin(now);
  } else {
    outage_tries_.Tried(now);
  }
  if (executor_ != nullptr) BeginReconnecting({}, outages_.lost(), now);
}

void EngineCore::GiveUp(const Status& status, TimePoint now) {
  if (!given_up_.ok()) return;
  given_up_ = PeerLost(status.message());
  LAMINA_LOG_ERROR("cannot serve any more: {}", status.message());
  steps_.DropSteps();
  for (NodeStatus& one : nodes_meanwhile_) {
    if (one.state == NodeState::kReconnecting) one.state = NodeState::kGivenUp;
  }
  FailAll(given_up_, now);
}

TimePoint EngineCore::next_try() const {
  if (!given_up_.ok() || reconnecting_) return TimePoint::max();
  if (executor_ == nullptr)
    return std::min(outage_tries_.next(), outage_since_ + options_.give_up_after);
  const bool can_look = options_.looks_for_nodes && !outages_.lost().empty() && !looked_for_;
  return can_look ? outages_.next_try() : TimePoint::max();
}

// While others serve, nodes are looked for aside, so that nobody waits for one that does not
// answer.
void EngineCore::TryAgainIfDue(TimePoint now) {
  if (now < next_try()) return;
  if (executor_ == nullptr) {
    if (now - outage_since_ < options_.give_up_after)
      return BeginReconnecting({}, outages_.lost(), now);
    const auto waited = std::to_string(static_cast<int>(SecondsOf(now - outage_since_)));
    return GiveUp(
        PeerLost(outage_.message() + "; no node came back that would do, within " + waited + " s"),
        now);
  }
  std::map<NodeId, std::string> lost = outages_.lost();
  const std::set<NodeId> due = outages_.Due(now);
  std::erase_if(lost, [&](const auto& one) { return !due.contains(one.first); });
  looked_for_ = due;
  decisions_.look_for = std::move(lost);
}

void EngineCore::TakeFound(FoundNodes found, TimePoint now) {
  NoticePause(now);
  const std::set<NodeId> looked_for = *std::exchange(looked_for_, std::nullopt);
  if (executor_ == nullptr) return;  // all are being connected anew already
  const std::set<NodeId> due = outages_.Due(now);
  // Those that are not due were lost anew meanwhile.
  std::erase_if(found, [&](const auto& one) { return !due.contains(one.first); });
  std::map<NodeId, std::string> left_out = outages_.lost();
  const size_t num_found =
      std::erase_if(left_out, [&](const auto& lost) { return found.contains(lost.first); });
  outages_.Tried(looked_for, now);
  if (num_found == 0) return;
  LAMINA_LOG_INFO("{} nodes that were lost answer again: they are taken back", num_found);
  BeginReconnecting(std::move(left_out), {}, now);
  for (const auto& [node, daemon] : found) {
    decisions_.reconnect->known.places.insert_or_assign(node, daemon);
    outages_.TakeBack(node, now);
  }
}

}  // namespace lamina
