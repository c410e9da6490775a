// Times the steps of an engine, with more and less of the weights outside of memory.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "manager/step_executor.h"

namespace lamina {

// A decorator: orders the interval of each step (ComputeOrder::offload_interval), and notes how
// long steps that decode take, from their orders to the orders of the next one.
class StepRecorder : public StepExecutor {
 public:
  explicit StepRecorder(std::unique_ptr<StepExecutor> nodes) : nodes_(std::move(nodes)) {}

  // Steps with one interval, one after another.
  struct Series {
    int interval = 0;
    double context = 0;  // tokens of a sequence, mean over rows and steps
    std::vector<double> seconds;
  };
  // From now on, steps that decode so many rows and compute nothing else are measured: for each of
  // the intervals in turn `num_steps`, behind one that brings what the interval needs. Thread: any.
  void Measure(std::vector<int> intervals, int num_rows, int num_steps);
  // Waits for the end of that. nullopt at `latest`. Thread: any.
  std::optional<std::vector<Series>> Await(TimePoint latest);

  // The interval of steps that are not measured; nullopt: that of the engine. Thread: any.
  void SetInterval(std::optional<int> interval);

  std::vector<KvNode> kv_nodes() const override { return nodes_->kv_nodes(); }
  std::map<NodeId, NodeKv> kv() const override { return nodes_->kv(); }
  int largest_interval() const override { return nodes_->largest_interval(); }
  NodeId KvNodeOf(NodeId node) const override { return nodes_->KvNodeOf(node); }
  void Start(std::function<void(ExecutorEvent)> on_event) override {
    nodes_->Start(std::move(on_event));
  }
  void Submit(const StepPlan& plan, std::vector<NewSequence> added) override;
  void Leave(NodeId node) override { nodes_->Leave(node); }
  TimePoint Turn(TimePoint now) override { return nodes_->Turn(now); }
  std::vector<NodeStatus> nodes() override { return nodes_->nodes(); }
  std::vector<NodeStatus> standbys() override { return nodes_->standbys(); }

 private:
  const std::unique_ptr<StepExecutor> nodes_;
  Mutex mutex_;
  CondVar changed_;
  std::optional<int> interval_ GUARDED_BY(mutex_) = 0;
  int num_rows_ GUARDED_BY(mutex_) = 0;
  size_t num_steps_ GUARDED_BY(mutex_) = 0;
  std::vector<Series> series_ GUARDED_BY(mutex_);
  size_t at_ GUARDED_BY(mutex_) = 0;  // in series_; behind the last: nothing is measured
  // Steps of series_[at_] that were submitted. The first one is not measured.
  size_t submitted_ GUARDED_BY(mutex_) = 0;
  TimePoint last_ GUARDED_BY(mutex_);  // when the last of them was
};

}  // namespace lamina
