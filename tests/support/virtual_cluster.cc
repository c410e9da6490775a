#include "tests/support/virtual_cluster.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/random_id.h"

namespace lamina::testing {
namespace {

// What a round takes in which somebody does something, so that the time goes on in any case.
constexpr auto kRound = microseconds(1);

// Of nobody: there are no sockets.
constexpr int kFirstPort = 7001, kFirstStandbyPort = 7501;

// How often nodes look for peers; after so many looks in which nothing happened none is coming.
constexpr auto kLook = milliseconds(1);
constexpr int kQuietRounds = 4;

ControlOptions FrontControl() {
  ControlOptions options;
  options.peer_timeout = VirtualCluster::kFrontPatience;
  return options;
}

OpenLadder OpenLoopback() {
  return [](std::span<const std::string>) {
    return Ladder::Open(std::vector<std::string>{"loopback"});
  };
}

}  // namespace

std::vector<NodeConfig> VirtualCluster::NodesOf(const Deployment& deployment) {
  std::vector<NodeConfig> nodes;
  int port = kFirstPort;
  const int num_compute_nodes = deployment.num_compute_nodes * deployment.pipeline_parallel_size *
                                deployment.tensor_parallel_size;
  for (int i = 0; i < num_compute_nodes; ++i) {
    NodeConfig& node = nodes.emplace_back();
    node.name = "c" + std::to_string(i);
    node.role = NodeRole::kCompute;
    node.port = port++;
    node.threads = 1;
    if (deployment.num_memory_nodes == 0) node.memory_bytes = deployment.memory_bytes;
  }
  for (int i = 0; i < deployment.num_memory_nodes; ++i) {
    nodes.push_back({.name = "m" + std::to_string(i),
                     .role = NodeRole::kMemory,
                     .port = port++,
                     .threads = 1,
                     .memory_bytes = deployment.memory_bytes});
  }
  uint32_t id = 2;
  for (NodeConfig& node : nodes) node.id = NodeId{std::exchange(id, 2 * id + 1)};
  return nodes;
}

std::vector<NodeConfig> VirtualCluster::StandbysOf(const Deployment& deployment) {
  std::vector<NodeConfig> standbys;
  for (int i = 0; i < deployment.num_standbys; ++i) {
    standbys.push_back({.name = "s" + std::to_string(i),
                        .role = NodeRole::kCompute,
                        .port = kFirstStandbyPort + i,
                        .threads = 1});
  }
  return standbys;
}

Result<std::unique_ptr<VirtualCluster>> VirtualCluster::Create(const Deployment& deployment) {
  LAMINA_ASSIGN_OR_RETURN(const VirtualClusterOptions options, OptionsOf(deployment));
  return Create(options);
}

Result<VirtualClusterOptions> VirtualCluster::OptionsOf(const Deployment& deployment) {
  VirtualClusterOptions options;
  ClusterConfig nodes;
  nodes.transport = deployment.transport;
  nodes.nodes = NodesOf(deployment);
  nodes.standbys = StandbysOf(deployment);
  LAMINA_ASSIGN_OR_RETURN(options.model, ModelConfig::Load(deployment.model));
  LAMINA_ASSIGN_OR_RETURN(options.config, ConfigOf(deployment, options.model, std::move(nodes)));
  return options;
}

Result<std::unique_ptr<VirtualCluster>> VirtualCluster::Create(
    const VirtualClusterOptions& options) {
  std::unique_ptr<VirtualCluster> cluster(new VirtualCluster(options));
  for (const NodeConfig& node : cluster->config().daemons())
    LAMINA_RETURN_IF_ERROR(cluster->Start(node.name));
  cluster->StartManager();
  return cluster;
}

VirtualCluster::VirtualCluster(const VirtualClusterOptions& options)
    : network_(options.control_latency),
      options_(options),
      front_network_(options.control_latency) {
  if (options_.with_front) front_.emplace(options_, front_network_);
}

// The engine for the service, on the cluster's thread.
class VirtualCluster::CoreEngine final : public Engine {
 public:
  CoreEngine(VirtualCluster& cluster, int64_t max_model_len, std::vector<TokenId> ends)
      : cluster_(cluster), max_model_len_(max_model_len), ends_(std::move(ends)) {}

  Result<RequestId> Submit(GenerateRequest request, Sink sink) override {
    cluster_.next_turn_ = cluster_.now();
    return cluster_.core_->Submit(std::move(request), std::move(sink), cluster_.now());
  }
  void Abort(RequestId request) override {
    cluster_.next_turn_ = cluster_.now();
    cluster_.core_->Abort(request, cluster_.now());
  }
  void Stop(RequestId request, int index) override {
    cluster_.next_turn_ = cluster_.now();
    cluster_.core_->Stop(request, index, cluster_.now());
  }
  EngineStatus status() override { return cluster_.core_->status(cluster_.now()); }
  int64_t max_model_len() const override { return max_model_len_; }
  std::span<const TokenId> eos_tokens() const override { return ends_; }

 private:
  VirtualCluster& cluster_;
  const int64_t max_model_len_;
  const std::vector<TokenId> ends_;
};

VirtualCluster::Front::Front(const VirtualClusterOptions& options, ControlNetwork& network)
    : requests({.model = options.config.served_name,
                .vocab_size = options.model.vocab_size,
                .give_up_after = options.config.start_timeout},
               Clock::now()),
      link(
          {.manager = kFrontAddress, .control = FrontControl(), .connect = network.connector()},
          requests, [this] { changed = true; }, Clock::now()) {}

// The manager goes first, as its connections use the network.
VirtualCluster::~VirtualCluster() {
  front_.reset();
  EndManager();
  daemons_.clear();
}

void VirtualCluster::EndManager() {
  front_door_.reset();
  core_.reset();
  looking_.Drop();
  reconnecting_.Drop();
  connecting_.Drop();
  events_.clear();
  looks_ = reconnects_ = false;
  failure_ = OkStatus();
}

// The connections go first: a process that is gone says goodbye to nobody.
void VirtualCluster::KillManager() {
  for (const NodeConfig& node : config().daemons()) network_.Break(ClusterConfig::Address(node));
  front_network_.Break(kFrontAddress);
  EndManager();
}

void VirtualCluster::StartManager() {
  failure_ = OkStatus();
  if (front_) manager_id_ = RandomId();
  reconnect_means_ = {.reconnect = ReconnectTo(options_.config, options_.model, Means()),
                      .look = LookAmong(options_.config, options_.model, Means()),
                      .end = EndAtOnce,
                      .on_change = Means().on_change};
  connecting_.Start(now(), [this](Turns& turns) {
    return ClusterExecutor::ConnectByTurns(turns, config(), options_.model, Means());
  });
  changed_ = true;
}

EngineStatus VirtualCluster::status() const {
  if (core_ != nullptr) return core_->status(Clock::now());
  EngineStatus status;
  status.detail = "there is no manager";
  return status;
}

NodeConfig VirtualCluster::Find(const std::string& name) const {
  const std::vector<NodeConfig> all = config().daemons();
  return *std::ranges::find(all, name, &NodeConfig::name);
}

std::string VirtualCluster::AddressOf(const std::string& name) const {
  return ClusterConfig::Address(Find(name));
}

Status VirtualCluster::Start(const std::string& name) {
  LAMINA_ASSIGN_OR_RETURN(Node node, Open(Find(name)));
  daemons_.emplace(name, Daemon{.node = std::move(node)});
  return OkStatus();
}

void VirtualCluster::Kill(const std::string& name) {
  if (paused(name)) Resume(name);  // nothing of it is silent any more
  daemons_.erase(name);
}

void VirtualCluster::Pause(const std::string& name) {
  if (std::exchange(daemons_.at(name).paused, true)) return;
  network_.wires().Cut(AddressOf(name), ControlNetwork::kManager);
  network_.wires().Cut(ControlNetwork::kManager, AddressOf(name));
}

void VirtualCluster::Resume(const std::string& name) {
  const auto daemon = daemons_.find(name);
  if (daemon == daemons_.end() || !std::exchange(daemon->second.paused, false)) return;
  network_.wires().Mend(AddressOf(name), ControlNetwork::kManager);
  network_.wires().Mend(ControlNetwork::kManager, AddressOf(name));
}

bool VirtualCluster::paused(const std::string& name) const {
  const auto daemon = daemons_.find(name);
  return daemon != daemons_.end() && daemon->second.paused;
}

Result<VirtualCluster::Node> VirtualCluster::Open(const NodeConfig& node) {
  MemoryNodeOptions options;
  options.name = node.name;
  options.listen = ClusterConfig::Address(node);
  options.num_threads = node.threads;
  options.memory_bytes = node.memory_bytes;
  options.open_control = network_.opener();
  options.open_ladder =
      options_.fabrics == nullptr ? OpenLoopback() : options_.fabrics->OpenerOf(node.name);
  if (node.role == NodeRole::kCompute) {
    LAMINA_ASSIGN_OR_RETURN(Node compute, ComputeNode::Create(options));
    return compute;
  }
  LAMINA_ASSIGN_OR_RETURN(Node memory, MemoryNode::Create(options));
  return memory;
}

ConnectMeans VirtualCluster::Means() {
  return {.connect = network_.connector(),
          .manager_id = manager_id_,
          .end = EndAtOnce,
          .on_change = [this] { changed_ = true; }};
}

bool VirtualCluster::RunUntil(const std::function<bool()>& done, Clock::duration patience) {
  const TimePoint latest = now() + patience;
  int num_quiet = 0;  // rounds in a row in which nobody has done anything
  while (!done()) {
    if (now() >= latest) return false;
    num_quiet = TurnAll() ? 0 : num_quiet + 1;
    // Who did something and needs no time for it has its next turn at once.
    if (num_quiet == 0 && options_.turn_takes == nullptr) {
      clock_.Advance(kRound);
      continue;
    }
    // Over the loopback fabric, of which no turn says when it is due, a peer may be there that is
    // taken with a look that is due.
    const bool may_have_come = options_.fabrics == nullptr && num_quiet < kQuietRounds;
    const TimePoint next = may_have_come ? std::min(NextTurn(), now() + kLook) : NextTurn();
    clock_.AdvanceTo(std::min(latest, std::max(next, now() + kRound)));
  }
  return true;
}

bool VirtualCluster::TurnAll() {
  bool any = network_.Deliver();
  if (options_.fabrics != nullptr) any |= options_.fabrics->Deliver();
  for (auto& [name, daemon] : daemons_) any |= TurnDaemon(name, daemon);
  any |= TurnManager();
  if (front_) any |= TurnFront();
  return any;
}

bool VirtualCluster::TurnFront() {
  bool any = front_network_.Deliver();
  if (front_door_) any |= front_door_->service->Turn(now());
  if (!std::exchange(front_->changed, false) && now() < front_->link.next_turn()) return any;
  any |= front_->link.Turn(now());
  for (const Delivery& delivery : front_->requests.TakeDeliveries()) {
    delivery.sink(delivery.event);
    any = true;
  }
  return any;
}

bool VirtualCluster::TurnDaemon(const std::string& name, Daemon& daemon) {
  if (daemon.paused || now() < daemon.free_at) return false;
  if (!std::visit([this](const auto& node) { return node->Turn(now()); }, daemon.node))
    return false;
  daemon.free_at = FreeAt(name);
  return true;
}

bool VirtualCluster::TurnManager() {
  if (now() < manager_free_at_) return false;
  const bool tasks = TurnTasks();
  const bool engine = TurnEngine();
  if (tasks || engine) manager_free_at_ = FreeAt(ControlNetwork::kManager);
  return tasks || engine;
}

TimePoint VirtualCluster::FreeAt(const std::string& who) const {
  return options_.turn_takes == nullptr ? now() : now() + options_.turn_takes(who);
}

TimePoint VirtualCluster::NextTurn() const {
  TimePoint next = std::min(network_.next(), NextOfManager());
  if (options_.fabrics != nullptr) next = std::min(next, options_.fabrics->next());
  for (const auto& [name, daemon] : daemons_) next = std::min(next, NextOfDaemon(daemon));
  if (front_) next = std::min({next, front_network_.next(), front_->link.next_turn()});
  if (front_door_) next = std::min(next, front_door_->service->next_turn());
  return next;
}

TimePoint VirtualCluster::NextOfDaemon(const Daemon& daemon) const {
  if (daemon.paused) return TimePoint::max();
  if (daemon.free_at > now()) return daemon.free_at;
  return std::visit([this](const auto& node) { return node->wake_at(now()); }, daemon.node);
}

TimePoint VirtualCluster::NextOfManager() const {
  if (manager_free_at_ > now()) return manager_free_at_;
  const TimePoint tasks = std::min({connecting_.next(), reconnecting_.next(), looking_.next()});
  return core_ == nullptr ? tasks : std::min(tasks, next_turn_);
}

bool VirtualCluster::TurnTasks() {
  const TimePoint next = std::min({connecting_.next(), reconnecting_.next(), looking_.next()});
  if (!std::exchange(changed_, false) && now() < next) return false;
  if (std::optional<Connected> connected = connecting_.Turn(now()))
    TakeConnected(*std::move(connected));
  if (std::optional<Reconnected> reconnected = reconnecting_.Turn(now())) {
    reconnects_ = false;
    core_->TakeReconnected(*std::move(reconnected), now());
    next_turn_ = now();
  }
  if (std::optional<FoundNodes> found = looking_.Turn(now())) {
    looks_ = false;
    core_->TakeFound(*std::move(found), now());
    next_turn_ = now();
  }
  return true;
}

void VirtualCluster::TakeConnected(Connected outcome) {
  failure_ = outcome.status();
  if (!outcome.ok()) return;
  EngineOptions options = EngineOptions::Of(config(), options_.model);
  options.reconnects = options.looks_for_nodes = true;
  options.retry = options_.retry;
  core_ = std::make_unique<EngineCore>(
      options, *std::move(outcome),
      [this](EngineCore::Event event) { events_.push_back(std::move(event)); });
  next_turn_ = now();
  if (front_) ServeFront();
}

void VirtualCluster::ServeFront() {
  const EngineOptions options = EngineOptions::Of(config(), options_.model);
  front_door_.emplace();
  front_door_->engine =
      std::make_unique<CoreEngine>(*this, options.scheduler.max_model_len, options.eos_tokens);
  front_door_->port = front_network_.opener()(kFrontAddress, FrontControl()).value();
  front_door_->service =
      std::make_unique<EngineService>(EngineServiceOptions{.model = config().served_name,
                                                           .vocab_size = options_.model.vocab_size,
                                                           .manager_id = manager_id_},
                                      *front_door_->engine, *front_door_->port);
}

bool VirtualCluster::TurnEngine() {
  if (core_ == nullptr || (events_.empty() && now() < next_turn_)) return false;
  for (; !events_.empty(); events_.pop_front()) {
    if (options_.on_told != nullptr) options_.on_told(events_.front().event);
    core_->Handle(events_.front(), now());
  }
  EngineDecisions decisions = core_->Turn(now());
  next_turn_ = decisions.next_turn;
  if (decisions.reconnect) {
    reconnects_ = true;
    reconnecting_.Start(now(), [&](Turns& turns) {
      return ReconnectByTurns(turns, *std::move(decisions.reconnect), reconnect_means_);
    });
    changed_ = true;
  }
  if (decisions.look_for) {
    looks_ = true;
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
  if (front_) {
    front_->changed = true;
    return front_->requests.Submit(std::move(request), std::move(sink), now());
  }
  next_turn_ = now();
  return core_->Submit(std::move(request), std::move(sink), now());
}

void VirtualCluster::Abort(RequestId request) {
  if (front_) {
    front_->changed = true;
    return front_->requests.Abort(request, now());
  }
  next_turn_ = now();
  core_->Abort(request, now());
}

}  // namespace lamina::testing
