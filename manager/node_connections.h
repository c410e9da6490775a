// The manager's connections to the nodes of a cluster, and who of them is gone. How nodes are
// reached and configured is connecting_nodes.h; what is sent over the connections then is the
// executor's (cluster_executor.h).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/inbox.h"
#include "base/mutex.h"
#include "manager/cluster_config.h"
#include "manager/reconnect.h"
#include "scheduler/scheduler.h"
#include "splitter/topology.h"
#include "transport/control_channel.h"
#include "wire/session_messages.h"

namespace lamina {

// Thread: one at a time, but where a function says otherwise.
class NodeConnections {
 public:
  // A member of the view and the connection to it.
  struct Node : Member {
    Node(const Member& member, const NodeConfig& of_file) : Member(member), config(of_file) {}
    const NodeConfig config;
    std::unique_ptr<ControlConnection> connection;
    Inbox<ControlFrame> answers;  // until Start
    Configured configured;        // fixed once connections are open
    // Lost before connections were opened, or it shares tokens with a node that was: has no
    // connection.
    bool left_out() const { return state == MemberState::kLost; }
    std::string address() const { return ClusterConfig::Address(config); }
    std::string name() const { return std::string(NodeRoleName(role)) + " node " + config.name; }
  };

  // Called by connections' threads; they must not block.
  struct Callbacks {
    // But for answers to what configures nodes.
    std::function<void(Node&, ControlFrame)> on_frame;
    // LossOf says so already.
    std::function<void(Node&, const Status&)> on_lost;
  };

  // None is connected yet. Those that are lost, for these reasons, and those that share tokens with
  // them are left out. `on_change` is called when an answer has come or a node was lost, from any
  // thread. REQUIRES: the view is that of the configuration.
  NodeConnections(const ClusterConfig& config, View view, const std::map<NodeId, std::string>& lost,
                  OnChange on_change);
  // Closes.
  ~NodeConnections();
  NodeConnections(const NodeConnections&) = delete;

  // The node is reached. REQUIRES: it has no connection yet.
  void Attach(Node& node, std::unique_ptr<ControlConnection> connection);
  // The node cannot be reached, which is why it is lost.
  void NotReached(const Node& node, const Status& why);

  // News go to `callbacks` from here on; frames before it are dropped. REQUIRES: called once.
  void Start(Callbacks callbacks);

  // Takes leave of the nodes, and waits for a moment until they know. No callback runs after it
  // returns. It may be called again.
  void Close();

  // Ascending by id, also those that are lost.
  std::span<const std::unique_ptr<Node>> nodes() const { return nodes_; }
  // The compute nodes without those that are left out.
  std::span<Node* const> compute() const { return compute_; }
  // Null if there is no such node.
  Node* Find(NodeId id) const;
  // See StepExecutor.
  std::vector<KvNode> kv_nodes() const;
  int largest_interval() const;
  std::map<NodeId, ElasticCache> elastic_kv() const;
  std::map<NodeId, NodeKv> kv() const;
  std::map<NodeId, LeftKv> TakeLeftKv();

  // Why the node is lost; ok: it is not. Thread: any.
  Status LossOf(const Node& node);
  // The node is of no use any more: says so to `on_lost`. Thread: any.
  void Lose(Node& node, const Status& status);
  // Closes the connection without waiting; nobody is told. Thread: any but connections'.
  void Leave(Node& node);

  const ClusterConfig& config() const { return config_; }
  const View& view() const { return view_; }
  uint64_t epoch() const { return epoch_; }  // of the nodes' session
  bool local() const { return num_memory_nodes_ == 0; }

 private:
  void OnFrame(Node& node, ControlFrame frame);

  const ClusterConfig config_;
  const View view_;
  const uint64_t epoch_;
  const OnChange on_change_;
  int num_memory_nodes_ = 0;
  std::vector<Node*> compute_;  // of nodes_, without those that are left out
  Mutex mutex_;
  Callbacks callbacks_ GUARDED_BY(mutex_);
  std::unordered_map<NodeId, Status> lost_ GUARDED_BY(mutex_);  // ok: it is not
  // Ascending by id. Last: their connections' threads use the members above.
  std::vector<std::unique_ptr<Node>> nodes_;
};

}  // namespace lamina
