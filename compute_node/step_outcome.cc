#include "compute_node/step_outcome.h"

#include <algorithm>

namespace lamina {

void StepOutcome::Begin(const ComputeOrder& order, StepTrace& trace) {
  start_ = Clock::now();
  trace.BeginStep(!order.no_times);
  start_ns_ = trace.Now();
  result_ = {.epoch = order.epoch, .step = order.step, .batch = order.batch};
  counted_ = {};
  failed_.clear();
  late_.clear();
}

void StepOutcome::Fail(SequenceId sequence, FailureCause cause, Status why) {
  const auto [place, is_first] = failed_.try_emplace(sequence);
  FailedSequence& told = place->second;
  if (is_first || (cause == FailureCause::kKvLost && told.cause != cause))
    told = {sequence, std::move(why), cause};
}

void StepOutcome::Account(AttentionStep& attention, const AttentionStrategy& all,
                          int64_t stale_messages) {
  for (const auto& [sequence, why] : attention.failures())
    Fail(sequence, FailureCause::kKvLost, why);
  late_.insert(attention.late().begin(), attention.late().end());
  for (const SuspendedNode& node : attention.suspended()) {
    if (std::ranges::find(result_.suspended, node) == result_.suspended.end())
      result_.suspended.push_back(node);
  }
  for (LostNode& lost : all.LostNodes()) {
    if (std::ranges::find(result_.lost_nodes, lost.node, &LostNode::node) ==
        result_.lost_nodes.end())
      result_.lost_nodes.push_back(std::move(lost));
  }
  const AttentionTraffic now = attention.traffic(), before = std::exchange(counted_, now);
  result_.attention_wait_us += now.wait_us - before.wait_us;
  result_.bytes_to_memory += now.sent_bytes - before.sent_bytes;
  result_.bytes_from_memory += now.received_bytes - before.received_bytes;
  result_.stale_messages += now.stale_messages - before.stale_messages + stale_messages;
}

void StepOutcome::TellTimes(StepTrace& trace, const TracedWork& of, NodeId self) {
  trace.EndStep(of, start_ns_);
  const size_t before = result_.times.size();
  trace.TellTimes(result_);
  for (size_t i = before; i < result_.times.size(); ++i) {
    if (result_.times[i].node == NodeId{}) result_.times[i].node = self;
  }
}

StepResult StepOutcome::SoFar() const {
  StepResult so_far = result_;
  for (const auto& [sequence, failed] : failed_) so_far.failed.push_back(failed);
  so_far.late.assign(late_.begin(), late_.end());
  return so_far;
}

void StepOutcome::GoOnFrom(StepResult so_far) {
  result_ = std::move(so_far);
  for (FailedSequence& failed : std::exchange(result_.failed, {}))
    Fail(failed.sequence, failed.cause, std::move(failed.why));
  const std::vector<SequenceId> late = std::exchange(result_.late, {});
  late_.insert(late.begin(), late.end());
}

void StepOutcome::AddRank(const StepResult& rank) {
  for (const FailedSequence& failed : rank.failed) Fail(failed.sequence, failed.cause, failed.why);
  late_.insert(rank.late.begin(), rank.late.end());
  result_.suspended.insert(result_.suspended.end(), rank.suspended.begin(), rank.suspended.end());
  result_.lost_nodes.insert(result_.lost_nodes.end(), rank.lost_nodes.begin(),
                            rank.lost_nodes.end());
  result_.times.insert(result_.times.end(), rank.times.begin(), rank.times.end());
  result_.attention_wait_us = std::max(result_.attention_wait_us, rank.attention_wait_us);
  result_.bytes_to_memory += rank.bytes_to_memory;
  result_.bytes_from_memory += rank.bytes_from_memory;
  result_.stale_messages += rank.stale_messages;
}

void StepOutcome::Complete() {
  for (auto& [sequence, failed] : failed_) result_.failed.push_back(std::move(failed));
  result_.total_us = std::chrono::duration_cast<microseconds>(Clock::now() - start_).count();
}

}  // namespace lamina
