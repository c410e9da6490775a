// Nodes of an engine that answer when a test says so.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "manager/step_executor.h"

namespace lamina::testing {

// The memory node and the compute node that there are unless a test says otherwise, and a second
// memory node.
constexpr NodeId kNode{1}, kCompute{9}, kOther{2};

// The next token of a sequence is 10 times its length, so that texts are easy to foresee.
class FakeExecutor : public StepExecutor {
 public:
  // What a test shares with an executor that an engine owns. Guarded by `mutex` where the engine
  // has a thread.
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    std::function<void(ExecutorEvent)> on_event;
    std::deque<StepPlan> submitted;
    std::vector<NewSequence> announced;
    bool answer_at_once = true;
    std::vector<KvNode> kv_nodes = {{kNode, 1000}};
    std::map<NodeId, NodeKv> kv;              // as kv() says
    std::map<NodeId, LeftKv> left_kv;         // of a manager that is gone
    std::map<NodeId, NodeId> groups;          // of nodes that are part of another one of kv_nodes
    std::map<NodeId, std::string> lost;       // as nodes() says
    std::vector<ExecutorEvent> when_started;  // come with Start
    std::vector<NodeId> left;
    std::vector<TimePoint> turns;            // when Turn was called
    TimePoint next_turn = TimePoint::max();  // what it returns
  };

  explicit FakeExecutor(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}

  std::vector<KvNode> kv_nodes() const override { return shared_->kv_nodes; }
  std::map<NodeId, NodeKv> kv() const override { return shared_->kv; }
  std::map<NodeId, LeftKv> TakeLeftKv() override { return std::exchange(shared_->left_kv, {}); }
  NodeId KvNodeOf(NodeId node) const override {
    const auto group = shared_->groups.find(node);
    return group == shared_->groups.end() ? node : group->second;
  }
  void Start(std::function<void(ExecutorEvent)> on_event) override;
  void Leave(NodeId node) override;
  void Submit(const StepPlan& plan, std::vector<NewSequence> added) override;
  TimePoint Turn(TimePoint now) override;
  std::vector<NodeStatus> nodes() override;

  // The result of a step that every node did.
  static ExecutorEvent Answer(const StepPlan& plan);
  // Either kind of loss of a node.
  static ExecutorEvent Lost(ExecutorEvent::Kind kind, NodeId node) {
    return {kind, {}, node, PeerLost("lost node " + std::to_string(node.value) + ": test")};
  }

 private:
  std::shared_ptr<Shared> shared_;
};

}  // namespace lamina::testing
