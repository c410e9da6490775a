#include "tests/support/virtual_cluster.h"

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace lamina::testing {
namespace {

constexpr auto kControlLatency = microseconds(50);
// What a round takes in which somebody does something, so that the time goes on in any case.
constexpr auto kRound = microseconds(1);

}  // namespace

Result<std::unique_ptr<VirtualCluster>> VirtualCluster::Create(const Deployment& deployment) {
  ClusterConfig nodes;
  nodes.transport = deployment.transport;
  int port = 7001;  // of nobody: there are no sockets
  const int num_compute_nodes = deployment.num_compute_nodes * deployment.pipeline_parallel_size *
                                deployment.tensor_parallel_size;
  for (int i = 0; i < num_compute_nodes; ++i) {
    NodeConfig& node = nodes.nodes.emplace_back();
    node.name = "c" + std::to_string(i);
    node.role = NodeRole::kCompute;
    node.port = port++;
    node.threads = 1;
    if (deployment.num_memory_nodes == 0) node.memory_bytes = deployment.memory_bytes;
  }
  for (int i = 0; i < deployment.num_memory_nodes; ++i) {
    nodes.nodes.push_back({.name = "m" + std::to_string(i),
                           .role = NodeRole::kMemory,
                           .port = port++,
                           .threads = 1,
                           .memory_bytes = deployment.memory_bytes});
  }
  uint32_t id = 2;  // with gaps: nobody may take ids for indices
  for (NodeConfig& node : nodes.nodes) node.id = NodeId{std::exchange(id, 2 * id + 1)};
  LAMINA_ASSIGN_OR_RETURN(const ModelConfig model, ModelConfig::Load(deployment.model));
  LAMINA_ASSIGN_OR_RETURN(ClusterConfig config, ConfigOf(deployment, model, std::move(nodes)));
  std::unique_ptr<VirtualCluster> cluster(new VirtualCluster(std::move(config), model));
  for (const NodeConfig& node : cluster->config_.nodes)
    LAMINA_RETURN_IF_ERROR(cluster->Start(node.name));
  cluster->connecting_.Start(cluster->now(), [&cluster](Turns& turns) {
    return ClusterExecutor::ConnectByTurns(turns, cluster->config_, cluster->model_,
                                           cluster->Means());
  });
  return cluster;
}

VirtualCluster::VirtualCluster(ClusterConfig config, ModelConfig model)
    : network_(kControlLatency),
      config_(std::move(config)),
      model_(std::move(model)),
      reconnect_means_{.reconnect = ReconnectTo(config_, model_, Means()),
                       .look = LookAmong(config_, model_, Means()),
                       .end = EndAtOnce,
                       .on_change = Means().on_change} {}

// The manager goes first, as its connections use the network.
VirtualCluster::~VirtualCluster() {
  core_.reset();
  looking_.Drop();
  reconnecting_.Drop();
  connecting_.Drop();
  daemons_.clear();
}

Status VirtualCluster::Start(const std::string& name) {
  const auto node = std::ranges::find(config_.nodes, name, &NodeConfig::name);
  LAMINA_ASSIGN_OR_RETURN(Daemon daemon, Open(*node));
  daemons_.insert_or_assign(name, std::move(daemon));
  return OkStatus();
}

void VirtualCluster::Kill(const std::string& name) { daemons_.erase(name); }

Result<VirtualCluster::Daemon> VirtualCluster::Open(const NodeConfig& node) {
  MemoryNodeOptions options;
  options.name = node.name;
  options.listen = ClusterConfig::Address(node);
  options.num_threads = node.threads;
  options.memory_bytes = node.memory_bytes;
  options.open_control = network_.opener();
  options.open_ladder = [](std::span<const std::string>) {
    return Ladder::Open(std::vector<std::string>{"loopback"});
  };
  if (node.role == NodeRole::kCompute) {
    LAMINA_ASSIGN_OR_RETURN(Daemon compute, ComputeNode::Create(options));
    return compute;
  }
  LAMINA_ASSIGN_OR_RETURN(Daemon memory, MemoryNode::Create(options));
  return memory;
}

ConnectMeans VirtualCluster::Means() {
  return {
      .connect = network_.connector(), .end = EndAtOnce, .on_change = [this] { changed_ = true; }};
}

bool VirtualCluster::RunUntil(const std::function<bool()>& done, Clock::duration patience) {
  const TimePoint latest = now() + patience;
  while (!done()) {
    if (now() >= latest) return false;
    if (TurnAll()) {
      clock_.Advance(kRound);
    } else {
      clock_.AdvanceTo(std::min(latest, std::max(NextTurn(), now() + kRound)));
    }
  }
  return true;
}

bool VirtualCluster::TurnAll() {
  bool any = network_.Deliver();
  for (auto& [name, daemon] : daemons_) {
    if (!paused_.contains(name))
      any |= std::visit([this](const auto& node) { return node->Turn(now()); }, daemon);
  }
  any |= TurnTasks();
  any |= TurnEngine();
  return any;
}

TimePoint VirtualCluster::NextTurn() const {
  TimePoint next = network_.next();
  for (const auto& [name, daemon] : daemons_) {
    if (!paused_.contains(name))
      next = std::min(
          next, std::visit([this](const auto& node) { return node->wake_at(now()); }, daemon));
  }
  next = std::min({next, connecting_.next(), reconnecting_.next(), looking_.next()});
  return core_ == nullptr ? next : std::min(next, next_turn_);
}

bool VirtualCluster::TurnTasks() {
  const TimePoint next = std::min({connecting_.next(), reconnecting_.next(), looking_.next()});
  if (!std::exchange(changed_, false) && now() < next) return false;
  if (std::optional<Connected> connected = connecting_.Turn(now()))
    TakeConnected(*std::move(connected));
  if (std::optional<Reconnected> reconnected = reconnecting_.Turn(now()))
    core_->TakeReconnected(*std::move(reconnected), now());
  if (std::optional<std::set<NodeId>> found = looking_.Turn(now()))
    core_->TakeFound(*std::move(found), now());
  return true;
}

void VirtualCluster::TakeConnected(Connected outcome) {
  failure_ = outcome.status();
  if (!outcome.ok()) return;
  EngineOptions options = EngineOptions::Of(config_, model_);
  options.reconnects = options.looks_for_nodes = true;
  core_ = std::make_unique<EngineCore>(
      options, *std::move(outcome),
      [this](EngineCore::Event event) { events_.push_back(std::move(event)); });
  next_turn_ = now();
}

bool VirtualCluster::TurnEngine() {
  if (core_ == nullptr || (events_.empty() && now() < next_turn_)) return false;
  for (; !events_.empty(); events_.pop_front()) core_->Handle(events_.front(), now());
  EngineDecisions decisions = core_->Turn(now());
  next_turn_ = decisions.next_turn;
  if (decisions.reconnect) {
    reconnecting_.Start(now(), [&](Turns& turns) {
      return ReconnectByTurns(turns, *std::move(decisions.reconnect), reconnect_means_);
    });
    changed_ = true;
  }
  if (decisions.look_for) {
    looking_.Start(now(), [&](Turns& turns) {
      return reconnect_means_.look(turns, *std::move(decisions.look_for), TimePoint::max(),
                                   reconnect_means_.on_change);
    });
    changed_ = true;
  }
  for (const Delivery& delivery : decisions.deliveries) delivery.sink(delivery.event);
  return true;
}

Result<RequestId> VirtualCluster::Submit(GenerateRequest request, Engine::Sink sink) {
  next_turn_ = now();
  return core_->Submit(std::move(request), std::move(sink), now());
}

}  // namespace lamina::testing
