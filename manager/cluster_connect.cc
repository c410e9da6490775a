// How a cluster executor reaches and configures its nodes, at first and when some are lost. What it
// does with them: cluster_executor.cc.
#include "manager/cluster_executor.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "base/descriptors.h"
#include "base/log.h"
#include "base/mutex.h"
#include "manager/resolve_config.h"
#include "transport/crypto.h"
#include "transport/ladder.h"
#include "transport/secret_file.h"
#include "transport/tls_context.h"
#include "wire/wire_format.h"

namespace lamina {
namespace {

// Between two signs of life while weights load; each tensor is one.
constexpr auto kLoadPatience = std::chrono::seconds(120);

uint64_t NewEpoch() {
  std::random_device device;
  return static_cast<uint64_t>(device()) << 32 | device();
}

constexpr auto kReachWait = std::chrono::seconds(5);  // for daemons that served just now

// Its socket, and what wakes the connection's thread and who waits for answers.
constexpr size_t kDescriptorsPerNode = 3;

constexpr auto kQuietWait = std::chrono::seconds(2);  // for a daemon that is just starting

// For a node that serves another manager, whose host may be gone: nodes notice that after
// ControlOptions::peer_timeout.
constexpr auto kTakeOverWait = std::chrono::seconds(12);

// So many peer timeouts requests wait for the way between compute nodes, when nobody else has their
// parts of the model. What takes longer is an outage.
constexpr int kMendTimeouts = 2;

// For a daemon that may not be there; it is asked again later.
constexpr auto kLookWait = std::chrono::seconds(1);

// ResolveConfig has set both dtypes; without it, in tests, auto is float32.
control::AttentionSpec AttentionSpecOf(const ModelConfig& model, const ClusterConfig& config) {
  return MakeAttentionSpec(model, config.kv_dtype.value_or(DType::kF32),
                           config.wire_dtype.value_or(DType::kF32));
}

bool IsTransient(const Status& status) {
  return status.code() == StatusCode::kTryAgain || status.code() == StatusCode::kTimeout;
}

bool WaitReadable(int fd, Deadline deadline) {
  pollfd entry{fd, POLLIN, 0};
  return poll(&entry, 1, deadline.RemainingMs()) > 0;
}

View Without(View view, const std::map<NodeId, std::string>& lost) {
  for (const auto& [id, why] : lost) view.Lose(id);
  return view;
}

}  // namespace

Result<std::unique_ptr<ClusterExecutor>> ClusterExecutor::Connect(
    const ClusterConfig& config, const ModelConfig& model, const StartProgress& progress,
    std::function<bool()> interrupted) {
  LAMINA_RETURN_IF_ERROR(CheckDescriptorsLeft(config.nodes.size() * kDescriptorsPerNode));
  LAMINA_ASSIGN_OR_RETURN(View view, ViewOf(config, model));
  std::unique_ptr<ClusterExecutor> executor(
      new ClusterExecutor(config, model, std::move(view), {}));
  executor->interrupted_ = std::move(interrupted);
  LAMINA_RETURN_IF_ERROR(executor->Open(config.start_timeout, config.start_timeout, progress));
  return executor;
}

Result<std::unique_ptr<ClusterExecutor>> ClusterExecutor::ConnectWithout(
    const ClusterConfig& config, const ModelConfig& model, std::map<NodeId, std::string> lost,
    Deadline until, const StartProgress& progress, std::function<bool()> interrupted) {
  const Deadline mended = Deadline::After(
      std::min<Clock::duration>(config.start_timeout, kMendTimeouts * config.peer_timeout));
  LAMINA_ASSIGN_OR_RETURN(const View all, ViewOf(config, model));
  while (true) {
    LAMINA_RETURN_IF_ERROR(CheckDescriptorsLeft(config.nodes.size() * kDescriptorsPerNode));
    std::unique_ptr<ClusterExecutor> executor(new ClusterExecutor(config, model, all, lost));
    executor->interrupted_ = interrupted;
    executor->until_ = until;
    const auto reasons = [&](NodeRole role) {
      std::string text;
      for (const auto& [id, why] : lost) {
        if (all.Find(id)->role == role) text += (text.empty() ? "" : "; ") + why;
      }
      return text;
    };
    if (executor->compute_.empty())
      return PeerLost("no compute node is left: " + reasons(NodeRole::kCompute));
    if (config.shares_model() &&
        std::ssize(executor->compute_) <
            std::ranges::count(config.nodes, NodeRole::kCompute, &NodeConfig::role))
      return PeerLost("no other compute node holds that part of the model: " +
                      reasons(NodeRole::kCompute));
    if (executor->kv_nodes().empty())
      return PeerLost("no memory node is left: " + reasons(NodeRole::kMemory));
    // A node that did not notice yet is busy with its session for at most the peer timeout.
    const Clock::duration patience =
        std::min(config.start_timeout, 2 * config.peer_timeout + kQuietWait);
    const Status opened =
        executor->Open(std::min<Clock::duration>(patience, kReachWait), patience, progress);
    if (opened.ok()) return executor;
    if (interrupted && interrupted()) return opened;
    const std::map<NodeId, std::string> more = executor->NewlyLost(opened);
    if (more.empty() || executor->until_.Passed()) return opened;
    if (executor->HasCut() && !mended.Passed()) continue;
    lost.insert(more.begin(), more.end());
  }
}

// Those that were lost while the nodes were connected. A node may tell of the loss of another
// before that other's connection does. If no connection is lost, it was the node that failed.
std::map<NodeId, std::string> ClusterExecutor::NewlyLost(const Status& why) {
  std::map<NodeId, std::string> lost;
  const auto found = [&] {
    mutex_.AssertHeld();
    for (const std::unique_ptr<Node>& node : nodes_) {
      const Status& status = heard_[node->id].lost;
      if (!status.ok() && !node->left_out()) lost.emplace(node->id, status.message());
    }
    return !lost.empty() || failed_ == nullptr;
  };
  const TimePoint latest = Within(std::min<Clock::duration>(config_.peer_timeout, kReachWait)).at();
  MutexLock lock(mutex_);
  while (!found() && lost_one_.WaitUntil(lock, latest)) {
  }
  if (lost.empty() && failed_ != nullptr) lost.emplace(failed_->id, why.message());
  return lost;
}

// All nodes live, but compute nodes do not reach each other, and nobody else has their parts of the
// model.
bool ClusterExecutor::HasCut() {
  MutexLock lock(mutex_);
  const auto lives = [this](const std::unique_ptr<Node>& node) {
    mutex_.AssertHeld();
    return heard_[node->id].lost.ok() || node->left_out();
  };
  return config_.shares_model() && failed_ != nullptr && failed_->role == NodeRole::kCompute &&
         std::ranges::all_of(nodes_, lives);
}

Reconnect ReconnectTo(const ClusterConfig& config, const ModelConfig& model,
                      const StartProgress& progress, std::function<void(ClusterExecutor&)> use,
                      std::function<bool()> interrupted) {
  return [=](const std::map<NodeId, std::string>& lost,
             Deadline until) -> Result<std::unique_ptr<StepExecutor>> {
    LAMINA_ASSIGN_OR_RETURN(
        std::unique_ptr<ClusterExecutor> executor,
        ClusterExecutor::ConnectWithout(config, model, lost, until, progress, interrupted));
    if (use != nullptr) use(*executor);
    return std::unique_ptr<StepExecutor>(std::move(executor));
  };
}

LookForNodes LookAmong(const ClusterConfig& config, const ModelConfig& model) {
  return [=](const std::map<NodeId, std::string>& lost, Deadline until, std::stop_token stop) {
    return ClusterExecutor::Look(config, model, lost, until, std::move(stop));
  };
}

std::set<NodeId> ClusterExecutor::Look(const ClusterConfig& config, const ModelConfig& model,
                                       const std::map<NodeId, std::string>& lost, Deadline until,
                                       std::stop_token stop) {
  Result<View> view = ViewOf(config, model);
  if (!view.ok()) {
    LAMINA_LOG_ERROR("cannot look for lost nodes: {}", view.status().message());
    return {};
  }
  ClusterExecutor asking(config, model, std::move(*view), {});
  asking.until_ = until;
  const Result<ControlOptions> control = asking.control_options();
  if (!control.ok()) {
    LAMINA_LOG_ERROR("cannot look for lost nodes: {}", control.status().message());
    return {};
  }
  const std::stop_callback end_waits(stop, [&] {
    MutexLock lock(asking.mutex_);
    for (auto& [id, heard] : asking.heard_) heard.lost = TryAgain("the manager stops");
  });
  struct Answers {
    Mutex mutex;
    std::set<NodeId> free GUARDED_BY(mutex);
  } answers;
  std::vector<std::jthread> threads;  // one that hangs must not hold up the others
  for (const auto& [id, why] : lost) {
    threads.emplace_back([&, node = asking.Find(id)] {
      const Status answer = asking.AskIfFree(*node, *control);
      if (!answer.ok())
        return LAMINA_LOG_DEBUG("{} is not back: {}", node->name(), answer.message());
      MutexLock lock(answers.mutex);
      answers.free.insert(node->id);
    });
  }
  threads.clear();
  MutexLock lock(answers.mutex);
  std::set<NodeId>& free = answers.free;
  for (const std::unique_ptr<Node>& node : asking.nodes_) {
    if (!lost.contains(node->id) || free.contains(node->id)) continue;
    std::erase_if(free, [&](NodeId other) { return asking.KvNodeOf(other) == node->group; });
  }
  return free;
}

// Compute nodes load their weights, which takes no more time then when they are connected in
// earnest.
Status ClusterExecutor::AskIfFree(Node& node, const ControlOptions& options) {
  LAMINA_RETURN_IF_ERROR(ConnectNode(node, options, Within(kLookWait), {}));
  const Clock::duration patience = std::max<Clock::duration>(config_.peer_timeout, kLookWait);
  if (node.role == NodeRole::kMemory) {
    control::ConfigureMemory request;
    request.set_prepare_only(true);
    LAMINA_RETURN_IF_ERROR(
        node.connection->Send(control::CONFIGURE_MEMORY, request.SerializeAsString()));
  } else {
    LAMINA_ASSIGN_OR_RETURN(control::ConfigureCompute request, ComputeRequest(node));
    request.set_prepare_only(true);
    LAMINA_RETURN_IF_ERROR(
        node.connection->Send(control::CONFIGURE_COMPUTE, request.SerializeAsString()));
  }
  return AwaitConfigured(node, patience, {});
}

Status ClusterExecutor::Open(Clock::duration reach_patience, Clock::duration patience,
                             const StartProgress& progress) {
  const Deadline reached = Within(reach_patience), deadline = Within(patience);
  LAMINA_ASSIGN_OR_RETURN(session_token_, RandomBytes(kSessionTokenBytes));
  LAMINA_ASSIGN_OR_RETURN(const ControlOptions control, control_options());
  for (std::unique_ptr<Node>& node : nodes_) {
    if (node->left_out()) continue;
    if (Status connected = ConnectNode(*node, control, reached, progress); !connected.ok()) {
      MutexLock lock(mutex_);
      return heard_[node->id].lost = connected;
    }
  }
  for (std::unique_ptr<Node>& node : nodes_) {
    if (node->role != NodeRole::kMemory || node->left_out()) continue;
    failed_ = node.get();
    LAMINA_RETURN_IF_ERROR(ConfigureMemory(*node, deadline, progress));
  }
  LAMINA_RETURN_IF_ERROR(ConfigureCompute(progress));
  if (until_.Passed()) until_ = Deadline::After(config_.start_timeout);  // it was for weights
  LAMINA_RETURN_IF_ERROR(JoinComputeNodes(progress));
  failed_ = nullptr;
  return OkStatus();
}

ClusterExecutor::ClusterExecutor(const ClusterConfig& config, const ModelConfig& model, View view,
                                 const std::map<NodeId, std::string>& lost)
    : config_(config), model_(model), view_(Without(std::move(view), lost)), epoch_(NewEpoch()) {
  for (size_t i = 0; i < config.nodes.size(); ++i) {
    nodes_.push_back(std::make_unique<Node>(view_.members()[i], config.nodes[i]));
    Node& node = *nodes_.back();
    heard_.try_emplace(node.id);
    if (node.role == NodeRole::kMemory) ++num_memory_nodes_;
    if (node.role == NodeRole::kCompute && !node.left_out()) compute_.push_back(&node);
  }
  for (const auto& [id, why] : lost) {
    for (const std::unique_ptr<Node>& node : nodes_) {
      if (node->group == KvNodeOf(id)) heard_[node->id].lost = PeerLost(why);
    }
  }
}

ClusterExecutor::Node* ClusterExecutor::Find(NodeId id) const {
  const auto found = std::ranges::lower_bound(
      nodes_, id, {}, [](const std::unique_ptr<Node>& node) { return node->id; });
  return found != nodes_.end() && (*found)->id == id ? found->get() : nullptr;
}

control::Limits ClusterExecutor::limits() const {
  control::Limits limits;
  limits.set_max_num_seqs(config_.max_num_seqs);
  limits.set_max_num_batched_tokens(config_.max_num_batched_tokens);
  limits.set_max_model_len(config_.max_model_len);
  limits.set_num_batches(config_.num_batches);
  limits.set_peer_timeout_ms(
      std::chrono::duration_cast<milliseconds>(config_.peer_timeout).count());
  return limits;
}

control::ModelledLink ClusterExecutor::modelled_link() const {
  control::ModelledLink link;
  link.set_latency_ns(
      std::chrono::duration_cast<std::chrono::nanoseconds>(config_.modelled_latency).count());
  link.set_bytes_per_s(config_.modelled_gb_per_s * 1e9);
  return link;
}

Result<ControlOptions> ClusterExecutor::control_options() const {
  ControlOptions options;
  options.hello = "manager of cluster " + config_.name;
  // The nodes beat at that rate too.
  options.peer_timeout = std::max<Clock::duration>(config_.peer_timeout, 4 * options.heartbeat);
  LAMINA_ASSIGN_OR_RETURN(options.secret, ReadSecretFile(config_.secret_file));
  LAMINA_ASSIGN_OR_RETURN(options.tls, TlsContext::Load(config_.tls));
  options.interrupted = interrupted_;
  return options;
}

Status ClusterExecutor::ConnectNode(Node& node, const ControlOptions& options, Deadline deadline,
                                    const StartProgress& progress) {
  const Deadline quiet = deadline.NoLaterThan(Clock::now() + kQuietWait);
  Result<std::unique_ptr<ControlConnection>> connection =
      ConnectControl(node.address(), options, quiet);
  if (!connection.ok() && !deadline.Passed() && IsTransient(connection.status())) {
    if (progress) {
      progress(fmt::format(
          "waiting up to {} s for {}: {}",
          std::chrono::duration_cast<std::chrono::seconds>(deadline.Remaining()).count(),
          node.name(), connection.status().message()));
    }
    connection = ConnectControl(node.address(), options, deadline);
  }
  if (!connection.ok()) {
    const Status status = connection.status().WithContext(node.name());
    if (!IsTransient(status)) return status;
    return Status(
        status.code(),
        status.message() +
            "; is its daemon running? `lamina cluster up` starts the daemons of a cluster");
  }
  node.connection = std::move(*connection);
  node.connection->Start({
      .on_frame = [this, &node](ControlFrame frame) { OnFrame(node, std::move(frame)); },
      .on_lost = [this, &node](const Status& status) { OnLost(node, status); },
  });
  return OkStatus();
}

Status ClusterExecutor::ConfigureMemory(Node& node, Deadline deadline,
                                        const StartProgress& progress) {
  control::ConfigureMemory request;
  request.set_epoch(epoch_);
  request.set_node_id(node.id.value);
  request.set_node_name(node.config.name);
  *request.mutable_attention() = AttentionSpecOf(model_, config_);
  request.mutable_attention()->set_num_heads(node.num_kv_heads *
                                             (model_.num_heads / model_.num_kv_heads));
  request.mutable_attention()->set_num_kv_heads(node.num_kv_heads);
  *request.mutable_limits() = limits();
  LAMINA_ASSIGN_OR_RETURN(
      const std::vector<std::string> fabrics,
      LadderKinds(TransportKindName(config_.transport), config_.transport_fallback));
  request.mutable_fabrics()->Add(fabrics.begin(), fabrics.end());
  request.set_payload_checksum(std::string(SwitchName(config_.payload_checksum)));
  if (config_.models_network()) *request.mutable_modelled_link() = modelled_link();
  request.set_overlap(config_.overlap == Switch::kOn);
  request.set_polling(
      std::string(PollingModeName(compute_.size() == 1 ? config_.polling : PollingMode::kHost)));
  request.set_session_token(session_token_);
  const Clock::duration patience = std::max<Clock::duration>(deadline.Remaining(), kQuietWait);
  return ConfigureOnceFree(node, control::CONFIGURE_MEMORY, request.SerializeAsString(), patience,
                           progress);
}

// A node that serves another manager says so at once. That one may be gone without the node having
// noticed yet, so it is asked again for a while.
Status ClusterExecutor::ConfigureOnceFree(Node& node, control::MessageType type,
                                          const std::string& request, Clock::duration patience,
                                          const StartProgress& progress) {
  const Deadline deadline = Within(std::min<Clock::duration>(config_.start_timeout, kTakeOverWait));
  bool told = false;
  while (true) {
    LAMINA_RETURN_IF_ERROR(node.connection->Send(static_cast<uint16_t>(type), request));
    const Status status = AwaitConfigured(node, patience, progress);
    if (status.code() != StatusCode::kTryAgain) return status;
    if (deadline.Passed())
      return {status.code(),
              status.message() + "; stop that manager first: a node serves one at a time"};
    if (progress && !std::exchange(told, true)) {
      progress(fmt::format("waiting up to {:.0f} s, in case it is gone: {}",
                           std::chrono::duration<double>(deadline.Remaining()).count(),
                           status.message()));
    }
    WaitReadable(node.answers.fd(), Deadline::After(milliseconds(200)));
  }
}

Result<control::ConfigureCompute> ClusterExecutor::ComputeRequest(const Node& node) const {
  control::ConfigureCompute request;
  request.set_epoch(epoch_);
  request.set_node_id(node.id.value);
  request.set_node_name(node.config.name);
  *request.mutable_attention() = AttentionSpecOf(model_, config_);
  *request.mutable_limits() = limits();
  LAMINA_ASSIGN_OR_RETURN(
      const std::vector<std::string> fabrics,
      LadderKinds(TransportKindName(config_.transport), config_.transport_fallback));
  request.mutable_fabrics()->Add(fabrics.begin(), fabrics.end());
  request.set_payload_checksum(std::string(SwitchName(config_.payload_checksum)));
  if (config_.models_network()) *request.mutable_modelled_link() = modelled_link();
  request.set_overlap(config_.overlap == Switch::kOn);
  request.set_polling(
      std::string(PollingModeName(compute_.size() == 1 ? config_.polling : PollingMode::kHost)));
  request.set_model(config_.model_path);
  request.set_load_format(std::string(LoadFormatName(config_.load_format)));
  if (local())
    request.set_local_kv_tokens(node.config.memory_bytes /
                                KvBytesPerToken(model_, config_.kv_dtype));
  if (!local()) request.set_session_token(session_token_);
  request.set_joins_others(compute_.size() > 1);
  if (config_.shares_model()) *request.mutable_share() = ShareOf(node);
  request.mutable_attention()->set_num_heads(model_.num_heads / config_.tensor_parallel_size);
  request.mutable_attention()->set_num_kv_heads(node.num_kv_heads);
  for (const std::unique_ptr<Node>& memory : nodes_) {
    if (memory->role != NodeRole::kMemory || memory->left_out()) continue;
    if (memory->rank != node.rank) continue;  // it works for another compute node
    control::MemoryPeer& peer = *request.add_memory_nodes();
    peer.set_node_id(memory->id.value);
    peer.set_node_name(memory->config.name);
    peer.set_offers(memory->configured.offers());
    peer.set_group_id(memory->group.value);
    peer.set_first_kv_head(memory->first_kv_head - node.first_kv_head);
    peer.set_num_kv_heads(memory->num_kv_heads);
  }
  return request;
}

control::ModelShare ClusterExecutor::ShareOf(const Node& node) const {
  const ModelShare held = view_.ShareOf(node);
  control::ModelShare share;
  share.set_num_stages(held.num_stages);
  share.set_stage(held.stage);
  share.set_num_ranks(held.num_ranks);
  share.set_rank(held.rank);
  return share;
}

// All load at the same time.
Status ClusterExecutor::ConfigureCompute(const StartProgress& progress) {
  std::vector<std::string> requests;
  for (Node* node : compute_) {
    LAMINA_ASSIGN_OR_RETURN(const control::ConfigureCompute request, ComputeRequest(*node));
    requests.push_back(request.SerializeAsString());
    LAMINA_RETURN_IF_ERROR(node->connection->Send(control::CONFIGURE_COMPUTE, requests.back()));
  }
  for (size_t i = 0; i < compute_.size(); ++i) {
    failed_ = compute_[i];
    Status status = AwaitConfigured(*compute_[i], kLoadPatience, progress);
    if (status.code() == StatusCode::kTryAgain)
      status = ConfigureOnceFree(*compute_[i], control::CONFIGURE_COMPUTE, requests[i],
                                 kLoadPatience, progress);
    LAMINA_RETURN_IF_ERROR(status);
  }
  return OkStatus();
}

Status ClusterExecutor::JoinComputeNodes(const StartProgress& progress) {
  if (compute_.size() == 1) return OkStatus();
  control::ConnectCompute request;
  request.set_epoch(epoch_);
  for (const Node* node : compute_) {
    control::ComputePeer& peer = *request.add_nodes();
    peer.set_node_id(node->id.value);
    peer.set_node_name(node->config.name);
    peer.set_offers(node->configured.offers());
  }
  for (Node* node : compute_)
    LAMINA_RETURN_IF_ERROR(
        node->connection->Send(control::CONNECT_COMPUTE, request.SerializeAsString()));
  for (Node* node : compute_) {
    failed_ = node;
    const control::Configured before = node->configured;
    LAMINA_RETURN_IF_ERROR(AwaitConfigured(*node, config_.start_timeout, progress));
    node->configured.MergeFrom(before);
  }
  return OkStatus();
}

// Waits for Configured; every progress message starts `patience` anew, also after until_.
Status ClusterExecutor::AwaitConfigured(Node& node, Clock::duration patience,
                                        const StartProgress& progress) {
  const TimePoint start = Clock::now();
  Deadline deadline = Within(patience);
  while (true) {
    const std::optional<ControlFrame> frame = node.answers.TryPop();
    {
      MutexLock lock(mutex_);
      if (const Status& lost = heard_[node.id].lost; !lost.ok()) return lost;
    }
    // kTryAgain would be the node's answer.
    if (interrupted_ && interrupted_()) return TimedOut("interrupted");
    const bool counts =
        frame && (frame->type == control::LOAD_PROGRESS || frame->type == control::CONFIGURED);
    if (!counts && deadline.Passed()) break;
    if (!frame) {
      WaitReadable(node.answers.fd(), deadline.NoLaterThan(Clock::now() + milliseconds(100)));
      continue;
    }
    if (control::LoadProgress loaded;
        frame->type == control::LOAD_PROGRESS && loaded.ParseFromString(frame->payload)) {
      deadline = Deadline::After(patience);
      if (progress) {
        progress(fmt::format("{}: loaded {:.1f} of {:.1f} MB of weights", node.name(),
                             static_cast<double>(loaded.loaded_bytes()) * 1e-6,
                             static_cast<double>(loaded.total_bytes()) * 1e-6));
      }
    }
    if (frame->type != control::CONFIGURED) continue;
    if (!node.configured.ParseFromString(frame->payload))
      return Corrupt(node.name() + ": its answer cannot be parsed");
    if (node.configured.status() == 0) return OkStatus();
    return {static_cast<StatusCode>(node.configured.status()), node.configured.message()};
  }
  return TimedOut(fmt::format("{} at {} did not answer Configure within {:.0f} s", node.name(),
                              node.address(), SecondsSince(start)));
}

}  // namespace lamina
