#include "manager/node_connections.h"

#include <algorithm>
#include <utility>

#include "base/random_id.h"

namespace lamina {
namespace {

View Without(View view, const std::map<NodeId, std::string>& lost) {
  for (const auto& [id, why] : lost) view.Lose(id);
  return view;
}

}  // namespace

NodeConnections::NodeConnections(const ClusterConfig& config, View view,
                                 const std::map<NodeId, std::string>& lost, OnChange on_change)
    : config_(config),
      view_(Without(std::move(view), lost)),
      epoch_(RandomId()),
      on_change_(std::move(on_change)) {
  for (size_t i = 0; i < config.nodes.size(); ++i) {
    nodes_.push_back(std::make_unique<Node>(view_.members()[i], config.nodes[i]));
    Node& node = *nodes_.back();
    if (node.role == NodeRole::kMemory) ++num_memory_nodes_;
    if (node.role == NodeRole::kCompute && !node.left_out()) compute_.push_back(&node);
  }
  for (const auto& [id, why] : lost) {
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

void NodeConnections::Attach(Node& node, std::unique_ptr<ControlConnection> connection) {
  node.connection = std::move(connection);
  node.connection->Start({
      .on_frame = [this, &node](ControlFrame frame) { OnFrame(node, std::move(frame)); },
      .on_lost = [this, &node](const Status& status) { Lose(node, status); },
  });
}

void NodeConnections::NotReached(const Node& node, const Status& why) {
  MutexLock lock(mutex_);
  lost_[node.id] = why;
}

Status NodeConnections::LossOf(const Node& node) {
  MutexLock lock(mutex_);
  return lost_[node.id];
}

std::vector<KvNode> NodeConnections::kv_nodes() const {
  std::vector<KvNode> kv;
  for (const std::unique_ptr<Node>& node : nodes_) {
    if ((node->role == NodeRole::kMemory) == local() || node->left_out()) continue;
    const int64_t capacity = node->configured.capacity_tokens;
    if (node->group == node->id) {
      const std::optional<ElasticKv>& elastic = node->configured.elastic_kv;
      kv.push_back({node->id, capacity, elastic ? elastic->Tokens(elastic->least_inside) : 0});
    } else {  // all hold the same tokens
      kv.back().capacity_tokens = std::min(kv.back().capacity_tokens, capacity);
    }
  }
  return kv;
}

int NodeConnections::largest_interval() const {
  int largest = 0;
  for (const Node* node : compute_) {
    const int of_node = node->configured.largest_interval;
    if (of_node > 0) largest = largest == 0 ? of_node : std::min(largest, of_node);
  }
  return largest;
}

std::map<NodeId, ElasticCache> NodeConnections::elastic_kv() const {
  std::map<NodeId, ElasticCache> caches;
  for (const std::unique_ptr<Node>& node : nodes_) {
    if (node->configured.elastic_kv && !node->left_out())
      caches.emplace(node->id,
                     ElasticCache{*node->configured.elastic_kv, node->configured.layers_inside});
  }
  return caches;
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
    return on_change_();
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
  on_change_();
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
