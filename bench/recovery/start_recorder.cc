#include "bench/recovery/start_recorder.h"

#include <algorithm>
#include <utility>

namespace lamina {
namespace {

class WatchedExecutor : public StepExecutor {
 public:
  WatchedExecutor(std::unique_ptr<StepExecutor> nodes, StartRecorder& recorder)
      : nodes_(std::move(nodes)), recorder_(recorder) {}

  std::vector<KvNode> kv_nodes() const override { return nodes_->kv_nodes(); }
  std::map<NodeId, NodeKv> kv() const override { return nodes_->kv(); }
  NodeId KvNodeOf(NodeId node) const override { return nodes_->KvNodeOf(node); }
  void Start(std::function<void(ExecutorEvent)> on_event) override {
    nodes_->Start(std::move(on_event));
  }
  void Submit(const StepPlan& plan, std::vector<NewSequence> added) override {
    recorder_.Take(plan, added, Clock::now());
    nodes_->Submit(plan, std::move(added));
  }
  void Leave(NodeId node) override { nodes_->Leave(node); }
  TimePoint Turn(TimePoint now) override { return nodes_->Turn(now); }
  std::vector<NodeStatus> nodes() override { return nodes_->nodes(); }
  std::vector<NodeStatus> standbys() override { return nodes_->standbys(); }

 private:
  const std::unique_ptr<StepExecutor> nodes_;
  StartRecorder& recorder_;
};

// Parameters: as Reconnect's, which outlives the procedure.
Procedure<Reconnected> ReconnectWatched(Turns& turns, const Reconnect& reconnect,
                                        StartRecorder& recorder, KnownNodes known, TimePoint until,
                                        OnChange on_change) {
  Reconnected nodes = co_await reconnect(turns, std::move(known), until, std::move(on_change));
  LAMINA_CO_RETURN_IF_ERROR(nodes.status());
  co_return recorder.Watch(*std::move(nodes));
}

}  // namespace

// 0 stays free: it is the seed of requests that have none.
uint64_t SeedOf(size_t stream, size_t request, size_t num_streams) {
  return request * num_streams + stream + 1;
}

std::unique_ptr<StepExecutor> StartRecorder::Watch(std::unique_ptr<StepExecutor> nodes) {
  return std::make_unique<WatchedExecutor>(std::move(nodes), *this);
}

void StartRecorder::Take(const StepPlan& plan, std::span<const NewSequence> added, TimePoint now) {
  MutexLock lock(mutex_);
  for (const NewSequence& sequence : added) {
    const size_t number = sequence.sampling.seed - 1;
    SequenceStart start;
    start.stream = number % num_streams_;
    start.request = number / num_streams_;
    start.at = now;
    start.num_tokens = std::ssize(sequence.tokens);
    start.again = !last_.insert_or_assign(sequence.sequence, starts_.size()).second;
    starts_.push_back(std::move(start));
  }
  for (const Work& work : plan.work) {
    const auto found = last_.find(work.sequence);
    if (found == last_.end()) continue;
    SequenceStart& start = starts_[found->second];
    if (work.first) start.num_shared = work.first_position;
    for (const KvPart& part : work.route) {
      if (std::ranges::find(start.places, part.node, &SequenceStart::Place::node) ==
          start.places.end())
        start.places.push_back({part.node, now});
    }
  }
}

std::vector<SequenceStart> StartRecorder::TakeStarts() {
  MutexLock lock(mutex_);
  last_.clear();
  return std::exchange(starts_, {});
}

Reconnect Recorded(Reconnect reconnect, StartRecorder& recorder) {
  return [reconnect = std::move(reconnect), &recorder](Turns& turns, KnownNodes known,
                                                       TimePoint until, OnChange on_change) {
    return ReconnectWatched(turns, reconnect, recorder, std::move(known), until,
                            std::move(on_change));
  };
}

}  // namespace lamina
