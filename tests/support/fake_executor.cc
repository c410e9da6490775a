#include "tests/support/fake_executor.h"

#include <utility>

#include "wire/step_times.h"

namespace lamina::testing {

void FakeExecutor::Start(std::function<void(ExecutorEvent)> on_event) {
  shared_->on_event = std::move(on_event);
  for (const ExecutorEvent& event : shared_->when_started) shared_->on_event(event);
}

void FakeExecutor::Leave(NodeId node) {
  std::lock_guard lock(shared_->mutex);
  shared_->left.push_back(node);
}

void FakeExecutor::Submit(const StepPlan& plan, std::vector<NewSequence> added) {
  std::lock_guard lock(shared_->mutex);
  shared_->announced.insert(shared_->announced.end(), added.begin(), added.end());
  if (shared_->answer_at_once) {
    shared_->on_event(Answer(plan));
  } else {
    shared_->submitted.push_back(plan);
    shared_->changed.notify_all();
  }
}

TimePoint FakeExecutor::Turn(TimePoint now) {
  std::lock_guard lock(shared_->mutex);
  shared_->turns.push_back(now);
  return shared_->next_turn;
}

std::vector<NodeStatus> FakeExecutor::nodes() {
  std::vector<NodeStatus> nodes;
  for (const KvNode& node : shared_->kv_nodes) {
    NodeStatus status;
    status.id = node.id;
    status.name = "m" + std::to_string(node.id.value);
    status.role = NodeRole::kMemory;
    status.state = NodeState::kReady;
    nodes.push_back(status);
  }
  nodes.emplace_back();
  nodes.back().id = kCompute;
  nodes.back().name = "c0";
  nodes.back().role = NodeRole::kCompute;
  nodes.back().state = NodeState::kReady;
  for (NodeStatus& node : nodes) {
    const auto lost = shared_->lost.find(node.id);
    if (lost == shared_->lost.end()) continue;
    node.state = NodeState::kLost;
    node.detail = lost->second;
  }
  return nodes;
}

ExecutorEvent FakeExecutor::Answer(const StepPlan& plan) {
  ExecutorEvent event;
  event.result.step = plan.step;
  for (const Work& work : plan.work) {
    if (!work.sample) continue;
    const auto token = static_cast<TokenId>(10 * (work.first_position + std::ssize(work.tokens)));
    event.result.sampled.push_back({work.sequence, {.token = token}});
  }
  // Nodes that hardly take any time: one batch is best.
  event.result.times.emplace_back().times.ns.fill(1);
  return event;
}

}  // namespace lamina::testing
