// An engine in virtual time whose nodes are lost and come back as a test says.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "manager/engine_core.h"
#include "tests/support/serving.h"
#include "tests/support/virtual_engine.h"

namespace lamina::testing {

class EngineOutageTest : public ::testing::Test {
 protected:
  EngineOutageTest() {
    options_.scheduler.max_model_len = 100;
    options_.vocab_size = 2000;
    options_.eos_tokens = {70};
    options_.reconnects = options_.looks_for_nodes = true;
    nodes_->answer_at_once = false;
  }

  void Create() {
    engine_ = std::make_unique<VirtualEngine>(options_, nodes_);
    start_ = engine_->now();
  }
  void CreateWithTwoMemoryNodes() {
    nodes_->kv_nodes = {{kNode, 500}, {kOther, 500}};
    Create();
  }
  Clock::duration SinceStart() const { return engine_->now() - start_; }

  StepPlan NextSubmitted() {
    StepPlan plan = nodes_->submitted.front();
    nodes_->submitted.pop_front();
    return plan;
  }
  void Tell(const ExecutorEvent& event) {
    nodes_->on_event(event);
    engine_->Settle();
  }
  void AnswerAll() {
    while (!nodes_->submitted.empty()) Tell(FakeExecutor::Answer(NextSubmitted()));
  }
  void Lose(NodeId node) {
    Tell(FakeExecutor::Lost(
        node == kCompute ? ExecutorEvent::Kind::kComputeLost : ExecutorEvent::Kind::kNodeLost,
        node));
  }
  Collector Submit(std::vector<TokenId> prompt, int64_t max_new_tokens) {
    Collector collector;
    EXPECT_TRUE(
        engine_->Submit(GreedyRequest(std::move(prompt), max_new_tokens), collector.sink()).ok());
    return collector;
  }
  static Generated Result(const Collector& collector) {
    EXPECT_TRUE(collector.results()[0].finished);
    return collector.results()[0];
  }

  ReconnectTask NextTask() {
    EXPECT_EQ(engine_->reconnects.size(), 1u) << "there is one at a time";
    ReconnectTask task = std::move(engine_->reconnects.front());
    engine_->reconnects.pop_front();
    return task;
  }
  // The next executor has the nodes of the first one that are not `lost`, and answers at once.
  void Reconnect(const std::map<NodeId, std::string>& lost = {}) {
    auto next = std::make_shared<FakeExecutor::Shared>();
    next->kv_nodes.clear();
    for (const KvNode& node : nodes_->kv_nodes) {
      if (!lost.contains(node.id)) next->kv_nodes.push_back(node);
    }
    next->lost = lost;
    ReconnectAs(next);
  }
  void ReconnectAs(std::shared_ptr<FakeExecutor::Shared> next) {
    nodes_ = std::move(next);
    engine_->Reconnected(std::unique_ptr<StepExecutor>(std::make_unique<FakeExecutor>(nodes_)));
  }
  void ExpectServes() {
    EXPECT_EQ(Result(Submit({1, 2}, 2)).reason, FinishReason::kLength);
    EXPECT_TRUE(engine_->status().serving);
    EXPECT_TRUE(engine_->core().given_up().ok());
  }

  std::shared_ptr<FakeExecutor::Shared> nodes_ = std::make_shared<FakeExecutor::Shared>();
  EngineOptions options_;
  std::unique_ptr<VirtualEngine> engine_;
  TimePoint start_;
};

}  // namespace lamina::testing
