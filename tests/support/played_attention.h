// The attention of steps that a test plays, for tests of what runs the slices between.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "compute_node/attention_strategy.h"

namespace lamina {

// Every layer's attention is there at once; what it is does not matter. The same sequences fail in
// every step. Thread: one owner.
class PlayedAttention final : public AttentionStrategy, public AttentionStep, public StepTransfer {
 public:
  explicit PlayedAttention(Failures failures = {}) : failures_(std::move(failures)) {}

  Capabilities capabilities() const override { return {}; }
  AttentionStep& Begin(const AttentionRows& /*rows*/) override { return *this; }
  void Release(SequenceId /*sequence*/) override {}
  void Poll() override {}
  void Sleep(std::span<const int> /*fds*/, Deadline /*latest*/) override {}
  void TraceTo(StepTrace& /*trace*/) override {}
  void GiveUp() override {}
  void Lose(NodeId /*node*/, const std::string& /*why*/) override {}
  std::vector<LostNode> LostNodes() const override { return {}; }
  std::vector<PeerState> TakePeerStates() override { return {}; }
  bool suspends() const override { return false; }
  TimePoint wake_at() const override { return TimePoint::max(); }
  std::vector<DataPath> paths() const override { return {}; }

  void StartQueries(int /*layer*/, const float* /*q*/, NodeId /*taker*/) override {}
  void Start(const AttentionValues& /*values*/) override {}
  bool Finish() override { return true; }
  void End() override {}
  const Failures& failures() override { return failures_; }
  std::span<const SequenceId> late() const override { return {}; }
  std::span<const SuspendedNode> suspended() const override { return {}; }
  AttentionTraffic traffic() const override { return {}; }
  StepTransfer* transfer() override { return this; }

  void StartFor(NodeId /*taker*/, const AttentionValues& /*values*/) override {}
  std::span<const AskedNode> asked() const override { return {}; }
  void Expect(int /*layer*/, float* /*out*/, std::span<const AskedNode> /*asked*/) override {}
  bool Stored() override { return true; }
  void GoOnWithout(std::span<const SuspendedNode> /*nodes*/) override {}

 private:
  const Failures failures_;
};

}  // namespace lamina
