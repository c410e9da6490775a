// What the engine does when nodes are lost and when they come back.
#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/mutex.h"
#include "manager/serving_engine.h"

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

Status ServingEngine::given_up() {
  MutexLock lock(mutex_);
  return given_up_;
}

Status ServingEngine::WhyNotServing() const {
  if (!given_up_.ok() || outage_.ok()) return given_up_;
  const double left =
      std::max(0.0, SecondsOf(options_.give_up_after - (Clock::now() - outage_since_)));
  return PeerLost(outage_.message() + "; waiting for nodes to come back, for " +
                  std::to_string(static_cast<int>(left)) + " s at most");
}

// The executor may have told of the node's loss before the engine heard of it, so whether the
// scheduler counts on its KV decides, not whether it is among those that are lost.
void ServingEngine::LoseNode(NodeId node, const Status& status, Deliveries& out) {
  if (outages_.Lose(node, status.message(), Clock::now(), executor_->KvNodeOf(node)))
    LAMINA_LOG_ERROR("{}", status.message());
  executor_->Leave(node);
  FailSequencesOf(executor_->KvNodeOf(node), status, out);
  if (scheduler_.stats().nodes.empty())
    BeginOutage(PeerLost("no memory node is left; the last one: " + status.message()), out);
}

void ServingEngine::FailSequencesOf(NodeId kv_node, const Status& status, Deliveries& out) {
  for (const SequenceId sequence : scheduler_.LoseNode(kv_node))
    FailSequence(sequence, status, out);
}

void ServingEngine::LoseCompute(NodeId node, const Status& status, Deliveries& out) {
  if (node != NodeId{})
    outages_.Lose(node, status.message(), Clock::now(), executor_->KvNodeOf(node));
  if (options_.reconnect == nullptr) return GiveUp(status, out);
  LAMINA_LOG_ERROR("{}; what runs starts again on the nodes that are left", status.message());
  BeginReconnecting(outages_.lost());
}

// Some compute node hangs although its connection is alive: those that answer go on.
void ServingEngine::LoseStep(const Status& status, Deliveries& out) {
  if (options_.reconnect == nullptr) return GiveUp(status, out);
  LAMINA_LOG_ERROR("{}; what runs starts again on the nodes that answer", status.message());
  std::vector<SequenceId> too_often;
  for (const std::optional<InFlight>& step : in_flight_) {
    if (!step || !step->deadline.Passed()) continue;
    for (const Work& work : step->plan.work) {
      const auto late = continuations_.find(work.sequence);
      if (late != continuations_.end() && ++late->second.num_late_steps >= kMostLateSteps)
        too_often.push_back(work.sequence);
    }
  }
  for (const SequenceId sequence : too_often) FailSequence(sequence, status, out);
  std::map<NodeId, std::string> doubtful;
  for (const NodeStatus& node : executor_->nodes()) {
    if (node.role == NodeRole::kCompute && node.state == NodeState::kReady)
      doubtful.emplace(node.id, status.message());
  }
  BeginReconnecting(outages_.lost(), std::move(doubtful));
}

// Nodes in doubt are left out unless they answer. The executor goes, with its connections, on a
// thread of its own: that waits for nodes.
void ServingEngine::BeginReconnecting(std::map<NodeId, std::string> left_out,
                                      std::map<NodeId, std::string> doubtful) {
  for (std::optional<InFlight>& step : in_flight_) step.reset();
  scheduler_.Restart();
  reconnecting_since_ = Clock::now();
  if (executor_ != nullptr) {
    nodes_meanwhile_ = executor_->nodes();
    for (const NodeStatus& one : nodes_meanwhile_) {
      // An event that is on its way comes too late.
      if (one.state == NodeState::kLost &&
          outages_.Lose(one.id, one.detail, Clock::now(), executor_->KvNodeOf(one.id)))
        (outage_.ok() ? left_out : doubtful).emplace(one.id, one.detail);
    }
  }
  for (NodeStatus& one : nodes_meanwhile_) {
    if (!left_out.contains(one.id)) one.state = NodeState::kReconnecting;
  }
  // If this try is in vain, the outage began with it.
  Deadline until((outage_.ok() ? reconnecting_since_ : outage_since_) + options_.give_up_after);
  reconnecting_ =
      std::thread([this, before = std::exchange(executor_, nullptr), left_out = std::move(left_out),
                   doubtful = std::move(doubtful), until]() mutable {
        before.reset();
        std::set<NodeId> answer;
        if (options_.look != nullptr && !doubtful.empty())
          answer = options_.look(doubtful, until, options_.stop.get_token());
        for (const auto& [node, why] : doubtful) {
          if (!answer.contains(node)) left_out.emplace(node, why);
        }
        // Only weights take that long to load, and now they are there.
        if (!answer.empty() && until.Passed()) until = Deadline::After(options_.give_up_after);
        Result<std::unique_ptr<StepExecutor>> after = options_.reconnect(left_out, until);
        MutexLock lock(mutex_);
        reconnected_ = std::move(after);
        wake_.Signal();
      });
}

// A pause is no fault of nodes, and no time in which they could come back.
void ServingEngine::NoticePause() {
  const TimePoint now = Clock::now();
  const Clock::duration missed = turns_.Turn(now);
  if (missed == Clock::duration::zero()) return;
  paused_ = missed;
  paused_until_ = now;
  LAMINA_LOG_WARN(
      "the manager did not run for {:.1f} s (was it stopped, swapped out, without a core?): that "
      "time does not count against nodes",
      SecondsOf(missed));
  for (std::optional<InFlight>& step : in_flight_) {
    if (step) step->deadline = Deadline(step->deadline.at() + missed);
  }
  for (TimePoint* since : {&outage_since_, &reconnecting_since_})
    *since = std::min(*since + missed, now);
}

Status ServingEngine::WithPause(const Status& loss) const {
  if (paused_ == Clock::duration::zero() || Clock::now() - paused_until_ > kPauseEcho) return loss;
  return {loss.code(), loss.message() + "; the manager itself had not run for " +
                           std::to_string(static_cast<int>(SecondsOf(paused_))) + " s"};
}

void ServingEngine::TakeReconnected(Deliveries& out) {
  reconnecting_.join();
  Result<std::unique_ptr<StepExecutor>> after = *std::exchange(reconnected_, std::nullopt);
  if (!after.ok()) return BeginOutage(after.status(), out);
  StartExecutor(std::move(*after));
  const std::vector<NodeStatus> nodes = executor_->nodes();
  for (const NodeStatus& node : nodes) {
    if (node.state == NodeState::kLost) {
      outages_.Lose(node.id, node.detail, Clock::now(), executor_->KvNodeOf(node.id));
    } else {
      outages_.TakeBack(node.id, Clock::now());
    }
  }
  TakePools(nodes, out);
  if (scheduler_.stats().nodes.empty()) return BeginOutage(PeerLost("no memory node is left"), out);
  outage_ = OkStatus();
  UsePipelineOf(nodes);
  LAMINA_LOG_INFO("reconnected: {} sequences start again", scheduler_.stats().num_waiting);
}

// The scheduler's pools become those of the executor.
void ServingEngine::TakePools(const std::vector<NodeStatus>& nodes, Deliveries& out) {
  std::map<NodeId, std::string> why;  // by the node that routes name
  for (const NodeStatus& node : nodes) {
    if (node.state == NodeState::kLost) why.emplace(executor_->KvNodeOf(node.id), node.detail);
  }
  std::map<NodeId, int64_t> pools;
  for (const KvNode& pool : executor_->kv_nodes()) {
    if (!why.contains(pool.id)) pools.emplace(pool.id, pool.capacity_tokens);
  }
  const std::vector<NodeUse> before = scheduler_.stats().nodes;
  // The new ones first: what the others cannot hold any more may fit there.
  for (const auto& [id, capacity] : pools) {
    if (std::ranges::find(before, id, &NodeUse::id) == before.end())
      scheduler_.AddNode({id, capacity});
  }
  for (const NodeUse& pool : before) {
    const auto same = pools.find(pool.id);
    if (same != pools.end() && same->second == pool.capacity_tokens) continue;
    FailSequencesOf(
        pool.id,
        PeerLost(why.contains(pool.id) ? why[pool.id]
                                       : "a memory node came back with another capacity"),
        out);
    if (same != pools.end()) scheduler_.AddNode({pool.id, same->second});
  }
}

void ServingEngine::UsePipelineOf(const std::vector<NodeStatus>& nodes) {
  const auto is_left = [](const NodeStatus& node) {
    return node.role == NodeRole::kCompute && node.state == NodeState::kReady;
  };
  // Those that share a model are all there, or nothing is.
  const bool shares = options_.pipeline_parallel_size * options_.tensor_parallel_size > 1;
  const auto num_left = static_cast<int>(std::ranges::count_if(nodes, is_left));
  scheduler_.SetPipeline(cycle_.LeaveNodes(shares ? options_.pipeline_parallel_size : num_left));
}

// Or goes on with one: trying again was in vain.
void ServingEngine::BeginOutage(const Status& status, Deliveries& out) {
  if (options_.reconnect == nullptr) return GiveUp(status, out);
  const TimePoint now = Clock::now();
  const bool begins = outage_.ok();
  // A try that had to end early tells nothing but that.
  if (begins || now - outage_since_ < options_.give_up_after) outage_ = PeerLost(status.message());
  if (begins) {
    LAMINA_LOG_ERROR("nothing can be served until nodes come back: {}", status.message());
    outage_since_ = executor_ == nullptr ? reconnecting_since_ : now;
    FailAll(outage_, out);
    outage_tries_.Begin(now);
  } else {
    outage_tries_.Tried(now);
  }
  if (executor_ != nullptr) BeginReconnecting({}, outages_.lost());
}

void ServingEngine::GiveUp(const Status& status, Deliveries& out) {
  if (!given_up_.ok()) return;
  given_up_ = PeerLost(status.message());
  LAMINA_LOG_ERROR("cannot serve any more: {}", status.message());
  for (std::optional<InFlight>& step : in_flight_) step.reset();
  for (NodeStatus& one : nodes_meanwhile_) {
    if (one.state == NodeState::kReconnecting) one.state = NodeState::kGivenUp;
  }
  FailAll(given_up_, out);
}

TimePoint ServingEngine::next_try() const {
  if (!given_up_.ok() || reconnecting_.joinable()) return TimePoint::max();
  if (executor_ == nullptr)
    return std::min(outage_tries_.next(), outage_since_ + options_.give_up_after);
  const bool can_look =
      options_.look != nullptr && !outages_.lost().empty() && !looking_.joinable();
  return can_look ? outages_.next_try() : TimePoint::max();
}

// While others serve, nodes are looked for aside, so that nobody waits for one that does not
// answer.
void ServingEngine::TryAgainIfDue(Deliveries& out) {
  const TimePoint now = Clock::now();
  if (now < next_try()) return;
  if (executor_ == nullptr) {
    if (now - outage_since_ < options_.give_up_after) return BeginReconnecting({}, outages_.lost());
    const auto waited = std::to_string(static_cast<int>(SecondsOf(now - outage_since_)));
    return GiveUp(
        PeerLost(outage_.message() + "; no node came back that would do, within " + waited + " s"),
        out);
  }
  std::map<NodeId, std::string> lost = outages_.lost();
  const std::set<NodeId> due = outages_.Due(now);
  std::erase_if(lost, [&](const auto& one) { return !due.contains(one.first); });
  looked_for_ = due;
  looking_ = std::thread([this, lost = std::move(lost)] {
    std::set<NodeId> found =
        options_.look(lost, Deadline(TimePoint::max()), options_.stop.get_token());
    MutexLock lock(mutex_);
    found_ = std::move(found);
    wake_.Signal();
  });
}

void ServingEngine::TakeFound() {
  looking_.join();
  std::set<NodeId> found = *std::exchange(found_, std::nullopt);
  if (executor_ == nullptr) return;  // all are being connected anew already
  const TimePoint now = Clock::now();
  const std::set<NodeId> due = outages_.Due(now);
  std::erase_if(found, [&](NodeId node) { return !due.contains(node); });  // lost anew meanwhile
  std::map<NodeId, std::string> left_out = outages_.lost();
  const size_t num_found =
      std::erase_if(left_out, [&](const auto& lost) { return found.contains(lost.first); });
  outages_.Tried(looked_for_, now);
  if (num_found == 0) return;
  LAMINA_LOG_INFO(
      "{} nodes that were lost answer again: they are taken back, and what runs starts again",
      num_found);
  BeginReconnecting(std::move(left_out));
  for (const NodeId node : found) outages_.TakeBack(node, now);
}

}  // namespace lamina
