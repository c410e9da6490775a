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
#include "tests/sim/cluster_options.h"
#include "tests/sim/faults.h"
#include "tests/sim/oracles.h"
#include "tests/sim/random.h"
#include "tests/sim/sim_fabric.h"
#include "tests/support/virtual_cluster.h"

namespace lamina::sim {
namespace {

using std::chrono::seconds;
using testing::VirtualCluster;

// Within this time after the last fault everything ends.
constexpr auto kPatience = seconds(120);
// Nodes tell their counters every second.
constexpr auto kUntilCounted = milliseconds(2500);
// Until a manager frees what the one before it left, and has counted.
const auto kUntilLeftIsDropped = EngineOptions().keep_left_for + milliseconds(500);
// What a fault has held up has arrived by then.
constexpr auto kLongestDelay = seconds(1);
// Longer than nodes wait for others.
constexpr auto kUntilLossIsTold = milliseconds(500);
// Longer than a front takes to send its requests to a manager that serves.
constexpr auto kUntilGoneOn = milliseconds(500);
// Longer than the manager waits for a step (cluster_options.cc).
constexpr auto kUntilStepIsGivenUp = milliseconds(5500);
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

class World {
 public:
  World(const Scenario& scenario, Expected& expected, const EventLog& log)
      : scenario_(scenario),
        expected_(expected),
        log_(log),
        steps_(scenario),
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
    std::optional<RequestId> id;  // once it has come
    bool refused = false, wants_abort = false, aborted = false;
    bool under_way() const { return id && !oracle.over(); }
    bool over() const { return refused || (id && oracle.over()); }
    bool failed() const { return refused || oracle.failed(); }
  };

  bool Connect();
  void PlanAll();
  void AwaitEnd();
  void AwaitTime(Clock::duration time);
  bool AllReady() const;
  void Count();

  // What the clients do.
  Client* AddClient(const PlannedRequest& request);
  void Arrive(Client& client);
  void Abort(Client& client);
  void Tell(Client& client, const TokenEvent& event);
  bool AllOver() const;
  bool AnyUnderWay(bool with_tokens) const;
  // What nodes tell the manager.
  void Hear(const ExecutorEvent& told);

  void Begin(const Fault& fault);
  void End(const Fault& fault);

  // Time goes on, with what the timeline says, until `done` or until something is wrong. Returns
  // false in the latter case, and if nothing of the timeline was left for kPatience.
  bool Await(const std::function<bool()>& done);
  bool HasDue() const;
  void PlayDue();
  void PlanFault(const Fault& fault, Clock::duration from);
  void Watch();
  void NoteReconnect();
  void NoteReconnected();
  void NoteStates();
  void NoteSuspended(const EngineStatus& status);
  void CheckLosses(const EngineStatus& status);
  void AbortThoseWhoWant();
  // A manager that was killed is gone with what it knew. One that has no nodes is started again.
  void LoseManager();
  void CareForManager();

  void Note(const std::string& what);
  void Fail(const std::string& kind, const std::string& what);
  void Saw(Coincidence coincidence, uint64_t times = 1) { result_.seen.Saw(coincidence, times); }
  bool failed() const { return !result_.failure.empty(); }
  std::string Unfinished() const;

  const Scenario& scenario_;
  Expected& expected_;
  const EventLog& log_;
  StepOracle steps_;
  SimNetwork data_;
  Random control_random_, turn_random_;
  std::unique_ptr<VirtualCluster> cluster_;
  TimePoint start_{};
  std::multimap<Clock::duration, std::function<void()>> timeline_;
  const PlannedRequest plain_ = PlainRequest();
  std::deque<Client> clients_;
  std::optional<Faults> faults_;
  std::set<std::string> lost_, suspended_;  // as the status showed them last
  bool reconnecting_ = false, looking_ = false;
  int num_reconnects_ = 0, num_rebuilding_ = 0;
  std::optional<TimePoint> needs_loss_by_;  // sequences have started again, which a loss explains
  // There is a new manager, or there will be one: the front sends what it has of requests.
  std::optional<TimePoint> goes_on_until_;
  TimePoint front_asks_until_{};  // of the last fault of the front's connection
  std::optional<int64_t> shared_at_loss_;
  bool is_new_manager_ = false;  // another one than at first
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
    AwaitEnd();
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
      return turn_random_.Between(kLeastTurn, kMostTurn) * (faults_ ? faults_->SlownessOf(who) : 1);
    };
    options->with_front = true;
    options->on_told = [this](const ExecutorEvent& told) { Hear(told); };
  }
  Result<std::unique_ptr<VirtualCluster>> made =
      options.ok() ? VirtualCluster::Create(*options) : options.status();
  if (!made.ok()) {
    Fail("set-up", made.status().ToString());
    return false;
  }
  cluster_ = *std::move(made);
  faults_.emplace(scenario_, *cluster_, data_, result_.seen);
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
    if (fault.on_reconnect == 0) PlanFault(fault, Clock::duration::zero());
  }
}

void World::PlanFault(const Fault& fault, Clock::duration from) {
  timeline_.emplace(from + fault.at, [this, &fault] { Begin(fault); });
  timeline_.emplace(from + fault.at + fault.lasts, [this, &fault] { End(fault); });
}

bool World::HasDue() const {
  return !timeline_.empty() && start_ + timeline_.begin()->first <= cluster_->now();
}

void World::PlayDue() {
  while (!failed() && HasDue()) {
    const std::function<void()> act = std::move(timeline_.begin()->second);
    timeline_.erase(timeline_.begin());
    act();
  }
  if (timeline_.empty()) data_.DropPlans();
}

bool World::Await(const std::function<bool()>& done) {
  TimePoint latest = cluster_->now() + kPatience;
  while (!failed()) {
    if (HasDue()) latest = cluster_->now() + kPatience;
    PlayDue();
    AbortThoseWhoWant();
    CareForManager();
    if (failed()) return false;
    if (done()) return true;
    if (timeline_.empty() && cluster_->now() >= latest) return false;
    const TimePoint until = timeline_.empty() ? latest : start_ + timeline_.begin()->first;
    cluster_->RunUntil(
        [&] {
          Watch();
          return failed() || done() || HasDue() || !cluster_->failure().ok() ||
                 std::ranges::any_of(clients_, &Client::wants_abort);
        },
        until - cluster_->now());
  }
  return false;
}

void World::AbortThoseWhoWant() {
  for (Client& client : clients_) {
    if (std::exchange(client.wants_abort, false)) Abort(client);
  }
}

void World::AwaitEnd() {
  if (!Await([this] { return timeline_.empty() && AllOver(); })) return Fail("hang", Unfinished());
  AwaitTime(kLongestDelay);
  if (!Await([this] { return AllReady(); })) return Fail("not back", Unfinished());
  Client* const client = AddClient(plain_);
  if (client == nullptr) return;
  Arrive(*client);
  if (!Await([client] { return client->over(); })) return Fail("hang", Unfinished());
  if (client->failed()) return Fail("stream", "a request failed when all was well again");
  // A loss of before may be told with the next step only. A step that nobody waits for any more may
  // hang.
  AwaitTime(LosesMessages(scenario_) ? kUntilStepIsGivenUp : kUntilCounted);
  if (!Await([this] { return AllReady(); })) return Fail("not back", Unfinished());
  AwaitTime(is_new_manager_ ? kUntilLeftIsDropped : kUntilCounted);
  if (failed()) return;
  if (const std::string leak = FindLeak(cluster_->status()); !leak.empty()) Fail("leak", leak);
  std::set<std::string> standing_by;
  for (const NodeStatus& standby : cluster_->status().standbys) standing_by.insert(standby.name);
  const std::string stray =
      FindStrayConnection(scenario_, standing_by, data_, cluster_->network().num_connections());
  if (!stray.empty()) Fail("stray", stray);
}

void World::AwaitTime(Clock::duration time) {
  const TimePoint at = cluster_->now() + time;
  Await([this, at] { return cluster_->now() >= at; });
}

bool World::AllReady() const {
  if (!timeline_.empty() || cluster_->reconnecting() || cluster_->looking()) return false;
  const EngineStatus status = cluster_->status();
  const auto is = [](NodeState state) {
    return [state](const NodeStatus& node) { return node.state == state; };
  };
  return status.serving && std::ranges::all_of(status.nodes, is(NodeState::kReady)) &&
         std::ranges::all_of(status.standbys, is(NodeState::kStandby));
}

std::string World::Unfinished() const {
  std::string text;
  for (const Client& client : clients_) {
    if (client.under_way())
      text += fmt::format(" {} has {} tokens;", client.plan.name, client.oracle.num_tokens());
  }
  const EngineStatus status = cluster_->status();
  for (const NodeStatus& node : status.standbys)
    text += fmt::format(" {} {} ({});", node.name, NodeStateName(node.state), node.detail);
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
  Saw(Coincidence::kWentOnWithLeftKv, status.scheduler.num_left_tokens > 0 ? 1 : 0);
  const int64_t shared = status.scheduler.num_shared_tokens;
  Saw(Coincidence::kPrefixShared, shared > 0 ? 1 : 0);
  Saw(Coincidence::kPrefixSharedAfterFault, shared > shared_at_loss_.value_or(shared) ? 1 : 0);
}

bool World::AllOver() const { return std::ranges::all_of(clients_, &Client::over); }

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
  request.priority = plan.priority;
  request.slo = plan.slo;
  request.sampling.temperature = plan.samples ? 1.0F : 0.0F;
  request.sampling.seed = plan.seed;
  request.sampling.frequency_penalty = plan.frequency_penalty();
  request.sampling.num_logprobs = 0;
  const Result<RequestId> id = cluster_->Submit(
      std::move(request), [this, &client](const TokenEvent& event) { Tell(client, event); });
  if (id.ok()) {
    client.id = *id;
    client.wants_abort = plan.abort_after_tokens == 0;
    if (cluster_->reconnecting()) Saw(Coincidence::kArrivedWhileReconnecting);
    if (!cluster_->status().serving) Saw(Coincidence::kArrivedInOutage);
    return Note(plan.name + " comes");
  }
  client.refused = true;
  Fail("refused", plan.name + ": " + id.status().ToString());
}

void World::LoseManager() {
  for (const Client& client : clients_) {
    if (client.under_way() && !client.aborted && client.oracle.num_tokens() > 0)
      Saw(Coincidence::kWentOnWithNewManager);
  }
  is_new_manager_ = true;
  lost_.clear();
  suspended_.clear();
  reconnecting_ = looking_ = false;
  num_rebuilding_ = 0;
  needs_loss_by_.reset();
  shared_at_loss_.reset();
  goes_on_until_ = TimePoint::max();
}

void World::CareForManager() {
  if (cluster_->failure().ok()) return;
  Note("the manager ends: " + cluster_->failure().message());
  is_new_manager_ = true;
  cluster_->StartManager();
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
  if (event.token && !suspended_.empty()) Saw(Coincidence::kWentOnMeanwhile);
  if (const std::string wrong = client.oracle.Take(event); !wrong.empty())
    Fail("stream", client.plan.name + ": " + wrong);
  if (client.plan.abort_after_tokens && !client.aborted &&
      client.oracle.num_tokens() >= *client.plan.abort_after_tokens)
    client.wants_abort = true;
}

void World::Hear(const ExecutorEvent& told) {
  if (told.kind != ExecutorEvent::Kind::kStepDone) return;
  if (const std::string wrong = steps_.Take(told.result); !wrong.empty()) Fail("step", wrong);
}

// Is asked after each round.
void World::Watch() {
  if (!cluster_->serves()) return;
  const EngineStatus status = cluster_->status();
  NoteSuspended(status);
  CheckLosses(status);
  if (cluster_->reconnecting() == reconnecting_ && cluster_->looking() == looking_) return;
  if (std::exchange(looking_, cluster_->looking()) != looking_)
    Note(looking_ ? "lost nodes are looked for" : "looked for lost nodes");
  if (std::exchange(reconnecting_, cluster_->reconnecting()) != reconnecting_) {
    NoteReconnect();
  }
  NoteStates();
  if (!cluster_->given_up().ok()) Fail("gave up", cluster_->given_up().message());
}

void World::NoteReconnect() {
  if (!reconnecting_) return NoteReconnected();
  Note("nodes are connected anew");
  if (AnyUnderWay(true)) Saw(Coincidence::kRanAgain);
  ++num_reconnects_;
  for (const Fault& fault : scenario_.faults) {
    if (fault.on_reconnect == num_reconnects_) PlanFault(fault, cluster_->now() - start_);
  }
}

// What runs now has its KV still: nothing has started since.
void World::NoteReconnected() {
  const EngineStatus status = cluster_->status();
  if (!status.serving) return Note("that was in vain");
  const int kept = status.scheduler.num_running, again = status.scheduler.num_waiting;
  Note(fmt::format("nodes were connected anew, {} sequences go on, {} wait", kept, again));
  const auto is_standby = [](const NodeStatus& node) { return node.name.front() == 's'; };
  if (std::ranges::any_of(status.nodes, is_standby)) Saw(Coincidence::kStandbyTookPlace);
  if (kept > 0) Saw(Coincidence::kKvKept);
  if (kept > 0 && again > 0) Saw(Coincidence::kKvKeptOfSome);
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

// Asked before what was noted of the round before is brought up to date: after nodes were connected
// anew sequences may have lost KV although all nodes serve now. A loss and what it cost may come
// over different channels, the loss later.
void World::CheckLosses(const EngineStatus& status) {
  const bool connects = reconnecting_ || cluster_->reconnecting();
  const auto is_lost = [](const NodeStatus& node) { return node.state == NodeState::kLost; };
  const bool all_there = !connects && std::ranges::none_of(status.nodes, is_lost);
  const int before = std::exchange(num_rebuilding_, status.num_rebuilding);
  if (goes_on_until_ == TimePoint::max())
    goes_on_until_ = std::max(cluster_->now() + kUntilGoneOn, front_asks_until_);
  if (!all_there || cluster_->now() < goes_on_until_)
    needs_loss_by_.reset();
  else if (status.num_rebuilding > before && !needs_loss_by_ && !LosesMessages(scenario_))
    needs_loss_by_ = cluster_->now() + kUntilLossIsTold;
  if (needs_loss_by_ && cluster_->now() > *needs_loss_by_)
    Fail("needless", "sequences have started again although no node was lost");
  if (!all_there && IsBorne(scenario_))
    Fail("needless", "nodes are given up although they only were late: " + Unfinished());
}

void World::NoteSuspended(const EngineStatus& status) {
  const bool among_several = scenario_.shape.num_compute_nodes > 1;
  for (const NodeStatus& node : status.nodes) {
    if (node.state == NodeState::kSuspended) {
      if (!suspended_.insert(node.name).second) continue;
      Note(node.name + " is suspended: " + node.detail);
      Saw(Coincidence::kSuspended);
      if (among_several) Saw(Coincidence::kSuspendedAmongSeveral);
    } else if (suspended_.erase(node.name) > 0) {
      const bool resumed = node.state == NodeState::kReady;
      Note(node.name + (resumed ? " is in time again" : " is suspended no more"));
      Saw(resumed ? Coincidence::kResumed : Coincidence::kSuspendedAndLost);
      if (resumed && among_several) Saw(Coincidence::kResumedAmongSeveral);
    }
  }
}

void World::Begin(const Fault& fault) {
  Note(fault.name + ": " + Describe(fault));
  faults_->Begin(fault, {.prefill = AnyUnderWay(false), .decode = AnyUnderWay(true)});
  if (fault.kind == FaultKind::kKillManager) LoseManager();
  // The manager gets its requests once more.
  if (fault.kind == FaultKind::kBreakFront || fault.kind == FaultKind::kCutFront) {
    front_asks_until_ =
        cluster_->now() + fault.lasts + VirtualCluster::kFrontPatience + kUntilGoneOn;
    if (goes_on_until_ != TimePoint::max())
      goes_on_until_ = std::max(goes_on_until_.value_or(front_asks_until_), front_asks_until_);
  }
}

void World::End(const Fault& fault) {
  if (fault.lasts > Clock::duration::zero()) Note(fault.name + " is over");
  if (const Status ended = faults_->End(fault); !ended.ok())
    Fail("set-up", "cannot start " + fault.node + ": " + ended.ToString());
}

}  // namespace

RunResult RunScenario(const Scenario& scenario, Expected& expected, const EventLog& log) {
  const QuietLog quiet(log != nullptr);
  return World(scenario, expected, log).Run();
}

}  // namespace lamina::sim
