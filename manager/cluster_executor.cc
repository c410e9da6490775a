#include "manager/cluster_executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>

#include "base/log.h"
#include "base/mutex.h"
#include "wire/codec.h"

namespace lamina {
namespace {

// Between two questions for nodes' counters while they work. People and scrapers look more seldom;
// ten answers a second cost a node nothing.
constexpr auto kStatsInterval = milliseconds(100);
// While nothing is submitted, when counters stay as they are, but for those of late messages.
constexpr auto kIdleStatsInterval = std::chrono::seconds(1);
// But for what does not depend on the step's work.
constexpr size_t kMaxOrderBytes = kMaxFrameBytes - 64;
// For the last records, once no more steps are submitted.
constexpr auto kTracePatience = std::chrono::seconds(5);

ExecutorEvent LossEvent(const Member& node, const Status& status) {
  const bool memory = node.role == NodeRole::kMemory;
  return {memory ? ExecutorEvent::Kind::kNodeLost : ExecutorEvent::Kind::kComputeLost,
          {},
          node.id,
          status};
}

}  // namespace

const DataPathStatus* WorstPath(std::span<const DataPathStatus> paths) {
  constexpr std::string_view kFromBest[] = {"shm", "verbs", "ucx", "tcp"};
  const auto rank = [&](const DataPathStatus& path) {
    return std::find(std::begin(kFromBest), std::end(kFromBest), path.fabric);
  };
  const auto worst = std::max_element(
      paths.begin(), paths.end(),
      [&](const DataPathStatus& a, const DataPathStatus& b) { return rank(a) < rank(b); });
  return worst == paths.end() ? nullptr : &*worst;
}

ClusterExecutor::ClusterExecutor(std::unique_ptr<NodeConnections> connections,
                                 const ModelConfig& model, const ConnectMeans& means)
    : connections_(std::move(connections)), standbys_(connections_->config(), model, means) {
  for (const std::unique_ptr<Node>& node : connections_->nodes()) heard_.try_emplace(node->id);
  connections_->Start({
      .on_frame = [this](Node& node, ControlFrame frame) { OnFrame(node, std::move(frame)); },
      .on_lost = [this](const Node& node, const Status& status) { OnLost(node, status); },
  });
}

ClusterExecutor::~ClusterExecutor() {
  if (trace_ != nullptr) trace_->Finish(Deadline::After(kTracePatience));
  connections_->Close();  // their threads use this
}

void ClusterExecutor::Start(std::function<void(ExecutorEvent)> on_event) {
  MutexLock lock(mutex_);
  on_event_ = std::move(on_event);
  // Those that died since they were configured. One whose connection is just about to say so is
  // told of twice.
  for (const std::unique_ptr<Node>& node : connections_->nodes()) {
    const Status lost = connections_->LossOf(*node);
    if (lost.ok() || node->left_out()) continue;
    on_event_(LossEvent(*node, lost));
  }
}

void ClusterExecutor::OnFrame(Node& node, ControlFrame frame) {
  if (frame.type == FrameType(MessageType::kStats)) {
    if (const auto stats = Decode<MemoryStats>(frame.payload);
        stats.ok() && stats->epoch == connections_->epoch())
      OnStats(node, *stats);
    return;
  }
  if (frame.type == FrameType(MessageType::kLayersTold)) {
    if (const auto told = Decode<LayersTold>(frame.payload);
        told.ok() && told->epoch == connections_->epoch())
      TellInside(node, told->inside);
    return;
  }
  if (frame.type == FrameType(MessageType::kTraceAnswer)) return OnTrace(node, frame);
  if (frame.type == FrameType(MessageType::kPeerState)) return OnPeerState(node, frame);
  std::function<void(ExecutorEvent)> on_event;
  {
    MutexLock lock(mutex_);
    on_event = on_event_;
  }
  if (frame.type != FrameType(MessageType::kStepResult)) return;
  ExecutorEvent event;
  Result<StepResult> result = Decode<StepResult>(frame.payload);
  if (!result.ok() || result->epoch != connections_->epoch()) {
    LAMINA_LOG_ERROR("{}: dropped a step result that is malformed or of another epoch",
                     node.name());
    return;
  }
  event.result = *std::move(result);
  {
    MutexLock lock(mutex_);
    heard_[node.id].stale_messages += event.result.stale_messages;
    AddTimes(node, event.result);
    AddLeftOut(event.result);
  }
  if (!on_event) return;
  // Its compute node says so too, but over another connection, and may say it later.
  for (const SuspendedNode& told : event.result.suspended) {
    const Node *const peer = connections_->Find(told.node), *const by = connections_->Find(told.by);
    if (peer == nullptr || peer->role != NodeRole::kMemory || by == nullptr) continue;
    on_event({.kind = ExecutorEvent::Kind::kNodeSuspended,
              .result = {},
              .node = peer->id,
              .status = TimedOut(by->name() + " waits for " + peer->name()),
              .by = by->id,
              .suspension = told.suspension});
  }
  // Memory nodes first: they are to be left out when the others are connected anew.
  std::optional<ExecutorEvent> without_compute;
  for (const LostNode& peer : event.result.lost_nodes) {
    const Node* const lost = connections_->Find(peer.node);
    if (lost == nullptr) {
      LAMINA_LOG_ERROR("{}: lost a node {} that there is not", node.name(), peer.node.value);
      continue;
    }
    const Status status = PeerLost(node.name() + " lost " + std::string(NodeRoleName(lost->role)) +
                                   " node " + peer.message);
    if (lost->role == NodeRole::kMemory) {
      on_event({ExecutorEvent::Kind::kNodeLost, {}, lost->id, status});
    } else {
      without_compute = ExecutorEvent{ExecutorEvent::Kind::kComputeLost,
                                      {},
                                      IsIrreplaceable(*lost) ? NodeId{} : lost->id,
                                      status};
    }
  }
  if (event.result.layers_inside) TellInside(node, *event.result.layers_inside);
  on_event(without_compute ? std::move(*without_compute) : std::move(event));
}

void ClusterExecutor::TellInside(const Node& node, const LayersInside& inside) {
  ExecutorEvent event;
  event.kind = ExecutorEvent::Kind::kLayersInside;
  event.node = node.id;
  event.layers_inside = inside;
  std::function<void(ExecutorEvent)> on_event;
  {
    MutexLock lock(mutex_);
    on_event = on_event_;
  }
  if (on_event) on_event(std::move(event));
}

// A node that lives, and without which nothing can be served: the way between it and another is
// cut, or was.
bool ClusterExecutor::IsIrreplaceable(const Node& node) {
  return connections_->config().shares_model() && connections_->LossOf(node).ok() &&
         !standbys_.any_ready();
}

void ClusterExecutor::OnPeerState(const Node& node, const ControlFrame& frame) {
  const Result<PeerState> state = Decode<PeerState>(frame.payload);
  const Node* const peer = state.ok() ? connections_->Find(state->node) : nullptr;
  if (peer == nullptr || peer->role != NodeRole::kMemory || node.role != NodeRole::kCompute ||
      state->epoch != connections_->epoch()) {
    LAMINA_LOG_ERROR("{}: dropped news of a memory node that are malformed or of another epoch",
                     node.name());
    return;
  }
  ExecutorEvent event;
  event.node = peer->id;
  event.by = node.id;
  event.suspension = state->suspension;
  switch (state->state) {
    case PeerState::State::kSuspended:
      event.kind = ExecutorEvent::Kind::kNodeSuspended;
      event.status = TimedOut(node.name() + " waits for memory node " + state->message);
      break;
    case PeerState::State::kResumed:
      event.kind = ExecutorEvent::Kind::kNodeResumed;
      LAMINA_LOG_INFO("{} answers {} again", peer->name(), node.name());
      break;
    case PeerState::State::kLost:
      event.kind = ExecutorEvent::Kind::kNodeLost;
      event.status = PeerLost(node.name() + " lost memory node " + state->message);
      break;
  }
  std::function<void(ExecutorEvent)> on_event;
  {
    MutexLock lock(mutex_);
    on_event = on_event_;
  }
  if (on_event) on_event(std::move(event));
}

void ClusterExecutor::OnTrace(const Node& node, const ControlFrame& frame) {
  Result<TraceAnswer> answer = Decode<TraceAnswer>(frame.payload);
  if (trace_ == nullptr || !answer.ok()) {
    LAMINA_LOG_ERROR("{}: dropped records that are malformed or were not asked for", node.name());
  } else {
    trace_->Take(node.id, *std::move(answer));
  }
}

void ClusterExecutor::AddTimes(Node& sender, const StepResult& result) {
  for (const NodeTimes& told : result.times) {
    const auto heard = heard_.find(told.node == NodeId{} ? sender.id : told.node);
    if (heard != heard_.end()) heard->second.times.Add(told.times);
  }
}

void ClusterExecutor::RecordTrace(TraceFile& file) {
  std::vector<TraceCollector::Node> nodes;
  for (const std::unique_ptr<Node>& node : connections_->nodes()) {
    if (!node->left_out())
      nodes.push_back({node->id, node->name(), node->role == NodeRole::kCompute});
  }
  trace_ = std::make_unique<TraceCollector>(
      file, connections_->epoch(), nodes, [this](NodeId node, const TraceQuery& query) {
        return connections_->Find(node)->connection->Send(FrameType(MessageType::kTraceQuery),
                                                          Encode(query));
      });
  trace_->Start();
}

void ClusterExecutor::OnStats(Node& node, const MemoryStats& stats) {
  ExecutorEvent event;
  event.kind = ExecutorEvent::Kind::kSpeeds;
  std::function<void(ExecutorEvent)> on_event;
  {
    MutexLock lock(mutex_);
    Heard& heard = heard_[node.id];
    heard.stats = stats;
    if (heard.speed.Update(stats)) event.speeds = Speeds();
    if (!event.speeds.empty()) speeds_known_ = true;
    on_event = on_event_;
  }
  if (on_event && !event.speeds.empty()) on_event(std::move(event));
}

// A group is as fast as its slowest node.
std::vector<NodeSpeed> ClusterExecutor::Speeds() {
  std::vector<NodeSpeed> speeds;
  double fastest = 0;
  for (const std::unique_ptr<Node>& node : connections_->nodes()) {
    const Heard& heard = heard_[node->id];
    if (node->role != NodeRole::kMemory || !connections_->LossOf(*node).ok()) continue;
    if (!heard.speed.value()) return {};
    const double speed = *heard.speed.value();
    if (speeds.empty() || speeds.back().node != node->group) speeds.push_back({node->group, speed});
    speeds.back().speed = std::min(speeds.back().speed, speed);
  }
  for (const NodeSpeed& one : speeds) fastest = std::max(fastest, one.speed);
  for (NodeSpeed& one : speeds) one.speed /= fastest;
  return speeds;
}

void ClusterExecutor::AskForStats() {
  const std::string request = Encode(StatsRequest{connections_->epoch()});
  for (const std::unique_ptr<Node>& node : connections_->nodes()) {
    if (node->role != NodeRole::kMemory) continue;
    if (!connections_->LossOf(*node).ok()) continue;
    if (Status sent = node->connection->Send(FrameType(MessageType::kStatsRequest), request);
        !sent.ok())
      LAMINA_LOG_DEBUG("{}", sent.message());
  }
}

void ClusterExecutor::OnLost(const Node& node, const Status& status) {
  std::function<void(ExecutorEvent)> on_event;
  {
    MutexLock lock(mutex_);
    on_event = on_event_;
  }
  if (on_event) on_event(LossEvent(node, status));
}

// Whoever noticed the loss, the others may be waiting for the node on data paths that are whole.
void ClusterExecutor::Leave(NodeId node) {
  Node& lost = *connections_->Find(node);
  connections_->Leave(lost);
  const std::string told =
      Encode(LosePeer{connections_->epoch(), node, connections_->LossOf(lost).message()});
  for (Node* compute : connections_->compute()) SendOrder(*compute, MessageType::kLosePeer, told);
}

// The scheduler bounds what starts in one step, so orders fit, unless a single sequence is too long
// for any. The rest of its step goes on.
void ClusterExecutor::Submit(const StepPlan& plan, std::vector<NewSequence> added) {
  submitted_since_ = true;
  if (MaxOrderBytes(plan, added) <= kMaxOrderBytes) return SendOrders(plan, std::move(added));
  FittedStep fitted = FitOrders(
      plan, added, [this](const auto& some, const auto& news) { return OrdersFit(some, news); });
  if (!fitted.left_out.empty()) {
    LAMINA_LOG_ERROR(
        "step {}: its orders are larger than the {} bytes that a node takes; {} sequences of it "
        "fail",
        plan.step.value, kMaxFrameBytes, fitted.left_out.size());
    MutexLock lock(mutex_);
    left_out_[plan.step] = std::move(fitted.left_out);
  }
  SendOrders(fitted.plan, std::move(fitted.added));
}

bool ClusterExecutor::OrdersFit(const StepPlan& plan, std::span<const NewSequence> added) const {
  if (Encode(MakeComputeOrder(connections_->epoch(), plan, {added.begin(), added.end()},
                              connections_->local()))
          .size() > kMaxOrderBytes)
    return false;
  return std::ranges::all_of(connections_->nodes(), [&](const std::unique_ptr<Node>& node) {
    return node->role != NodeRole::kMemory ||
           Encode(MakeMemoryOrder(connections_->epoch(), plan, node->group)).size() <=
               kMaxOrderBytes;
  });
}

void ClusterExecutor::SendOrders(const StepPlan& plan, std::vector<NewSequence> added) {
  ComputeOrder compute_order =
      MakeComputeOrder(connections_->epoch(), plan, std::move(added), connections_->local());
  compute_order.no_times = !time_steps_;
  const std::string bytes = Encode(compute_order);
  // The first slice runs while memory nodes are told; their messages wait for their order.
  for (Node* node : connections_->compute()) SendOrder(*node, MessageType::kComputeOrder, bytes);
  for (const std::unique_ptr<Node>& node : connections_->nodes()) {
    if (node->role != NodeRole::kMemory || node->left_out()) continue;
    const MemoryOrder order = MakeMemoryOrder(connections_->epoch(), plan, node->group);
    if (order.released.empty() && order.decode.empty() && order.prefill.empty() &&
        order.layers_inside == 0)
      continue;
    SendOrder(*node, MessageType::kMemoryOrder, Encode(order));
  }
  if (speed_rounds_.Next(speeds_known_)) AskForStats();
}

// A node that is lost says so through its connection. One that gets no order for another reason
// would be waited for until the step's deadline: it is of no use any more.
void ClusterExecutor::SendOrder(Node& node, MessageType type, std::string order) {
  const Status sent = node.connection->Send(FrameType(type), std::move(order));
  if (sent.ok() || sent.code() == StatusCode::kPeerLost) return;
  connections_->Lose(node, sent);
}

void ClusterExecutor::AddLeftOut(StepResult& result) {
  const auto found = left_out_.find(result.step);
  if (found == left_out_.end()) return;
  std::ranges::move(found->second, std::back_inserter(result.failed));
  left_out_.erase(found);
}

TimePoint ClusterExecutor::Turn(TimePoint now) {
  const auto next_stats = [this] {
    return asked_for_stats_ + (submitted_since_ ? kStatsInterval : kIdleStatsInterval);
  };
  if (now >= next_stats()) {
    asked_for_stats_ = now;
    submitted_since_ = false;
    AskForStats();
  }
  return std::min(next_stats(), standbys_.Turn(now));
}

std::vector<NodeStatus> ClusterExecutor::nodes() {
  std::vector<NodeStatus> result;
  for (const std::unique_ptr<Node>& node : connections_->nodes()) {
    const bool memory = node->role == NodeRole::kMemory;
    MutexLock lock(mutex_);
    const Heard& heard = heard_[node->id];
    NodeStatus status;
    status.id = node->id;
    if (connections_->config().kv_head_parallel > 1 && memory)
      status.kv_heads =
          fmt::format("{}..{}", node->first_kv_head, node->first_kv_head + node->num_kv_heads - 1);
    status.name = node->config.name;
    status.holds = node->configured.holds;
    status.weight_bytes = node->configured.weight_bytes;
    status.role = node->role;
    status.address = node->address();
    const Status lost = connections_->LossOf(*node);
    status.state = lost.ok() ? NodeState::kReady : NodeState::kLost;
    status.detail = lost.message();
    for (const Node* compute : connections_->compute()) {
      for (const DataPath& path : compute->configured.paths) {
        if (path.node == node->id)
          status.paths.push_back({compute->config.name, path.fabric, path.through, path.refused});
      }
    }
    if (const DataPathStatus* worst = WorstPath(status.paths)) {
      status.transport = worst->fabric;
      status.transport_refused = worst->refused;
    }
    status.capacity_tokens = node->configured.capacity_tokens;
    status.stored_tokens = memory ? heard.stats.used_tokens : 0;
    status.stored_sequences = memory ? heard.stats.num_sequences : 0;
    status.attention_us = memory ? heard.stats.attention_us : 0;
    status.times = heard.times;
    status.stale_messages = memory ? heard.stats.stale_messages : heard.stale_messages;
    result.push_back(std::move(status));
  }
  return result;
}

}  // namespace lamina
