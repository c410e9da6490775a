#include "tests/sim/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/log.h"
#include "manager/resolve_config.h"
#include "tests/sim/oracles.h"
#include "tests/sim/random.h"
#include "tests/sim/sim_fabric.h"
#include "tests/support/virtual_cluster.h"

namespace lamina::sim {
namespace {

using std::chrono::seconds;
using testing::ControlNetwork;
using testing::VirtualCluster;

constexpr auto kPeerTimeout = milliseconds(200);
constexpr auto kStepTimeout = seconds(5);
constexpr int64_t kMostTokens = 48;
// Nodes that were lost again soon after their return are left alone for so long.
constexpr RetryOptions kRetry{.first = milliseconds(500),
                              .most = seconds(2),
                              .most_after_return = seconds(4),
                              .settled = seconds(60)};
// The manager does not give up before every fault is over.
constexpr auto kGiveUpAfter = seconds(600);
// Within this time after the last fault everything ends.
constexpr auto kPatience = seconds(120);
// Nodes tell their counters every second.
constexpr auto kUntilCounted = milliseconds(2500);
constexpr auto kLeastTurn = microseconds(1);
constexpr auto kMostTurn = microseconds(20);

// Streams of random numbers of one seed.
constexpr uint64_t kOfData = 0x5eed0001, kOfControl = 0x5eed0002, kOfTurns = 0x5eed0003;

// FNV-1a.
class Hash {
 public:
  void Add(std::string_view bytes) {
    for (const char byte : bytes) {
      value_ ^= static_cast<unsigned char>(byte);
      value_ *= 0x100000001b3u;
    }
  }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0xcbf29ce484222325u;
};

// While it lives nothing is logged, unless `wanted`.
class QuietLog {
 public:
  explicit QuietLog(bool wanted) : before_(spdlog::get_level()) {
    if (!wanted) spdlog::set_level(spdlog::level::off);
  }
  ~QuietLog() { spdlog::set_level(before_); }
  QuietLog(const QuietLog&) = delete;

 private:
  const spdlog::level::level_enum before_;
};

Result<testing::VirtualClusterOptions> OptionsOf(const ClusterShape& shape,
                                                 const Expected& expected) {
  testing::Deployment deployment;
  const int num_shares = shape.pipeline_parallel_size * shape.tensor_parallel_size;
  deployment.num_compute_nodes = shape.num_compute_nodes / num_shares;
  deployment.num_memory_nodes = shape.num_memory_nodes;
  deployment.pipeline = shape.pipeline;
  deployment.pipeline_parallel_size = shape.pipeline_parallel_size;
  deployment.tensor_parallel_size = shape.tensor_parallel_size;
  deployment.kv_head_parallel = shape.kv_head_parallel;
  deployment.spread_tokens = shape.spread_tokens;
  deployment.overlap = shape.overlap ? Switch::kOn : Switch::kOff;
  deployment.kv_dtype = DType::kF32;
  deployment.max_num_seqs = shape.max_num_seqs;
  deployment.max_num_batched_tokens = std::max(shape.max_num_seqs, shape.max_num_batched_tokens);
  deployment.memory_bytes = shape.tokens_per_pool *
                            KvBytesPerToken(expected.model(), deployment.kv_dtype) /
                            shape.kv_head_parallel;
  deployment.peer_timeout = kPeerTimeout;
  deployment.step_timeout = kStepTimeout;
  deployment.model = expected.model_dir();
  ClusterConfig config;
  config.nodes = VirtualCluster::NodesOf(deployment);
  config.prefix_caching = shape.prefix_caching;
  config.payload_checksum = Switch::kOn;
  config.max_model_len = kMostTokens;
  config.start_timeout = kGiveUpAfter;
  testing::VirtualClusterOptions options;
  options.model = expected.model();
  LAMINA_ASSIGN_OR_RETURN(options.config, ConfigOf(deployment, options.model, std::move(config)));
  options.retry = kRetry;
  return options;
}

class World {
 public:
  World(const Scenario& scenario, Expected& expected, const EventLog& log)
      : scenario_(scenario),
        expected_(expected),
        log_(log),
        data_(scenario.seed ^ kOfData),
        control_random_(scenario.seed ^ kOfControl),
        turn_random_(scenario.seed ^ kOfTurns) {}

  RunResult Run();

 private:
  struct Client {
    Client(const PlannedRequest& request, std::vector<const Answer*> answers, bool exact)
        : plan(request), oracle(request, std::move(answers), exact) {}
    const PlannedRequest& plan;
    StreamOracle oracle;
    std::optional<RequestId> id;
    bool refused = false, wants_abort = false, aborted = false;
    bool under_way() const { return id && !oracle.over(); }
  };

  bool Connect();
  void PlanAll();
  void PlayAll();
  void AwaitEnd();
  void Count();

  // What the clients do.
  Client* AddClient(const PlannedRequest& request);
  void Arrive(Client& client);
  void Abort(Client& client);
  void Tell(Client& client, const TokenEvent& event);
  bool AllOver() const;
  bool AnyUnderWay(bool with_tokens) const;

  // Faults: world_faults below.
  void Begin(const Fault& fault);
  void End(const Fault& fault);
  void Kill(const std::string& node);
  void Restart(const std::string& node);
  void Cut(const Fault& fault, bool cut);
  void CutData(const std::string& from, const std::string& to, bool cut);
  void CutControl(const std::string& node, bool to_manager, bool cut);
  void PlanPost(const Fault& fault);
  void NoteKill(const std::string& node);
  void NoteResume(const std::string& node);

  // Time goes on until `at`, or until something is wrong.
  void AdvanceTo(TimePoint at);
  bool Await(const std::function<bool()>& done, Clock::duration patience);
  void Watch();
  void NoteStates();
  void AbortThoseWhoWant();

  void Note(const std::string& what);
  void Fail(const std::string& kind, const std::string& what);
  void Saw(Coincidence coincidence, uint64_t times = 1) { result_.seen.Saw(coincidence, times); }
  bool failed() const { return !result_.failure.empty(); }
  bool IsMemory(const std::string& node) const { return node.front() == 'm'; }
  std::string Unfinished() const;

  const Scenario& scenario_;
  Expected& expected_;
  const EventLog& log_;
  SimNetwork data_;
  Random control_random_, turn_random_;
  std::unique_ptr<VirtualCluster> cluster_;
  TimePoint start_{};
  std::multimap<Clock::duration, std::function<void()>> timeline_;
  const PlannedRequest plain_ = PlainRequest();
  std::deque<Client> clients_;
  std::map<std::string, int> killed_;    // how many faults keep the node down
  std::map<std::string, int> slowness_;  // 1 if it is not there
  std::set<std::string> lost_;           // as the status showed them last
  bool reconnecting_ = false, looking_ = false;
  std::optional<int64_t> shared_at_loss_;
  Hash hash_;
  RunResult result_;
};

void World::Note(const std::string& what) {
  const Clock::duration since = cluster_ == nullptr ? Clock::duration{} : cluster_->now() - start_;
  const std::string line =
      fmt::format("{:.6f} {}", std::chrono::duration<double>(since).count(), what);
  hash_.Add(line);
  ++result_.num_events;
  if (log_ != nullptr) log_(line);
}

void World::Fail(const std::string& kind, const std::string& what) {
  if (failed()) return;
  result_.failure = kind + ": " + what;
  Note("FAILED " + result_.failure);
}

RunResult World::Run() {
  PlanAll();
  if (!failed() && Connect()) {
    PlayAll();
    if (!failed()) AwaitEnd();
    Count();
    result_.lasted = cluster_->now() - start_;
  }
  cluster_.reset();
  for (const auto& [ends, count] : data_.endpoints()) {
    if (count != 0) Fail("stray", ends.first + " keeps an endpoint to " + ends.second);
  }
  result_.hash = hash_.value();
  return std::move(result_);
}

bool World::Connect() {
  Result<testing::VirtualClusterOptions> options = OptionsOf(scenario_.shape, expected_);
  if (options.ok()) {
    options->fabrics = &data_;
    options->control_latency = [this]() -> Clock::duration {
      return control_random_.Between(microseconds(20), microseconds(80));
    };
    options->turn_takes = [this](const std::string& who) -> Clock::duration {
      const auto slow = slowness_.find(who);
      return turn_random_.Between(kLeastTurn, kMostTurn) *
             (slow == slowness_.end() ? 1 : slow->second);
    };
  }
  Result<std::unique_ptr<VirtualCluster>> made =
      options.ok() ? VirtualCluster::Create(*options) : options.status();
  if (!made.ok()) {
    Fail("set-up", made.status().ToString());
    return false;
  }
  cluster_ = *std::move(made);
  start_ = cluster_->now();
  const auto is_over = [&] { return cluster_->serves() || !cluster_->failure().ok(); };
  if (!cluster_->RunUntil(is_over, kPatience) || !cluster_->serves()) {
    Fail("set-up", "not connected: " + cluster_->failure().ToString());
    return false;
  }
  start_ = cluster_->now();
  Note("connected");
  return true;
}

World::Client* World::AddClient(const PlannedRequest& request) {
  std::vector<const Answer*> answers;
  for (int i = 0; i < request.n; ++i) {
    const Result<Answer>& answer = expected_.Of(request, i);
    if (!answer.ok()) {
      Fail("reference", request.name + ": " + answer.status().message());
      return nullptr;
    }
    answers.push_back(&*answer);
  }
  return &clients_.emplace_back(request, std::move(answers), scenario_.shape.exact());
}

void World::PlanAll() {
  for (const PlannedRequest& request : scenario_.requests) {
    Client* const client = AddClient(request);
    if (client == nullptr) return;
    timeline_.emplace(request.at, [this, client] { Arrive(*client); });
    if (request.abort_at) timeline_.emplace(*request.abort_at, [this, client] { Abort(*client); });
  }
  for (const Fault& fault : scenario_.faults) {
    timeline_.emplace(fault.at, [this, &fault] { Begin(fault); });
    timeline_.emplace(fault.at + fault.lasts, [this, &fault] { End(fault); });
  }
}

void World::PlayAll() {
  for (const auto& [at, act] : timeline_) {
    AdvanceTo(start_ + at);
    if (failed()) return;
    act();
  }
  data_.DropPlans();
}

void World::AdvanceTo(TimePoint at) {
  while (!failed() && cluster_->now() < at) {
    if (Await([] { return false; }, at - cluster_->now())) AbortThoseWhoWant();
  }
}

// Returns true as well if something is wrong or a client wants to abort.
bool World::Await(const std::function<bool()>& done, Clock::duration patience) {
  return cluster_->RunUntil(
      [&] {
        Watch();
        return failed() || done() || std::ranges::any_of(clients_, &Client::wants_abort);
      },
      patience);
}

void World::AbortThoseWhoWant() {
  for (Client& client : clients_) {
    if (std::exchange(client.wants_abort, false)) Abort(client);
  }
}

void World::AwaitEnd() {
  const TimePoint latest = cluster_->now() + kPatience;
  const auto wait = [&](const std::function<bool()>& done) {
    while (!failed() && !done()) {
      if (!Await(done, latest - cluster_->now())) return false;
      AbortThoseWhoWant();
    }
    return !failed();
  };
  if (!wait([this] { return AllOver(); })) return Fail("hang", Unfinished());
  const auto all_ready = [this] {
    if (cluster_->reconnecting() || cluster_->looking()) return false;
    const EngineStatus status = cluster_->status();
    return status.serving && std::ranges::all_of(status.nodes, [](const NodeStatus& node) {
             return node.state == NodeState::kReady;
           });
  };
  if (!wait(all_ready)) return Fail("not back", Unfinished());
  Client* const client = AddClient(plain_);
  if (client == nullptr) return;
  Arrive(*client);
  if (!wait([client] { return client->oracle.over(); })) return Fail("hang", Unfinished());
  if (client->oracle.failed()) return Fail("stream", "a request failed when all was well again");
  AdvanceTo(cluster_->now() + kUntilCounted);
  if (failed()) return;
  if (const std::string leak = FindLeak(cluster_->status()); !leak.empty()) Fail("leak", leak);
  const std::string stray =
      FindStrayConnection(scenario_, data_, cluster_->network().num_connections());
  if (!stray.empty()) Fail("stray", stray);
}

std::string World::Unfinished() const {
  std::string text;
  for (const Client& client : clients_) {
    if (client.under_way())
      text += fmt::format(" {} has {} tokens;", client.plan.name, client.oracle.num_tokens());
  }
  const EngineStatus status = cluster_->status();
  for (const NodeStatus& node : status.nodes)
    text += fmt::format(" {} {} ({});", node.name, NodeStateName(node.state), node.detail);
  return text + " " + status.detail;
}

void World::Count() {
  const FabricCounts& posts = data_.counts();
  Saw(Coincidence::kPostCorrupted, posts.corrupted);
  Saw(Coincidence::kPostDuplicated, posts.duplicated);
  Saw(Coincidence::kNotificationLost, posts.lost);
  Saw(Coincidence::kPostDelayed, posts.delayed);
  Saw(Coincidence::kPostOfTheDead, posts.after_death);
  Saw(Coincidence::kPostToNobody, posts.to_nobody);
  const EngineStatus status = cluster_->status();
  for (const NodeStatus& node : status.nodes)
    Saw(Coincidence::kLateMessageDropped, static_cast<uint64_t>(node.stale_messages));
  Saw(Coincidence::kPreempted, static_cast<uint64_t>(status.scheduler.num_preemptions));
  const int64_t shared = status.scheduler.num_shared_tokens;
  Saw(Coincidence::kPrefixShared, shared > 0 ? 1 : 0);
  Saw(Coincidence::kPrefixSharedAfterFault, shared > shared_at_loss_.value_or(shared) ? 1 : 0);
  for (const Client& client : clients_)
    result_.num_failed += client.refused || client.oracle.failed() ? 1 : 0;
}

bool World::AllOver() const {
  return std::ranges::all_of(clients_, [](const Client& client) {
    return client.refused || (client.id && client.oracle.over());
  });
}

bool World::AnyUnderWay(bool with_tokens) const {
  return std::ranges::any_of(clients_, [&](const Client& client) {
    return client.under_way() && (client.oracle.fewest_tokens() > 0) == with_tokens;
  });
}

void World::Arrive(Client& client) {
  const PlannedRequest& plan = client.plan;
  GenerateRequest request;
  request.prompt = plan.prompt;
  request.n = plan.n;
  request.max_new_tokens = plan.max_new_tokens;
  request.ignore_eos = plan.ignore_eos;
  request.sampling.temperature = plan.samples ? 1.0F : 0.0F;
  request.sampling.seed = plan.seed;
  request.sampling.num_logprobs = 0;
  const Result<RequestId> id = cluster_->Submit(
      std::move(request), [this, &client](const TokenEvent& event) { Tell(client, event); });
  if (id.ok()) {
    client.id = *id;
    client.wants_abort = plan.abort_after_tokens == 0;
    if (cluster_->reconnecting()) Saw(Coincidence::kArrivedWhileReconnecting);
    return Note(plan.name + " comes");
  }
  client.refused = true;
  Saw(Coincidence::kArrivedInOutage);
  Note(plan.name + " is refused: " + id.status().message());
  if (!MayFail(id.status())) Fail("refused", plan.name + ": " + id.status().ToString());
}

void World::Abort(Client& client) {
  if (!client.under_way() || std::exchange(client.aborted, true)) return;
  if (client.oracle.fewest_tokens() == 0) Saw(Coincidence::kAbortedInPrefill);
  if (cluster_->reconnecting()) Saw(Coincidence::kAbortedWhileReconnecting);
  Note(client.plan.name + " goes away");
  client.oracle.Abort();
  cluster_->Abort(*client.id);
}

void World::Tell(Client& client, const TokenEvent& event) {
  std::string what = fmt::format("{}.{}", client.plan.name, event.index);
  if (event.token) what += fmt::format(" token {}", *event.token);
  if (event.finish)
    what += fmt::format(" ends {} {}", static_cast<int>(*event.finish), event.error.message());
  Note(what);
  result_.num_tokens += event.token ? 1 : 0;
  if (const std::string wrong = client.oracle.Take(event); !wrong.empty())
    Fail("stream", client.plan.name + ": " + wrong);
  if (client.plan.abort_after_tokens && !client.aborted &&
      client.oracle.num_tokens() >= *client.plan.abort_after_tokens)
    client.wants_abort = true;
}

// Is asked after each round.
void World::Watch() {
  if (cluster_->reconnecting() == reconnecting_ && cluster_->looking() == looking_) return;
  if (std::exchange(looking_, cluster_->looking()) != looking_)
    Note(looking_ ? "lost nodes are looked for" : "looked for lost nodes");
  if (std::exchange(reconnecting_, cluster_->reconnecting()) != reconnecting_) {
    Note(reconnecting_ ? "nodes are connected anew" : "nodes were connected anew");
    if (reconnecting_ && AnyUnderWay(true)) Saw(Coincidence::kRanAgain);
  }
  NoteStates();
  if (!cluster_->given_up().ok()) Fail("gave up", cluster_->given_up().message());
}

void World::NoteStates() {
  const EngineStatus status = cluster_->status();
  for (const NodeStatus& node : status.nodes) {
    if (node.state == NodeState::kLost) {
      if (!lost_.insert(node.name).second) continue;
      Note(node.name + " is lost: " + node.detail);
      if (!shared_at_loss_) shared_at_loss_ = status.scheduler.num_shared_tokens;
    } else if (node.state == NodeState::kReady && lost_.erase(node.name) > 0) {
      Note(node.name + " is taken back");
      Saw(Coincidence::kNodeTakenBack);
    }
  }
}

void World::Begin(const Fault& fault) {
  Note(fault.name + ": " + Describe(fault));
  const bool steps = AnyUnderWay(true) || AnyUnderWay(false);
  const bool cuts = fault.kind == FaultKind::kCutData || fault.kind == FaultKind::kCutControl ||
                    fault.kind == FaultKind::kIsolate;
  if (cuts && fault.one_way && steps) Saw(Coincidence::kOneWayCut);
  switch (fault.kind) {
    case FaultKind::kKill: return Kill(fault.node);
    case FaultKind::kPause:
      if (cluster_->runs(fault.node)) cluster_->Pause(fault.node);
      return;
    case FaultKind::kSlow: slowness_[fault.node] = fault.factor; return;
    case FaultKind::kCutControl:
      if (steps) Saw(Coincidence::kControlCutOnly);
      return Cut(fault, true);
    case FaultKind::kCutData:
    case FaultKind::kIsolate: return Cut(fault, true);
    case FaultKind::kBreakControl:
      if (cluster_->runs(fault.node)) Saw(Coincidence::kControlBroken);
      return cluster_->network().Break(cluster_->AddressOf(fault.node));
    case FaultKind::kCorrupt:
    case FaultKind::kDuplicate:
    case FaultKind::kLoseNotification:
    case FaultKind::kDelay: return PlanPost(fault);
  }
}

void World::End(const Fault& fault) {
  switch (fault.kind) {
    case FaultKind::kKill: return Restart(fault.node);
    case FaultKind::kPause: return NoteResume(fault.node);
    case FaultKind::kSlow: slowness_.erase(fault.node); return;
    case FaultKind::kCutControl:
    case FaultKind::kCutData:
    case FaultKind::kIsolate: Note(fault.name + " is over"); return Cut(fault, false);
    default: return;
  }
}

void World::PlanPost(const Fault& fault) {
  const PostFault of_post = fault.kind == FaultKind::kCorrupt     ? PostFault::kCorrupt
                            : fault.kind == FaultKind::kDuplicate ? PostFault::kDuplicate
                            : fault.kind == FaultKind::kDelay     ? PostFault::kDelay
                                                                  : PostFault::kLoseNotification;
  data_.Plan(fault.node, fault.other, of_post, fault.lasts);
}

void World::Kill(const std::string& node) {
  if (killed_[node]++ > 0) return;
  NoteKill(node);
  cluster_->Kill(node);
  const auto is_down = [&](const std::string& other) { return !cluster_->runs(other); };
  if (IsMemory(node) && std::ranges::all_of(scenario_.memory_nodes(), is_down))
    Saw(Coincidence::kEveryMemoryNodeLost);
  if (!IsMemory(node) && std::ranges::all_of(scenario_.compute_nodes(), is_down))
    Saw(Coincidence::kEveryComputeNodeLost);
}

void World::NoteKill(const std::string& node) {
  const bool memory = IsMemory(node);
  const ClusterShape& shape = scenario_.shape;
  if (AnyUnderWay(false))
    Saw(memory ? Coincidence::kMemoryKilledInPrefill : Coincidence::kComputeKilledInPrefill);
  if (AnyUnderWay(true)) {
    Saw(memory ? Coincidence::kMemoryKilledInDecode : Coincidence::kComputeKilledInDecode);
    if (shape.rotates()) Saw(Coincidence::kKilledInRotation);
    if (memory && shape.spread_tokens > 0) Saw(Coincidence::kSpreadLostNode);
    if (memory && shape.kv_head_parallel > 1) Saw(Coincidence::kGroupLostNode);
  }
  if (cluster_->reconnecting()) Saw(Coincidence::kKilledWhileReconnecting);
}

void World::Restart(const std::string& node) {
  if (--killed_[node] > 0) return;
  if (!cluster_->status().serving)
    Saw(Coincidence::kStartedInOutage);
  else if (cluster_->reconnecting())
    Saw(Coincidence::kStartedWhileReconnecting);
  Note(node + " is started");
  if (const Status started = cluster_->Start(node); !started.ok())
    Fail("set-up", "cannot start " + node + ": " + started.ToString());
}

void World::NoteResume(const std::string& node) {
  if (!cluster_->paused(node)) return;
  NoteStates();
  Saw(lost_.contains(node) ? Coincidence::kPausedLong : Coincidence::kPausedShort);
  Note(node + " runs again");
  cluster_->Resume(node);
}

void World::Cut(const Fault& fault, bool cut) {
  const std::string& node = fault.node;
  if (fault.kind != FaultKind::kCutControl) {
    std::vector<std::string> others = {fault.other};
    if (fault.kind == FaultKind::kIsolate) {
      others = scenario_.compute_nodes();
      const std::vector<std::string> memory = scenario_.memory_nodes();
      others.insert(others.end(), memory.begin(), memory.end());
      std::erase(others, node);
    }
    for (const std::string& other : others) {
      CutData(node, other, cut);
      if (!fault.one_way) CutData(other, node, cut);
    }
  }
  if (fault.kind == FaultKind::kCutData) return;
  CutControl(node, /*to_manager=*/true, cut);
  if (!fault.one_way) CutControl(node, /*to_manager=*/false, cut);
}

void World::CutData(const std::string& from, const std::string& to, bool cut) {
  if (cut)
    data_.wires().Cut(from, to);
  else
    data_.wires().Mend(from, to);
}

void World::CutControl(const std::string& node, bool to_manager, bool cut) {
  testing::Wires& wires = cluster_->network().wires();
  const std::string address = cluster_->AddressOf(node);
  const std::string& from = to_manager ? address : ControlNetwork::kManager;
  const std::string& to = to_manager ? ControlNetwork::kManager : address;
  if (cut)
    wires.Cut(from, to);
  else
    wires.Mend(from, to);
}

}  // namespace

RunResult RunScenario(const Scenario& scenario, Expected& expected, const EventLog& log) {
  const QuietLog quiet(log != nullptr);
  return World(scenario, expected, log).Run();
}

}  // namespace lamina::sim
