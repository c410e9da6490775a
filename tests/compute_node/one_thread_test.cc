// A compute node and two memory nodes on one thread in virtual time: the test is their manager and
// their loop. Nothing in there may wait.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "compute_node/compute_node.h"
#include "memory_node/memory_node.h"
#include "tests/support/control_line.h"
#include "tests/support/faulty_fabric.h"
#include "tests/support/golden_prompts.h"
#include "tests/support/virtual_clock.h"

namespace lamina {
namespace one_thread_test {

using testing::GoldenPrompt;
using testing::GoldenPrompts;
using ::testing::HasSubstr;

constexpr uint64_t kEpoch = 5;
constexpr size_t kMemoryNodes = 2;
constexpr NodeId kCompute{3};
constexpr TokenSlot kSlotsOfSequence = 200;
const std::string kToken = "the right token!";

Result<std::unique_ptr<Ladder>> OpenLoopbackLadder(std::span<const std::string>) {
  return Ladder::Open(std::vector<std::string>{"loopback"});
}

template <typename Message>
Message Session() {
  Message message;
  message.epoch = kEpoch;
  message.session_token = kToken;
  message.attention = {.num_layers = 4,
                       .num_heads = 8,
                       .num_kv_heads = 4,
                       .head_dim = 32,
                       .scale = 1.0f / std::sqrt(32.0f)};
  message.limits = {.max_num_seqs = 8,
                    .max_num_batched_tokens = 64,
                    .max_model_len = kSlotsOfSequence,
                    .peer_timeout = milliseconds(1000)};
  return message;
}

class Generation;

class OneThread : public ::testing::Test {
 protected:
  void SetUp() override {
    NodeOptions options;
    options.num_threads = 1;
    options.open_ladder = [this](std::span<const std::string>) { return OpenLadder(); };
    options.open_control = to_compute_.Open();
    compute_ = *ComputeNode::Create(options);
    to_compute_.Connect();
    for (size_t i = 0; i < kMemoryNodes; ++i) {
      MemoryNodeOptions of_memory{options, int64_t{4} << 20, 0};
      of_memory.open_control = to_memory_[i].Open();
      memory_[i] = *MemoryNode::Create(of_memory);
      to_memory_[i].Connect();
    }
  }

  // Loopback on which there is no room while full_ says so.
  Result<std::unique_ptr<Ladder>> OpenLadder() {
    FaultPlan plan;
    plan.full = [this] { return full_ != nullptr && full_(); };
    std::vector<std::unique_ptr<Fabric>> fabrics;
    fabrics.push_back(std::make_unique<FaultyFabric>(*OpenFabric("loopback"), plan));
    return std::make_unique<Ladder>(std::move(fabrics));
  }

  // Every node has its turn, but for one that hangs. If none had anything to do, time goes on.
  void Round() {
    const TimePoint now = Clock::now();
    bool any = compute_->Turn(now);
    TimePoint wake = compute_->wake_at(now);
    for (const std::unique_ptr<MemoryNode>& node : memory_) {
      if (node.get() == hangs_) continue;
      any |= node->Turn(now);
      wake = std::min(wake, node->wake_at(now));
    }
    // Nodes look for knocks once in a millisecond.
    if (!any) clock_.AdvanceTo(std::min(wake, now + milliseconds(1)));
  }

  // Rounds until the node says a message of this type.
  template <typename Message>
  Message Await(ControlLine& line, MessageType type) {
    for (const Deadline deadline = Deadline::After(std::chrono::seconds(60)); !deadline.Passed();) {
      while (line.Take<WeightsProgress>(MessageType::kWeightsProgress)) {
      }
      if (std::optional<Message> message = line.Take<Message>(type)) return *std::move(message);
      Round();
    }
    ADD_FAILURE() << "nothing came within a minute";
    return {};
  }

  static ConfigureCompute ForCompute(std::vector<MemoryNodeAddress> memory) {
    auto request = Session<ConfigureCompute>();
    request.node = kCompute;
    request.model = testing::TinyStoriesDir();
    request.memory_nodes = std::move(memory);
    return request;
  }

  void Open() {
    std::vector<MemoryNodeAddress> addresses;
    for (size_t i = 0; i < kMemoryNodes; ++i) {
      const NodeId id{static_cast<uint32_t>(i + 1)};
      auto request = Session<ConfigureMemory>();
      request.node = id;
      request.overlap = overlap_;
      to_memory_[i].Send(MessageType::kConfigureMemory, request);
      const auto ready = Await<Configured>(to_memory_[i], MessageType::kConfigured);
      ASSERT_TRUE(ready.status.ok()) << ready.status;
      addresses.push_back({id, "m" + std::to_string(i), ready.offers, id, 0, 4});
    }
    ConfigureCompute request = ForCompute(addresses);
    request.limits.suspect_after = suspect_after_;
    request.overlap = overlap_;
    to_compute_.Send(MessageType::kConfigureCompute, request);
    const auto ready = Await<Configured>(to_compute_, MessageType::kConfigured);
    ASSERT_TRUE(ready.status.ok()) << ready.status;
    EXPECT_EQ(ready.paths.size(), kMemoryNodes);
  }

  void SendOrders(Generation& generation);
  void Generate(size_t num_prompts);
  StepResult StepWhileOneHangs(const std::function<void()>& meanwhile);
  StepResult Step(Generation& generation);
  PeerState NextPeerState() { return Await<PeerState>(to_compute_, MessageType::kPeerState); }
  void ExpectToGoOnAfterAHang();

  VirtualClock clock_;  // outlives all that reads the time
  std::function<bool()> full_ = nullptr;
  milliseconds suspect_after_{};
  bool overlap_ = false;
  ControlLine to_compute_;
  std::array<ControlLine, kMemoryNodes> to_memory_;
  std::unique_ptr<ComputeNode> compute_;
  std::array<std::unique_ptr<MemoryNode>, kMemoryNodes> memory_;
  const MemoryNode* hangs_ = nullptr;
};

std::vector<GoldenPrompt> FirstPrompts(size_t count) {
  std::vector<GoldenPrompt> golden = GoldenPrompts();
  golden.resize(count);
  return golden;
}

// Sequences that go on for as long as their golden continuation; every other one on each node.
class Generation {
 public:
  explicit Generation(std::vector<GoldenPrompt> golden)
      : golden_(std::move(golden)), output_(golden_.size()), ordered_(golden_.size()) {}

  // Sequence i gets no work, or again.
  void SitOut(size_t i, bool out) { sits_out_ = out ? std::optional(i) : std::nullopt; }

  bool done() const {
    for (size_t i = 0; i < golden_.size(); ++i) {
      if (IsRunning(i)) return false;
    }
    return true;
  }

  // The orders of the next step. Sequence i begins in step 2 * i + 1, so steps have both kinds of
  // rows.
  void Plan(ComputeOrder& compute, std::array<MemoryOrder, kMemoryNodes>& memory) {
    ++step_;
    compute.epoch = kEpoch;
    compute.step = StepId{step_};
    for (MemoryOrder& order : memory) {
      order.epoch = kEpoch;
      order.step = StepId{step_};
    }
    for (size_t i = 0; i < golden_.size(); ++i) {  // decode rows come first
      if (step_ > 2 * i + 1 && IsRunning(i) && sits_out_ != i)
        Decode(i, compute, memory[i % kMemoryNodes]);
    }
    for (size_t i = 0; i < golden_.size(); ++i) {
      if (step_ == 2 * i + 1) Prefill(i, compute, memory[i % kMemoryNodes]);
    }
  }

  void Take(const StepResult& result) {
    EXPECT_EQ(result.step, StepId{step_});
    EXPECT_TRUE(result.failed.empty() && result.lost_nodes.empty());
    for (const NewToken& token : result.sampled)
      output_[token.sequence.value - 1].push_back(token.chosen.token);
  }

  void ExpectGolden() const {
    for (size_t i = 0; i < golden_.size(); ++i)
      EXPECT_EQ(output_[i], golden_[i].continuation_ids) << golden_[i].prompt;
  }

 private:
  bool IsRunning(size_t i) const { return output_[i].size() < golden_[i].continuation_ids.size(); }
  static SequenceId IdOf(size_t i) { return SequenceId{i + 1}; }
  static NodeId NodeOf(size_t i) { return NodeId{static_cast<uint32_t>(i % kMemoryNodes + 1)}; }
  static TokenSlot SlotOf(size_t i, size_t position) {
    return static_cast<TokenSlot>(i / kMemoryNodes * kSlotsOfSequence + position);
  }

  void Prefill(size_t i, ComputeOrder& compute, MemoryOrder& memory) const {
    const std::vector<TokenId>& prompt = golden_[i].prompt_ids;
    const auto length = static_cast<int32_t>(prompt.size());
    compute.new_sequences.push_back({IdOf(i), {.temperature = 0}, prompt, length});
    compute.work.push_back(
        {IdOf(i), {{NodeOf(i), length, {}, {}}}, 0, prompt, /*prefill=*/true, /*sample=*/true});
    PrefillChunk& chunk = memory.prefill.emplace_back();
    chunk.sequence = IdOf(i);
    for (size_t position = 0; position < prompt.size(); ++position)
      chunk.slots.push_back(SlotOf(i, position));
  }

  void Decode(size_t i, ComputeOrder& compute, MemoryOrder& memory) {
    const size_t position = golden_[i].prompt_ids.size() + output_[i].size() - 1;
    const auto at = static_cast<int64_t>(position);
    compute.work.push_back({IdOf(i),
                            {{NodeOf(i), 1, {}, {}}},
                            at,
                            {output_[i].back()},
                            /*prefill=*/false,
                            /*sample=*/true});
    const bool again = std::exchange(ordered_[i], position) == position;
    memory.decode.push_back({IdOf(i), at, SlotOf(i, position), at, again});
  }

  const std::vector<GoldenPrompt> golden_;
  std::vector<std::vector<TokenId>> output_;
  std::vector<size_t> ordered_;  // the position of the last decode row
  std::optional<size_t> sits_out_;
  uint64_t step_ = 0;
};

// Those of its next step.
void OneThread::SendOrders(Generation& generation) {
  ComputeOrder order;
  std::array<MemoryOrder, kMemoryNodes> of_memory;
  generation.Plan(order, of_memory);
  for (size_t i = 0; i < kMemoryNodes; ++i)
    to_memory_[i].Send(MessageType::kMemoryOrder, of_memory[i]);
  to_compute_.Send(MessageType::kComputeOrder, order);
}

// The first golden prompts are continued as they should be.
void OneThread::Generate(size_t num_prompts) {
  Generation generation(FirstPrompts(num_prompts));
  while (!generation.done() && !HasFailure()) {
    SendOrders(generation);
    generation.Take(Await<StepResult>(to_compute_, MessageType::kStepResult));
  }
  generation.ExpectGolden();
}

// The result of a step with a decode row on each memory node, of which the second hangs. Calls
// `meanwhile` when nothing is missing any more but what that one does not answer.
StepResult OneThread::StepWhileOneHangs(const std::function<void()>& meanwhile) {
  Generation generation(FirstPrompts(2));
  for (int i = 0; i < 4; ++i) {  // both prompts have been computed then
    SendOrders(generation);
    generation.Take(Await<StepResult>(to_compute_, MessageType::kStepResult));
  }
  hangs_ = memory_[1].get();
  SendOrders(generation);
  for (int i = 0; i < 20; ++i) Round();
  EXPECT_FALSE(to_compute_.Take<StepResult>(MessageType::kStepResult)) << "it is waited for";
  meanwhile();
  return Await<StepResult>(to_compute_, MessageType::kStepResult);
}

// The next step's result, if nothing else is told before.
StepResult OneThread::Step(Generation& generation) {
  SendOrders(generation);
  return Await<StepResult>(to_compute_, MessageType::kStepResult);
}

TEST_F(OneThread, AGoldenContinuation) {
  Open();
  Generate(5);
}

// Of five attempts to send something one finds room.
TEST_F(OneThread, AGoldenContinuationOverPathsThatAreFullMostOfTheTime) {
  int num_attempts = 0;
  Open();
  full_ = [&] { return ++num_attempts % 5 != 0; };
  Generate(3);
  EXPECT_GT(num_attempts, 500);
}

TEST_F(OneThread, AnOrderThatIsRefusedIsAnswered) {
  Open();
  ComputeOrder order;
  order.epoch = kEpoch;
  order.step = StepId{1};
  order.batch = 7;  // which there is not
  order.new_sequences.push_back({SequenceId{1}, {.temperature = 0}, {1, 2}, 2});
  order.work.push_back({SequenceId{1}, {{NodeId{1}, 2, {}, {}}}, 0, {1, 2}, true, true});
  to_compute_.Send(MessageType::kComputeOrder, order);
  const auto result = Await<StepResult>(to_compute_, MessageType::kStepResult);
  EXPECT_EQ(result.step, StepId{1});
  EXPECT_EQ(result.batch, 7u);
  ASSERT_EQ(result.failed.size(), 1u);
  EXPECT_EQ(result.failed[0].sequence, SequenceId{1});
  EXPECT_EQ(result.failed[0].why.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(result.failed[0].cause, FailureCause::kKvLost);
}

// Of two sequences one has its token, and the other's KV is lost.
void ExpectTheSecondLost(const StepResult& result, const std::string& why) {
  ASSERT_EQ(result.sampled.size(), 1u);
  EXPECT_EQ(result.sampled[0].sequence, SequenceId{1});
  ASSERT_EQ(result.failed.size(), 1u);
  EXPECT_EQ(result.failed[0].sequence, SequenceId{2});
  EXPECT_EQ(result.failed[0].why.code(), StatusCode::kPeerLost);
  EXPECT_THAT(result.failed[0].why.message(), HasSubstr(why));
  EXPECT_EQ(result.failed[0].cause, FailureCause::kKvLost);
}

TEST_F(OneThread, AMemoryNodeThatHangsIsWaitedForUntilThePeerTimeout) {
  Open();
  TimePoint since{};
  const StepResult result = StepWhileOneHangs([&] { since = Clock::now(); });
  EXPECT_GT(Clock::now() - since, milliseconds(900));
  ExpectTheSecondLost(result, "m1 is lost: step 5");
  ASSERT_EQ(result.lost_nodes.size(), 1u);
  EXPECT_EQ(result.lost_nodes[0].node, NodeId{2});
}

void OneThread::ExpectToGoOnAfterAHang() {
  Generation generation(FirstPrompts(2));
  for (int i = 0; i < 6; ++i) generation.Take(Step(generation));
  hangs_ = memory_[1].get();
  const TimePoint since = Clock::now();
  SendOrders(generation);
  const PeerState late = NextPeerState();
  EXPECT_EQ(late.state, PeerState::State::kSuspended);
  EXPECT_EQ(late.node, NodeId{2});
  EXPECT_THAT(late.message, HasSubstr("m1: step 7 batch 0 layer 0: the attention output"));
  const auto result = Await<StepResult>(to_compute_, MessageType::kStepResult);
  EXPECT_GE(Clock::now() - since, milliseconds(200));
  EXPECT_LE(Clock::now() - since, milliseconds(220));
  ASSERT_EQ(result.sampled.size(), 1u);
  EXPECT_EQ(result.sampled[0].sequence, SequenceId{1});
  generation.Take(result);

  const TimePoint suspended = Clock::now();
  generation.Take(Step(generation));  // was planned before it was known
  generation.SitOut(1, true);
  generation.Take(Step(generation));
  EXPECT_LT(Clock::now() - suspended, milliseconds(20)) << "nobody waits once more";

  hangs_ = nullptr;
  const PeerState back = NextPeerState();
  EXPECT_EQ(back.state, PeerState::State::kResumed);
  EXPECT_EQ(back.node, NodeId{2});
  generation.SitOut(1, false);
  while (!generation.done() && !HasFailure()) generation.Take(Step(generation));
  generation.ExpectGolden();
}

TEST_F(OneThread, AMemoryNodeThatWasLateGoesOnWhereItWas) {
  suspect_after_ = milliseconds(200);
  Open();
  ExpectToGoOnAfterAHang();
}

TEST_F(OneThread, AlsoWhereMessagesComeInTwoParts) {
  suspect_after_ = milliseconds(200);
  overlap_ = true;
  Open();
  ExpectToGoOnAfterAHang();
}

// No step is under way when its time is over.
TEST_F(OneThread, ASuspendedMemoryNodeIsLostAfterThePeerTimeout) {
  suspect_after_ = milliseconds(200);
  Open();
  Generation generation(FirstPrompts(2));
  for (int i = 0; i < 6; ++i) generation.Take(Step(generation));
  hangs_ = memory_[1].get();
  const TimePoint since = Clock::now();
  SendOrders(generation);
  EXPECT_EQ(NextPeerState().state, PeerState::State::kSuspended);
  generation.Take(Await<StepResult>(to_compute_, MessageType::kStepResult));
  const PeerState lost = NextPeerState();
  EXPECT_EQ(lost.state, PeerState::State::kLost);
  EXPECT_THAT(lost.message, HasSubstr("within 200 ms, nor within 1000 ms"));
  EXPECT_GE(Clock::now() - since, milliseconds(1000));
  EXPECT_LE(Clock::now() - since, milliseconds(1020));
  generation.SitOut(1, true);
  generation.Take(Step(generation));  // which names no lost node: it was told
}

// The compute node forgets what it has of a prompt that cannot be stored.
TEST_F(OneThread, APromptForASuspendedMemoryNodeFails) {
  suspect_after_ = milliseconds(200);
  Open();
  Generation generation(FirstPrompts(4));
  for (int i = 0; i < 6; ++i) generation.Take(Step(generation));
  hangs_ = memory_[1].get();
  SendOrders(generation);  // sequence 4 begins there
  EXPECT_EQ(NextPeerState().state, PeerState::State::kSuspended);
  const auto result = Await<StepResult>(to_compute_, MessageType::kStepResult);
  EXPECT_EQ(result.sampled.size(), 2u);
  ASSERT_EQ(result.failed.size(), 1u);
  EXPECT_EQ(result.failed[0].sequence, SequenceId{4});
  EXPECT_EQ(result.failed[0].why.code(), StatusCode::kTimeout);
  EXPECT_EQ(result.failed[0].cause, FailureCause::kKvLost);
}

// It would never come further otherwise.
TEST_F(OneThread, AMemoryNodeThatIsSlowIsGrantedMoreTimeTheNextTime) {
  suspect_after_ = milliseconds(200);
  Open();
  Generation generation(FirstPrompts(2));
  for (int i = 0; i < 6; ++i) generation.Take(Step(generation));
  const auto hang = [&](const auto& meanwhile) {
    hangs_ = memory_[1].get();
    SendOrders(generation);
    const TimePoint since = Clock::now();
    meanwhile();
    while (Clock::now() < since + milliseconds(300)) Round();
    hangs_ = nullptr;
  };
  hang([&] {
    EXPECT_EQ(NextPeerState().state, PeerState::State::kSuspended);
    generation.Take(Await<StepResult>(to_compute_, MessageType::kStepResult));
  });
  EXPECT_EQ(NextPeerState().state, PeerState::State::kResumed);
  hang([] {});
  const auto result = Await<StepResult>(to_compute_, MessageType::kStepResult);
  EXPECT_EQ(result.sampled.size(), 2u) << "both";
  generation.Take(result);
}

TEST_F(OneThread, AMemoryNodeThatTheManagerHasLostIsNotWaitedFor) {
  Open();
  TimePoint since{};
  const StepResult result = StepWhileOneHangs([&] {
    since = Clock::now();
    for (int times = 0; times < 2; ++times)
      to_compute_.Send(MessageType::kLosePeer, LosePeer{kEpoch, NodeId{2}, "no heartbeat"});
  });
  EXPECT_LT(Clock::now() - since, milliseconds(50)) << "it would have waited for a second";
  ExpectTheSecondLost(result, "m1 is lost: the manager says: no heartbeat");
  EXPECT_TRUE(result.lost_nodes.empty()) << "the manager knows";
}

TEST_F(OneThread, OnlyItsOwnManagerCanMakeANodeLoseAMemoryNode) {
  constexpr uint64_t kStranger = ControlLine::kManager + 1;
  Open();
  to_compute_.Connect(kStranger);
  for (const uint32_t node : {1u, 2u})
    to_compute_.Send(MessageType::kLosePeer, LosePeer{kEpoch, NodeId{node}, "a lie"}, kStranger);
  for (const LosePeer& nothing : {LosePeer{kEpoch - 1, NodeId{1}, "of an earlier session"},
                                  LosePeer{kEpoch, NodeId{9}, "there is no such node"},
                                  LosePeer{kEpoch, kCompute, "not a memory node"}})
    to_compute_.Send(MessageType::kLosePeer, nothing);
  Generate(2);
}

TEST_F(OneThread, AMemoryNodeThatDoesNotAnswerKeepsNobodyWaiting) {
  const std::unique_ptr<Ladder> silent = *OpenLoopbackLadder({});
  ASSERT_TRUE(silent->Listen("nowhere").ok());
  const std::vector<MemoryNodeAddress> addresses = {
      {NodeId{1}, "silent", silent->offers(), NodeId{1}, 0, 4}};
  to_compute_.Send(MessageType::kConfigureCompute, ForCompute(addresses));
  for (int i = 0; i < 100; ++i) Round();
  to_compute_.Send(MessageType::kConfigureCompute, ForCompute(addresses));
  const auto other = Await<Configured>(to_compute_, MessageType::kConfigured);
  EXPECT_EQ(other.status.code(), StatusCode::kTryAgain) << "it is answered meanwhile";

  const auto refused = Await<Configured>(to_compute_, MessageType::kConfigured);
  EXPECT_EQ(refused.status.code(), StatusCode::kPeerLost);
  EXPECT_THAT(refused.status.message(), HasSubstr("silent"));
  Open();  // and can go on
}

TEST_F(OneThread, AManagerThatGoesWhileNodesConnectLeavesThemFree) {
  const std::unique_ptr<Ladder> silent = *OpenLoopbackLadder({});
  ASSERT_TRUE(silent->Listen("nowhere").ok());
  to_compute_.Send(MessageType::kConfigureCompute,
                   ForCompute({{NodeId{1}, "silent", silent->offers(), NodeId{1}, 0, 4}}));
  for (int i = 0; i < 100; ++i) Round();
  to_compute_.Break();
  Round();
  const TimePoint start = Clock::now();
  Open();
  EXPECT_LT(SecondsSince(start), 5) << "it would have waited for 20 s";
}

}  // namespace one_thread_test
}  // namespace lamina
