// How nodes are reached and configured, at first and when some are lost.
#include "manager/node_connections.h"

#include <fmt/format.h>

#include <algorithm>
#include <list>
#include <optional>
#include <utility>

#include "base/descriptors.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/random_id.h"
#include "manager/control_options.h"
#include "manager/resolve_config.h"
#include "transport/crypto.h"
#include "wire/codec.h"
#include "wire/wire_format.h"

namespace lamina {
namespace {

// Between two signs of life while weights load; each tensor is one.
constexpr auto kLoadPatience = std::chrono::seconds(120);

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

// Until a node that serves another manager is asked again.
constexpr auto kAskAgain = milliseconds(200);

bool IsTransient(const Status& status) {
  return status.code() == StatusCode::kTryAgain || status.code() == StatusCode::kTimeout;
}

// Between two looks whether somebody interrupts.
constexpr auto kInterruptionInterval = milliseconds(100);

// Adds the names of the nodes with these ids.
void AddNames(const ClusterConfig& config, const std::map<NodeId, std::string>& nodes,
              std::set<std::string>& names) {
  for (size_t i = 0; i < config.nodes.size(); ++i) {
    if (nodes.contains(config.IdOf(i))) names.insert(config.nodes[i].name);
  }
}

View Without(View view, const std::map<NodeId, std::string>& lost) {
  for (const auto& [id, why] : lost) view.Lose(id);
  return view;
}

}  // namespace

// A place that has a standby is not waited for as long as one without.
Procedure<NodeConnections::Opened> NodeConnections::OpenByTurns(Turns& turns,
                                                                const ClusterConfig& config,
                                                                const ModelConfig& model,
                                                                ConnectMeans means) {
  LAMINA_CO_RETURN_IF_ERROR(CheckDescriptorsLeft(config.nodes.size() * kDescriptorsPerNode));
  LAMINA_CO_ASSIGN_OR_RETURN(const View view, ViewOf(config, model));
  const TimePoint latest = turns.now() + config.start_timeout;
  std::set<std::string> gone;
  FilledPlaces filled = FillPlaces(config, {}, gone);
  bool has_others = !config.standbys.empty();
  KnownNodes known;
  known.held.takes_over = means.manager_id != 0;
  while (true) {
    const Clock::duration patience = latest - turns.now();
    std::unique_ptr<NodeConnections> nodes(
        new NodeConnections(filled.config, model, view, known, TimePoint::max(), means));
    const Status opened = co_await nodes->Open(
        turns, has_others ? std::min<Clock::duration>(patience, kReachWait) : patience, patience);
    if (opened.ok()) co_return nodes;
    if (!has_others || (means.interrupted && means.interrupted())) co_return opened;
    const std::string missing = nodes->MissingComputeNode();
    const Status ended = co_await means.end(turns, std::move(nodes), means.on_change);
    LAMINA_CO_RETURN_IF_ERROR(ended);
    if (!missing.empty()) {
      gone.insert(missing);
      if (means.progress) means.progress(opened.message() + "; a standby is to take its place");
      filled = FillPlaces(config, {}, gone);
    }
    // A memory node, for which nobody stands by, may take the whole time.
    has_others = !missing.empty() && std::ssize(gone) < std::ssize(config.standbys);
  }
}

Procedure<NodeConnections::Opened> NodeConnections::OpenWithoutByTurns(
    Turns& turns, const ClusterConfig& config, const ModelConfig& model, KnownNodes known,
    TimePoint until, ConnectMeans means) {
  const TimePoint mended =
      turns.now() +
      std::min<Clock::duration>(config.start_timeout, kMendTimeouts * config.peer_timeout);
  // A node that did not notice yet is busy with its session for at most the peer timeout.
  const Clock::duration patience =
      std::min(config.start_timeout, 2 * config.peer_timeout + kQuietWait);
  LAMINA_CO_ASSIGN_OR_RETURN(const View all, ViewOf(config, model));
  std::set<std::string> gone = known.lost_standbys;
  AddNames(FillPlaces(config, known.places, {}).config, known.lost, gone);
  while (true) {
    LAMINA_CO_RETURN_IF_ERROR(CheckDescriptorsLeft(config.nodes.size() * kDescriptorsPerNode));
    const FilledPlaces filled = FillPlaces(config, known.places, gone);
    KnownNodes left = known;
    std::erase_if(left.lost, [&](const auto& one) {
      return all.Find(one.first)->role == NodeRole::kCompute && !filled.empty.contains(one.first);
    });
    for (const NodeId place : filled.empty)
      left.lost.emplace(place, "no standby is left for its place");
    std::unique_ptr<NodeConnections> nodes(
        new NodeConnections(filled.config, model, all, left, until, means));
    LAMINA_CO_RETURN_IF_ERROR(nodes->TooFewLeft(left.lost));
    const Status opened =
        co_await nodes->Open(turns, std::min<Clock::duration>(patience, kReachWait), patience);
    if (opened.ok()) co_return nodes;
    if (means.interrupted && means.interrupted()) co_return opened;
    const std::map<NodeId, std::string> more = co_await nodes->NewlyLost(turns, opened);
    const bool is_over = more.empty() || turns.now() >= nodes->until_;
    const bool has_others = std::ranges::any_of(
        filled.config.standbys, [&](const NodeConfig& one) { return !gone.contains(one.name); });
    const bool is_cut = !has_others && nodes->HasCut() && turns.now() < mended;
    // Nodes that are left are free for the next try then.
    const Status ended = co_await means.end(turns, std::move(nodes), means.on_change);
    LAMINA_CO_RETURN_IF_ERROR(ended);
    if (is_over) co_return opened;
    if (is_cut) continue;
    known.lost.insert(more.begin(), more.end());
    AddNames(filled.config, more, gone);
  }
}

// The compute node that Open could not reach, or that left it; "" if that was not what failed.
std::string NodeConnections::MissingComputeNode() {
  for (const Node* node : compute_) {
    if (!LossOf(*node).ok()) return node->config.name;
  }
  return "";
}

Status NodeConnections::TooFewLeft(const std::map<NodeId, std::string>& lost) const {
  const auto reasons = [&](NodeRole role) {
    std::string text;
    for (const auto& [id, why] : lost) {
      if (view_.Find(id)->role == role) text += (text.empty() ? "" : "; ") + why;
    }
    return text;
  };
  if (compute_.empty()) return PeerLost("no compute node is left: " + reasons(NodeRole::kCompute));
  if (config_.shares_model() &&
      std::ssize(compute_) <
          std::ranges::count(config_.nodes, NodeRole::kCompute, &NodeConfig::role))
    return PeerLost("no other compute node holds that part of the model: " +
                    reasons(NodeRole::kCompute));
  if (kv_nodes().empty()) return PeerLost("no memory node is left: " + reasons(NodeRole::kMemory));
  return OkStatus();
}

// Those that were lost while the nodes were connected. A node may tell of the loss of another
// before that other's connection does. If no connection is lost, it was the node that failed.
Procedure<std::map<NodeId, std::string>> NodeConnections::NewlyLost(Turns& turns, Status why) {
  const TimePoint latest =
      Within(turns.now(), std::min<Clock::duration>(config_.peer_timeout, kReachWait));
  std::map<NodeId, std::string> lost;
  while (true) {
    for (const std::unique_ptr<Node>& node : nodes_) {
      const Status loss = LossOf(*node);
      if (!loss.ok() && !node->left_out()) lost.emplace(node->id, loss.message());
    }
    if (!lost.empty() || failed_ == nullptr) co_return lost;
    if (turns.now() >= latest) break;
    co_await turns.Next(latest);
  }
  lost.emplace(failed_->id, why.message());
  co_return lost;
}

Status NodeConnections::LossOf(const Node& node) {
  MutexLock lock(mutex_);
  return lost_[node.id];
}

TimePoint NodeConnections::NextLook(TimePoint now, TimePoint latest) const {
  return means_.interrupted == nullptr ? latest : std::min(latest, now + kInterruptionInterval);
}

// All nodes live, but compute nodes do not reach each other, and nobody else has their parts of the
// model.
bool NodeConnections::HasCut() {
  const auto lives = [this](const std::unique_ptr<Node>& node) {
    return node->left_out() || LossOf(*node).ok();
  };
  return config_.shares_model() && failed_ != nullptr && failed_->role == NodeRole::kCompute &&
         std::ranges::all_of(nodes_, lives);
}

Procedure<Status> NodeConnections::Open(Turns& turns, Clock::duration reach_patience,
                                        Clock::duration patience) {
  const TimePoint reached = Within(turns.now(), reach_patience);
  const TimePoint latest = Within(turns.now(), patience);
  LAMINA_CO_ASSIGN_OR_RETURN(session_token_, RandomBytes(kSessionTokenBytes));
  LAMINA_CO_ASSIGN_OR_RETURN(const ControlOptions control, control_options());
  for (const std::unique_ptr<Node>& node : nodes_) {
    if (node->left_out()) continue;
    const Status connected = co_await ConnectNode(turns, *node, control, reached);
    if (connected.ok()) continue;
    MutexLock lock(mutex_);
    lost_[node->id] = connected;
    co_return connected;
  }
  for (const std::unique_ptr<Node>& node : nodes_) {
    if (node->role != NodeRole::kMemory || node->left_out()) continue;
    failed_ = node.get();
    const Status configured = co_await ConfigureMemoryNode(turns, *node, latest);
    LAMINA_CO_RETURN_IF_ERROR(configured);
  }
  const Status configured = co_await ConfigureComputeNodes(turns);
  LAMINA_CO_RETURN_IF_ERROR(configured);
  // It was for weights.
  if (turns.now() >= until_) until_ = turns.now() + config_.start_timeout;
  const Status joined = co_await JoinComputeNodes(turns);
  LAMINA_CO_RETURN_IF_ERROR(joined);
  failed_ = nullptr;
  co_return OkStatus();
}

NodeConnections::NodeConnections(const ClusterConfig& config, const ModelConfig& model, View view,
                                 const KnownNodes& known, TimePoint until, ConnectMeans means)
    : config_(config),
      model_(model),
      view_(Without(std::move(view), known.lost)),
      held_(known.held),
      epoch_(RandomId()),
      means_(std::move(means)),
      until_(until) {
  for (size_t i = 0; i < config.nodes.size(); ++i) {
    nodes_.push_back(std::make_unique<Node>(view_.members()[i], config.nodes[i]));
    Node& node = *nodes_.back();
    if (node.role == NodeRole::kMemory) ++num_memory_nodes_;
    if (node.role == NodeRole::kCompute && !node.left_out()) compute_.push_back(&node);
  }
  for (const auto& [id, why] : known.lost) {
    for (const std::unique_ptr<Node>& node : nodes_) {
      if (node->group == Find(id)->group) lost_[node->id] = PeerLost(why);
    }
  }
}

NodeConnections::Node* NodeConnections::Find(NodeId id) const {
  const auto found = std::ranges::lower_bound(
      nodes_, id, {}, [](const std::unique_ptr<Node>& node) { return node->id; });
  return found != nodes_.end() && (*found)->id == id ? found->get() : nullptr;
}

Result<ControlOptions> NodeConnections::control_options() const {
  LAMINA_ASSIGN_OR_RETURN(ControlOptions options,
                          ControlOptionsOf(config_, "manager of cluster " + config_.name));
  options.interrupted = means_.interrupted;
  return options;
}

Procedure<Status> NodeConnections::ConnectNode(Turns& turns, Node& node,
                                               const ControlOptions& options, TimePoint latest) {
  const TimePoint quiet = std::min(latest, turns.now() + kQuietWait);
  Result<std::unique_ptr<ControlConnection>> connection =
      co_await Reach(turns, node, options, quiet);
  if (!connection.ok() && turns.now() < latest && IsTransient(connection.status())) {
    if (means_.progress) {
      means_.progress(fmt::format(
          "waiting up to {} s for {}: {}",
          std::chrono::duration_cast<std::chrono::seconds>(latest - turns.now()).count(),
          node.name(), connection.status().message()));
    }
    connection = co_await Reach(turns, node, options, latest);
  }
  if (!connection.ok()) {
    const Status status = connection.status().WithContext(node.name());
    if (!IsTransient(status)) co_return status;
    co_return Status(
        status.code(),
        status.message() +
            "; is its daemon running? `lamina cluster up` starts the daemons of a cluster");
  }
  node.connection = std::move(*connection);
  node.connection->Start({
      .on_frame = [this, &node](ControlFrame frame) { OnFrame(node, std::move(frame)); },
      .on_lost = [this, &node](const Status& status) { Lose(node, status); },
  });
  co_return OkStatus();
}

Procedure<Result<std::unique_ptr<ControlConnection>>> NodeConnections::Reach(
    Turns& turns, const Node& node, const ControlOptions& options, TimePoint latest) {
  const std::unique_ptr<ControlConnecting> connecting =
      means_.connect(node.address(), options, latest, means_.on_change);
  while (true) {
    std::optional<Result<std::unique_ptr<ControlConnection>>> outcome = connecting->Poll();
    if (outcome) co_return std::move(*outcome);
    // There is an outcome at `latest`, give or take what the thread needs that makes it.
    co_await turns.Next(turns.now() < latest ? latest : TimePoint::max());
  }
}

Procedure<Status> NodeConnections::ConfigureMemoryNode(Turns& turns, Node& node, TimePoint latest) {
  LAMINA_CO_ASSIGN_OR_RETURN(const ConfigureMemory request, MemoryRequest(node));
  const Clock::duration patience = std::max<Clock::duration>(latest - turns.now(), kQuietWait);
  const Status configured = co_await ConfigureOnceFree(turns, node, MessageType::kConfigureMemory,
                                                       Encode(request), patience);
  co_return configured;
}

// A node that serves another manager says so at once. That one may be gone without the node having
// noticed yet, so it is asked again for a while.
Procedure<Status> NodeConnections::ConfigureOnceFree(Turns& turns, Node& node, MessageType type,
                                                     std::string request,
                                                     Clock::duration patience) {
  const TimePoint latest =
      Within(turns.now(), std::min<Clock::duration>(config_.start_timeout, kTakeOverWait));
  bool told = false;
  while (true) {
    LAMINA_CO_RETURN_IF_ERROR(node.connection->Send(FrameType(type), request));
    const Status status = co_await AwaitConfigured(turns, node, patience);
    if (status.code() != StatusCode::kTryAgain) co_return status;
    if (turns.now() >= latest) {
      co_return Status(status.code(),
                       status.message() + "; stop that manager first: a node serves one at a time");
    }
    if (means_.progress && !std::exchange(told, true)) {
      means_.progress(fmt::format("waiting up to {:.0f} s, in case it is gone: {}",
                                  std::chrono::duration<double>(latest - turns.now()).count(),
                                  status.message()));
    }
    const TimePoint again = turns.now() + kAskAgain;
    while (turns.now() < again) co_await turns.Next(again);
  }
}

// All load at the same time.
Procedure<Status> NodeConnections::ConfigureComputeNodes(Turns& turns) {
  std::vector<std::string> requests;
  for (Node* node : compute_) {
    LAMINA_CO_ASSIGN_OR_RETURN(const ConfigureCompute request, ComputeRequest(*node));
    requests.push_back(Encode(request));
    LAMINA_CO_RETURN_IF_ERROR(
        node->connection->Send(FrameType(MessageType::kConfigureCompute), requests.back()));
  }
  for (size_t i = 0; i < compute_.size(); ++i) {
    failed_ = compute_[i];
    Status status = co_await AwaitConfigured(turns, *compute_[i], kLoadPatience);
    if (status.code() == StatusCode::kTryAgain) {
      status = co_await ConfigureOnceFree(turns, *compute_[i], MessageType::kConfigureCompute,
                                          requests[i], kLoadPatience);
    }
    LAMINA_CO_RETURN_IF_ERROR(status);
  }
  co_return OkStatus();
}

Procedure<Status> NodeConnections::JoinComputeNodes(Turns& turns) {
  if (compute_.size() == 1) co_return OkStatus();
  const ConnectCompute request = JoinRequest();
  for (Node* node : compute_) {
    LAMINA_CO_RETURN_IF_ERROR(
        node->connection->Send(FrameType(MessageType::kConnectCompute), Encode(request)));
  }
  for (Node* node : compute_) {
    failed_ = node;
    const Configured before = node->configured;
    const Status joined = co_await AwaitConfigured(turns, *node, config_.start_timeout);
    LAMINA_CO_RETURN_IF_ERROR(joined);
    std::vector<DataPath> paths = std::move(node->configured.paths);
    node->configured = before;
    node->configured.paths.insert(node->configured.paths.begin(), paths.begin(), paths.end());
  }
  co_return OkStatus();
}

// Waits for Configured; every progress message starts `patience` anew, also after until_.
Procedure<Status> NodeConnections::AwaitConfigured(Turns& turns, Node& node,
                                                   Clock::duration patience) {
  const TimePoint start = turns.now();
  TimePoint latest = Within(turns.now(), patience);
  while (true) {
    const std::optional<ControlFrame> frame = node.answers.TryPop();
    LAMINA_CO_RETURN_IF_ERROR(LossOf(node));
    // kTryAgain would be the node's answer.
    if (means_.interrupted && means_.interrupted()) co_return TimedOut("interrupted");
    const bool counts = frame && (frame->type == FrameType(MessageType::kWeightsProgress) ||
                                  frame->type == FrameType(MessageType::kConfigured));
    if (!counts && turns.now() >= latest) break;
    if (!frame) {
      co_await turns.Next(NextLook(turns.now(), latest));
      continue;
    }
    if (frame->type == FrameType(MessageType::kWeightsProgress)) {
      const Result<WeightsProgress> loaded = Decode<WeightsProgress>(frame->payload);
      if (!loaded.ok()) continue;
      latest = turns.now() + patience;
      if (means_.progress) {
        means_.progress(fmt::format("{}: loaded {:.1f} of {:.1f} MB of weights", node.name(),
                                    static_cast<double>(loaded->loaded_bytes) * 1e-6,
                                    static_cast<double>(loaded->total_bytes) * 1e-6));
      }
    }
    if (frame->type != FrameType(MessageType::kConfigured)) continue;
    Result<Configured> answer = Decode<Configured>(frame->payload);
    if (!answer.ok()) {
      co_return Corrupt(node.name() +
                        ": its answer cannot be parsed: " + answer.status().message());
    }
    node.configured = *std::move(answer);
    co_return node.configured.status;
  }
  co_return TimedOut(fmt::format("{} at {} did not answer Configure within {:.0f} s", node.name(),
                                 node.address(),
                                 std::chrono::duration<double>(turns.now() - start).count()));
}

std::vector<KvNode> NodeConnections::kv_nodes() const {
  std::vector<KvNode> kv;
  for (const std::unique_ptr<Node>& node : nodes_) {
    if ((node->role == NodeRole::kMemory) == local() || node->left_out()) continue;
    const int64_t capacity = node->configured.capacity_tokens;
    if (node->group == node->id) {
      kv.push_back({node->id, capacity});
    } else {  // all hold the same tokens
      kv.back().capacity_tokens = std::min(kv.back().capacity_tokens, capacity);
    }
  }
  return kv;
}

std::map<NodeId, NodeKv> NodeConnections::kv() const {
  std::map<NodeId, NodeKv> kv;
  for (const std::unique_ptr<Node>& node : nodes_) {
    if (node->role == NodeRole::kMemory && !node->left_out())
      kv.emplace(node->id, NodeKv{node->configured.kv_id, node->configured.missing});
  }
  return kv;
}

std::map<NodeId, LeftKv> NodeConnections::TakeLeftKv() {
  std::map<NodeId, LeftKv> left;
  for (const std::unique_ptr<Node>& node : nodes_) {
    if (node->role == NodeRole::kMemory && !node->left_out())
      left.emplace(node->id, std::exchange(node->configured.left, {}));
  }
  return left;
}

NodeConnections::~NodeConnections() { Close(); }

void NodeConnections::Close() {
  for (std::unique_ptr<Node>& node : nodes_) {
    if (node->connection != nullptr)
      node->connection->Close(Deadline::After(std::chrono::seconds(1)));
  }
}

void NodeConnections::Start(Callbacks callbacks) {
  MutexLock lock(mutex_);
  callbacks_ = std::move(callbacks);
}

void NodeConnections::OnFrame(Node& node, ControlFrame frame) {
  if (frame.type == FrameType(MessageType::kConfigured) ||
      frame.type == FrameType(MessageType::kWeightsProgress)) {
    node.answers.Push(std::move(frame));
    return means_.on_change();
  }
  std::function<void(Node&, ControlFrame)> on_frame;
  {
    MutexLock lock(mutex_);
    on_frame = callbacks_.on_frame;
  }
  if (on_frame) on_frame(node, std::move(frame));
}

void NodeConnections::Lose(Node& node, const Status& status) {
  // Which names the node and its address.
  const Status named(status.code(), "lost " + status.message());
  std::function<void(Node&, const Status&)> on_lost;
  {
    MutexLock lock(mutex_);
    lost_[node.id] = named;
    on_lost = callbacks_.on_lost;
  }
  means_.on_change();
  if (on_lost) on_lost(node, named);
}

void NodeConnections::Leave(Node& node) {
  {
    MutexLock lock(mutex_);
    if (Status& lost = lost_[node.id]; lost.ok())
      lost = PeerLost(node.name() + " at " + node.address() + ": another node lost it");
  }
  if (node.connection != nullptr) node.connection->Close(Deadline::After(Clock::duration::zero()));
}

}  // namespace lamina
