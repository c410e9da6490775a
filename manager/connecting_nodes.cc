#include "manager/connecting_nodes.h"

#include <fmt/format.h>

#include <optional>
#include <utility>
#include <vector>

#include "manager/control_options.h"
#include "wire/codec.h"

namespace lamina {
namespace {

// Of a model.
constexpr int kMostLayers = 4096;

// Between two signs of life while weights load; each tensor is one.
constexpr auto kLoadPatience = std::chrono::seconds(120);

constexpr auto kLossWait = std::chrono::seconds(5);  // for the connection to tell of it

// For a daemon that may not be there; it is asked again later.
constexpr auto kLookWait = std::chrono::seconds(1);

// For a node that serves another manager, whose host may be gone: nodes notice that after
// ControlOptions::peer_timeout.
constexpr auto kTakeOverWait = std::chrono::seconds(12);

// Until a node that serves another manager is asked again.
constexpr auto kAskAgain = milliseconds(200);

// Between two looks whether somebody interrupts.
constexpr auto kInterruptionInterval = milliseconds(100);

bool IsTransient(const Status& status) {
  return status.code() == StatusCode::kTryAgain || status.code() == StatusCode::kTimeout;
}

}  // namespace

ConnectingNodes::ConnectingNodes(const ClusterConfig& config, const ModelConfig& model, View view,
                                 const KnownNodes& known, TimePoint until, ConnectMeans means)
    : means_(std::move(means)),
      left_out_(known.lost),
      until_(until),
      nodes_(
          std::make_unique<NodeConnections>(config, std::move(view), known.lost, means_.on_change)),
      requests_(*nodes_, model, known.held, means_.manager_id) {}

std::string ConnectingNodes::MissingComputeNode() const {
  for (const Node* node : nodes_->compute()) {
    if (!nodes_->LossOf(*node).ok()) return node->config.name;
  }
  return "";
}

Status ConnectingNodes::TooFewLeft() const {
  const auto reasons = [&](NodeRole role) {
    std::string text;
    for (const auto& [id, why] : left_out_) {
      if (nodes_->view().Find(id)->role == role) text += (text.empty() ? "" : "; ") + why;
    }
    return text;
  };
  if (nodes_->compute().empty())
    return PeerLost("no compute node is left: " + reasons(NodeRole::kCompute));
  if (nodes_->config().shares_model() &&
      std::ssize(nodes_->compute()) <
          std::ranges::count(nodes_->config().nodes, NodeRole::kCompute, &NodeConfig::role))
    return PeerLost("no other compute node holds that part of the model: " +
                    reasons(NodeRole::kCompute));
  if (nodes_->kv_nodes().empty())
    return PeerLost("no memory node is left: " + reasons(NodeRole::kMemory));
  return OkStatus();
}

// Those that were lost while the nodes were connected. A node may tell of the loss of another
// before that other's connection does. If no connection is lost, it was the node that failed.
Procedure<std::map<NodeId, std::string>> ConnectingNodes::NewlyLost(Turns& turns, Status why) {
  const TimePoint latest =
      Within(turns.now(), std::min<Clock::duration>(nodes_->config().peer_timeout, kLossWait));
  std::map<NodeId, std::string> lost;
  while (true) {
    for (const std::unique_ptr<Node>& node : nodes_->nodes()) {
      const Status loss = nodes_->LossOf(*node);
      if (!loss.ok() && !node->left_out()) lost.emplace(node->id, loss.message());
    }
    if (!lost.empty() || failed_ == nullptr) co_return lost;
    if (turns.now() >= latest) break;
    co_await turns.Next(latest);
  }
  lost.emplace(failed_->id, why.message());
  co_return lost;
}

TimePoint ConnectingNodes::NextLook(TimePoint now, TimePoint latest) const {
  return means_.interrupted == nullptr ? latest : std::min(latest, now + kInterruptionInterval);
}

bool ConnectingNodes::HasCut() const {
  const auto lives = [this](const std::unique_ptr<Node>& node) {
    return node->left_out() || nodes_->LossOf(*node).ok();
  };
  return nodes_->config().shares_model() && failed_ != nullptr &&
         failed_->role == NodeRole::kCompute && std::ranges::all_of(nodes_->nodes(), lives);
}

Procedure<Status> ConnectingNodes::Open(Turns& turns, Clock::duration reach_patience,
                                        Clock::duration patience) {
  const TimePoint reached = Within(turns.now(), reach_patience);
  const TimePoint latest = Within(turns.now(), patience);
  LAMINA_CO_RETURN_IF_ERROR(requests_.DrawSessionToken());
  LAMINA_CO_ASSIGN_OR_RETURN(const ControlOptions control, control_options());
  for (const std::unique_ptr<Node>& node : nodes_->nodes()) {
    if (node->left_out()) continue;
    // Time that others took is no fault of this one, which may have been there all the while.
    const TimePoint latest_for_node = std::max(reached, Within(turns.now(), kQuietWait));
    const Status connected = co_await ConnectNode(turns, *node, control, latest_for_node);
    if (connected.ok()) continue;
    nodes_->NotReached(*node, connected);
    co_return connected;
  }
  for (const std::unique_ptr<Node>& node : nodes_->nodes()) {
    if (node->role != NodeRole::kMemory || node->left_out()) continue;
    failed_ = node.get();
    const Status configured = co_await ConfigureMemoryNode(turns, *node, latest);
    LAMINA_CO_RETURN_IF_ERROR(configured);
  }
  const Status configured = co_await ConfigureComputeNodes(turns);
  LAMINA_CO_RETURN_IF_ERROR(configured);
  for (const std::unique_ptr<Node>& node : nodes_->nodes()) {
    if (node->left_out()) continue;
    failed_ = node.get();
    LAMINA_CO_RETURN_IF_ERROR(CheckElastic(*node));
  }
  // It was for weights.
  if (turns.now() >= until_) until_ = turns.now() + nodes_->config().start_timeout;
  const Status joined = co_await JoinComputeNodes(turns);
  LAMINA_CO_RETURN_IF_ERROR(joined);
  failed_ = nullptr;
  co_return OkStatus();
}

// What is reckoned with later must be possible, whoever the node is.
Status ConnectingNodes::CheckElastic(const Node& node) const {
  const bool is_memory = node.role == NodeRole::kMemory;
  const OffloadOptions& ordered = is_memory ? node.config.offload : node.config.kv_offload;
  const std::optional<ElasticKv>& kv = node.configured.elastic_kv;
  if (!kv) {
    if (!ordered.is_elastic()) return OkStatus();
    return InvalidArgument(fmt::format(
        "{} at {} has layers with fixed places, but its 'expansion' is 'auto': start it with {} "
        "auto",
        node.name(), node.address(), is_memory ? "--offload-expansion" : "--kv-offload-expansion"));
  }
  const int inside = node.configured.layers_inside;
  if (kv->num_layers > kMostLayers || kv->num_layers < kv->least_inside || kv->least_inside < 1 ||
      inside < kv->least_inside || inside > kv->num_layers ||
      kv->Tokens(kv->num_layers) != node.configured.capacity_tokens ||
      kv->Tokens(kv->least_inside) > int64_t{1} << 32) {
    return Corrupt(
        fmt::format("{} at {}: {} to {} of {} layers inside with room for {} tokens "
                    "cannot be",
                    node.name(), node.address(), kv->least_inside, inside, kv->num_layers,
                    node.configured.capacity_tokens));
  }
  return OkStatus();
}

Result<ControlOptions> ConnectingNodes::control_options() const {
  LAMINA_ASSIGN_OR_RETURN(
      ControlOptions options,
      ControlOptionsOf(nodes_->config(), "manager of cluster " + nodes_->config().name));
  options.interrupted = means_.interrupted;
  return options;
}

Procedure<Status> ConnectingNodes::ConnectNode(Turns& turns, Node& node,
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
  nodes_->Attach(node, std::move(*connection));
  co_return OkStatus();
}

Procedure<Result<std::unique_ptr<ControlConnection>>> ConnectingNodes::Reach(
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

Procedure<Status> ConnectingNodes::ConfigureMemoryNode(Turns& turns, Node& node, TimePoint latest) {
  LAMINA_CO_ASSIGN_OR_RETURN(const ConfigureMemory request, requests_.Memory(node));
  const Clock::duration patience = std::max<Clock::duration>(latest - turns.now(), kQuietWait);
  const Status configured = co_await ConfigureOnceFree(turns, node, MessageType::kConfigureMemory,
                                                       Encode(request), patience);
  co_return configured;
}

// A node that serves another manager says so at once. That one may be gone without the node having
// noticed yet, so it is asked again for a while.
Procedure<Status> ConnectingNodes::ConfigureOnceFree(Turns& turns, Node& node, MessageType type,
                                                     std::string request,
                                                     Clock::duration patience) {
  const TimePoint latest =
      Within(turns.now(), std::min<Clock::duration>(nodes_->config().start_timeout, kTakeOverWait));
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
Procedure<Status> ConnectingNodes::ConfigureComputeNodes(Turns& turns) {
  std::vector<std::string> requests;
  for (Node* node : nodes_->compute()) {
    LAMINA_CO_ASSIGN_OR_RETURN(const ConfigureCompute request, requests_.Compute(*node));
    requests.push_back(Encode(request));
    LAMINA_CO_RETURN_IF_ERROR(
        node->connection->Send(FrameType(MessageType::kConfigureCompute), requests.back()));
  }
  for (size_t i = 0; i < nodes_->compute().size(); ++i) {
    failed_ = nodes_->compute()[i];
    Status status = co_await AwaitConfigured(turns, *nodes_->compute()[i], kLoadPatience);
    if (status.code() == StatusCode::kTryAgain) {
      status = co_await ConfigureOnceFree(
          turns, *nodes_->compute()[i], MessageType::kConfigureCompute, requests[i], kLoadPatience);
    }
    LAMINA_CO_RETURN_IF_ERROR(status);
  }
  co_return OkStatus();
}

Procedure<Status> ConnectingNodes::JoinComputeNodes(Turns& turns) {
  if (nodes_->compute().size() == 1) co_return OkStatus();
  const ConnectCompute request = requests_.Join();
  for (Node* node : nodes_->compute()) {
    LAMINA_CO_RETURN_IF_ERROR(
        node->connection->Send(FrameType(MessageType::kConnectCompute), Encode(request)));
  }
  for (Node* node : nodes_->compute()) {
    failed_ = node;
    const Configured before = node->configured;
    const Status joined = co_await AwaitConfigured(turns, *node, nodes_->config().start_timeout);
    LAMINA_CO_RETURN_IF_ERROR(joined);
    std::vector<DataPath> paths = std::move(node->configured.paths);
    node->configured = before;
    node->configured.paths.insert(node->configured.paths.begin(), paths.begin(), paths.end());
  }
  co_return OkStatus();
}

// Waits for Configured; every progress message starts `patience` anew, also after until_.
Procedure<Status> ConnectingNodes::AwaitConfigured(Turns& turns, Node& node,
                                                   Clock::duration patience) {
  const TimePoint start = turns.now();
  TimePoint latest = Within(turns.now(), patience);
  while (true) {
    const std::optional<ControlFrame> frame = node.answers.TryPop();
    LAMINA_CO_RETURN_IF_ERROR(nodes_->LossOf(node));
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

// Compute nodes load their weights, which takes no more time then when they are connected in
// earnest.
Procedure<Status> ConnectingNodes::AskIfFree(Turns& turns, Node& node) {
  LAMINA_CO_ASSIGN_OR_RETURN(const ControlOptions options, control_options());
  const Status connected =
      co_await ConnectNode(turns, node, options, Within(turns.now(), kLookWait));
  LAMINA_CO_RETURN_IF_ERROR(connected);
  const Clock::duration patience =
      std::max<Clock::duration>(nodes_->config().peer_timeout, kLookWait);
  if (node.role == NodeRole::kMemory) {
    ConfigureMemory request;
    request.prepare_only = true;
    LAMINA_CO_RETURN_IF_ERROR(
        node.connection->Send(FrameType(MessageType::kConfigureMemory), Encode(request)));
  } else {
    LAMINA_CO_ASSIGN_OR_RETURN(ConfigureCompute request, requests_.Compute(node));
    request.prepare_only = true;
    LAMINA_CO_RETURN_IF_ERROR(
        node.connection->Send(FrameType(MessageType::kConfigureCompute), Encode(request)));
  }
  const Status configured = co_await AwaitConfigured(turns, node, patience);
  co_return configured;
}

}  // namespace lamina
