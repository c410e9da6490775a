#include "bench/recovery/recovery_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <iostream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "bench/recovery/manager_child.h"
#include "bench/recovery/prefill_alone.h"
#include "bench/recovery/start_recorder.h"
#include "bench/recovery/stream_log.h"
#include "bench/synthetic_prompt.h"
#include "manager/cluster_executor.h"
#include "manager/serving_engine.h"
#include "plan/statistics.h"

namespace lamina {
namespace {

// Between two looks at the engine's status while a fault is not known yet: how exact its detection
// is measured.
constexpr auto kDetectionLook = milliseconds(2);
// Between two tries of streams that were refused.
constexpr auto kRetry = milliseconds(100);
// Between two looks whether the daemons and the engine live.
constexpr auto kHealthLook = milliseconds(500);
constexpr auto kLongestSilence = std::chrono::minutes(2);
// Until nodes have said that they hold nothing any more; they are asked once a second when idle.
constexpr auto kReleaseWait = std::chrono::seconds(10);
// Of which the median is taken.
constexpr size_t kPrefills = 3;

struct StreamState {
  RequestId request;     // the last one that the engine took
  size_t num_asked = 0;  // requests so far
};

// REQUIRES: there is one of this name.
const NodeStatus& NodeNamed(const std::string& name, const std::vector<NodeStatus>& nodes) {
  return *std::ranges::find(nodes, name, &NodeStatus::name);
}

class RecoveryRun {
 public:
  RecoveryRun(const ServedCluster& cluster, const StreamLoad& load,
              const std::vector<NodeFault>& faults)
      : cluster_(cluster),
        load_(load),
        faults_(faults),
        recorder_(static_cast<size_t>(load.num_streams)),
        log_(static_cast<size_t>(load.num_streams)),
        streams_(static_cast<size_t>(load.num_streams)) {}

  Result<RecoveryTimeline> Serve() {
    LAMINA_RETURN_IF_ERROR(StartEngine());
    const Status served = ServeUntilEnd();
    if (served.ok()) CloseRequests();
    timeline_.starts = recorder_.TakeStarts();
    if (served.ok()) MeasurePrefill();
    engine_.reset();
    manager_.reset();
    // A daemon that hangs would not end when it is asked to.
    Status awake;
    for (const std::string& node : stopped_) {
      if (node != kManagerName) awake = cluster_.daemons->Kill(node, SIGCONT);
    }
    LAMINA_RETURN_IF_ERROR(served);
    LAMINA_RETURN_IF_ERROR(awake);
    timeline_.input_tokens = load_.input_tokens;
    timeline_.streams = log_.TakeStreams();
    return std::move(timeline_);
  }

 private:
  Status StartEngine() {
    const ClusterConfig& config = cluster_.config;
    if (!cluster_.manager_file.empty()) {
      LAMINA_ASSIGN_OR_RETURN(manager_, ManagerChild::Start(cluster_.manager_file, config));
      LAMINA_ASSIGN_OR_RETURN(engine_, manager_->Connect(cluster_.model));
      return OkStatus();
    }
    LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<StepExecutor> executor,
                            ClusterExecutor::Connect(config, cluster_.model, {}));
    for (const NodeStatus& node : executor->nodes())
      kv_nodes_[node.name] = executor->KvNodeOf(node.id);
    ServingEngineOptions options = ServingEngineOptions::Of(config, cluster_.model);
    options.scheduler.max_queued = std::max(options.scheduler.max_queued, load_.num_streams);
    options.eos_tokens.clear();
    options.reconnect = Recorded(ReconnectTo(config, cluster_.model), recorder_);
    options.look = LookAmong(config, cluster_.model);
    engine_ = std::make_unique<ServingEngine>(options, recorder_.Watch(std::move(executor)));
    return OkStatus();
  }

  Status ServeUntilEnd() {
    timeline_.start = Clock::now();
    for (size_t stream = 0; stream < streams_.size(); ++stream)
      LAMINA_RETURN_IF_ERROR(SubmitNext(stream));
    while (!IsOver(Clock::now())) {
      LAMINA_RETURN_IF_ERROR(DoDueFaults());
      NoticeFaults();
      LAMINA_RETURN_IF_ERROR(CheckHealth());
      LAMINA_RETURN_IF_ERROR(RetryRefused());
      for (const size_t stream : log_.AwaitEnded(NextLook())) LAMINA_RETURN_IF_ERROR(GoOn(stream));
    }
    timeline_.end = Clock::now();
    if (next_fault_ == faults_.size()) return OkStatus();
    return InvalidArgument(fmt::format(
        "all streams were answered after {:.1f} s, before {}: give more --tokens, or another time",
        SecondsBetween(timeline_.start, timeline_.end), faults_[next_fault_].Name()));
  }

  bool IsOver(TimePoint now) const {
    return asks_once() ? num_done_ == streams_.size() : now >= timeline_.start + load_.duration;
  }

  // Ends the requests that are left, and waits until no node holds KV of them.
  void CloseRequests() {
    for (const StreamState& stream : streams_) engine_->Abort(stream.request);
    CountLeftTokens();
    const Deadline deadline = Deadline::After(kReleaseWait);
    while (true) {
      const EngineStatus status = engine_->status();
      timeline_.num_preemptions = status.scheduler.num_preemptions;
      timeline_.slots_at_end = 0;
      for (const NodeStatus& node : status.nodes) {
        if (node.state == NodeState::kReady)
          timeline_.slots_at_end += std::max(node.used_tokens, node.stored_tokens);
      }
      if (timeline_.slots_at_end == 0 || deadline.Passed()) return;
      std::this_thread::sleep_for(milliseconds(20));
    }
  }

  // What the recoveries are held against. The manager's requests start in another process.
  void MeasurePrefill() {
    size_t num_asked = 0;
    for (const StreamState& stream : streams_) num_asked = std::max(num_asked, stream.num_asked);
    uint64_t seed = SeedOf(0, num_asked, streams_.size());  // that no stream has
    for (size_t i = 0; i < timeline_.faults.size(); ++i) {
      const std::vector<int64_t> lengths = LengthsAgain(timeline_, i);
      if (lengths.empty()) continue;
      std::vector<double> times;
      for (size_t repeat = 0; repeat < kPrefills; ++repeat) {
        const std::optional<double> seconds =
            TimePrefill(*engine_, lengths, seed, cluster_.model.vocab_size);
        if (!seconds) break;
        times.push_back(*seconds);
        seed += lengths.size();
      }
      if (times.size() == kPrefills)
        timeline_.faults[i].prefill_alone_s = Percentile(std::move(times), 0.5);
    }
  }

  bool asks_once() const { return load_.duration == Clock::duration::zero(); }

  Status SubmitNext(size_t stream) {
    StreamState& state = streams_[stream];
    const size_t number = state.num_asked++;
    const uint64_t seed = SeedOf(stream, number, streams_.size());
    GenerateRequest request;
    request.prompt = SyntheticPrompt(load_.input_tokens, seed, cluster_.model.vocab_size);
    request.max_new_tokens = load_.OutputTokensOf(stream, number);
    request.ignore_eos = true;
    request.sampling.temperature = load_.temperature;
    request.sampling.seed = seed;
    log_.Begin(stream, Clock::now());
    const Result<RequestId> id = engine_->Submit(
        std::move(request), [this, stream](const TokenEvent& event) { log_.Take(stream, event); });
    if (id.ok()) {
      state.request = *id;
      return OkStatus();
    }
    // Another time would not help.
    if (id.status().code() == StatusCode::kInvalidArgument) return id.status();
    log_.Refuse(stream, id.status().ToString(), Clock::now());
    if (asks_once()) return GoOn(stream);
    refused_.insert(stream);
    return OkStatus();
  }

  // The stream's request is over.
  Status GoOn(size_t stream) {
    if (!asks_once()) return SubmitNext(stream);
    log_.Finish(stream, Clock::now());
    ++num_done_;
    return OkStatus();
  }

  // As soon as something is served again, streams that were refused ask their next request.
  Status RetryRefused() {
    if (refused_.empty() || Clock::now() < next_retry_) return OkStatus();
    next_retry_ = Clock::now() + kRetry;
    if (!engine_->status().serving) return OkStatus();
    for (const size_t stream : std::exchange(refused_, {}))
      LAMINA_RETURN_IF_ERROR(SubmitNext(stream));
    return OkStatus();
  }

  Status DoDueFaults() {
    for (; next_fault_ < faults_.size(); ++next_fault_) {
      const NodeFault& fault = faults_[next_fault_];
      if (Clock::now() < timeline_.start + fault.at) return OkStatus();
      std::cerr << fault.Name() << '\n' << std::flush;
      timeline_.faults.push_back({fault, Clock::now(), kv_nodes_[fault.node]});
      LAMINA_RETURN_IF_ERROR(Do(fault));
    }
    return OkStatus();
  }

  Status DoToManager(const NodeFault& fault) {
    if (fault.kind == FaultKind::kRestart) return manager_->Restart();
    if (fault.kind == FaultKind::kKill) CountLeftTokens();
    manager_->Kill(fault.kind == FaultKind::kKill   ? SIGKILL
                   : fault.kind == FaultKind::kStop ? SIGSTOP
                                                    : SIGCONT);
    return OkStatus();
  }

  // Of the manager that is about to go, or of the last one: with how many tokens it went on.
  void CountLeftTokens() {
    FaultRecord* last = nullptr;  // but the one that is being done
    for (FaultRecord& record : timeline_.faults) {
      if (record.fault.OfManager() && record.fault.kind == FaultKind::kKill && record.known)
        last = &record;
    }
    if (last != nullptr) last->left_tokens = engine_->status().scheduler.num_left_tokens;
  }

  Status Do(const NodeFault& fault) {
    if (fault.OfManager()) return DoToManager(fault);
    LocalCluster& daemons = *cluster_.daemons;
    switch (fault.kind) {
      case FaultKind::kKill: stopped_.erase(fault.node); return daemons.Kill(fault.node, SIGKILL);
      case FaultKind::kStop: stopped_.insert(fault.node); return daemons.Kill(fault.node, SIGSTOP);
      case FaultKind::kContinue:
        stopped_.erase(fault.node);
        return daemons.Kill(fault.node, SIGCONT);
      case FaultKind::kRestart: return daemons.Restart(fault.node);
    }
    return OkStatus();
  }

  // For each node the fault that the manager may be about to learn of, if it does not know it yet:
  // the last one, but not that the node is back before it was known to be gone.
  std::vector<FaultRecord*> UnknownFaults() {
    std::map<std::string, FaultRecord*> last;
    for (FaultRecord& record : timeline_.faults) {
      FaultRecord*& of_node = last[record.fault.node];
      const bool waits = record.fault.kind == FaultKind::kRestart && !of_node->known;
      if (record.fault.kind != FaultKind::kContinue && !waits) of_node = &record;
    }
    std::vector<FaultRecord*> unknown;
    for (const auto& [node, record] : last) {
      if (!record->known) unknown.push_back(record);
    }
    return unknown;
  }

  void NoticeFaults() {
    const std::vector<FaultRecord*> unknown = UnknownFaults();
    if (unknown.empty()) return;
    const EngineStatus status = engine_->status();
    std::vector<NodeStatus> nodes = status.nodes;
    nodes.insert(nodes.end(), status.standbys.begin(), status.standbys.end());
    for (FaultRecord* record : unknown) {
      if (record->fault.OfManager()) {
        if (status.serving == (record->fault.kind == FaultKind::kRestart))
          record->known = Clock::now();
        continue;
      }
      const NodeState state = NodeNamed(record->fault.node, nodes).state;
      // Nodes that serve are connected anew together with others.
      const bool is_known = record->fault.kind == FaultKind::kRestart
                                ? state == NodeState::kReady || state == NodeState::kStandby
                                : state != NodeState::kReady && state != NodeState::kReconnecting;
      if (is_known) record->known = Clock::now();
    }
  }

  Status CheckHealth() {
    const TimePoint now = Clock::now();
    if (now < next_health_look_) return OkStatus();
    next_health_look_ = now + kHealthLook;
    LAMINA_RETURN_IF_ERROR(cluster_.daemons->Check());
    if (manager_ != nullptr) LAMINA_RETURN_IF_ERROR(manager_->Check());
    if (const EngineStatus status = engine_->status(); status.given_up)
      return PeerLost("nothing is served any more: " + status.detail);
    if (now - std::max(timeline_.start, log_.last_token()) <= kLongestSilence) return OkStatus();
    return TimedOut("no token came for two minutes");
  }

  TimePoint NextLook() {
    TimePoint next = next_health_look_;
    if (!asks_once()) next = std::min(next, timeline_.start + load_.duration);
    if (next_fault_ < faults_.size())
      next = std::min(next, timeline_.start + faults_[next_fault_].at);
    if (!refused_.empty()) next = std::min(next, next_retry_);
    if (!UnknownFaults().empty()) next = std::min(next, Clock::now() + kDetectionLook);
    return next;
  }

  const ServedCluster& cluster_;
  const StreamLoad& load_;
  const std::vector<NodeFault>& faults_;
  std::map<std::string, NodeId> kv_nodes_;  // FaultRecord::kv_node of each node; none of standbys
  StartRecorder recorder_;
  StreamLog log_;
  std::vector<StreamState> streams_;
  size_t num_done_ = 0;  // streams
  size_t next_fault_ = 0;
  std::set<std::string> stopped_;  // nodes
  std::set<size_t> refused_;       // streams
  TimePoint next_retry_{}, next_health_look_{};
  RecoveryTimeline timeline_;
  std::unique_ptr<ManagerChild> manager_;  // null: the engine is in this process
  std::unique_ptr<Engine> engine_;         // last: it tells the members above
};

}  // namespace

int64_t StreamLoad::OutputTokensOf(size_t stream, size_t request) const {
  if (duration == Clock::duration::zero() || request > 0) return output_tokens;
  return std::max<int64_t>(1, output_tokens * (static_cast<int64_t>(stream) + 1) / num_streams);
}

Result<RecoveryTimeline> ServeStreams(const ServedCluster& cluster, const StreamLoad& load,
                                      const std::vector<NodeFault>& faults) {
  return RecoveryRun(cluster, load, faults).Serve();
}

}  // namespace lamina
