#include "memory_node/ordered_steps.h"

#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <vector>

namespace lamina {
namespace ordered_steps_test {

constexpr uint64_t kEpoch = 9;
constexpr SequenceId kA{1}, kB{2};

using Timing = OrderedSteps::Timing;

MemoryOrder OrderOf(uint64_t step, uint32_t batch) {
  MemoryOrder order;
  order.step = StepId{step};
  order.batch = batch;
  return order;
}

void AddDecode(MemoryOrder& order, SequenceId sequence, int64_t num_stored,
               std::optional<TokenSlot> slot = std::nullopt) {
  DecodeRow& row = order.decode.emplace_back();
  row.sequence = sequence;
  row.num_stored = num_stored;
  row.position = 10 + num_stored;
  if (slot) row.slot = *slot;
}

void AddPrompt(MemoryOrder& order, SequenceId sequence, int64_t num_stored, size_t num_tokens) {
  PrefillChunk& chunk = order.prefill.emplace_back();
  chunk.sequence = sequence;
  chunk.num_stored = num_stored;
  chunk.first_position = 20 + num_stored;
  chunk.slots.resize(num_tokens);
}

MessageHeader Message(MessageKind kind, uint64_t step, uint32_t num_rows, uint32_t first_row = 0) {
  return {
      .kind = kind, .epoch = kEpoch, .step = step, .first_row = first_row, .num_rows = num_rows};
}

class OrderedStepsTest : public ::testing::Test {
 protected:
  void Decode(uint64_t step, uint32_t batch) {
    MemoryOrder order = OrderOf(step, batch);
    AddDecode(order, kA, 3);
    steps_.Add(order);
  }
  void Prompt(uint64_t step, uint32_t batch, size_t num_tokens) {
    MemoryOrder order = OrderOf(step, batch);
    AddPrompt(order, kA, 0, num_tokens);
    steps_.Add(order);
  }
  Timing TimingOf(uint64_t step) const {
    return steps_.TimingOf(Message(MessageKind::kDecode, step, 1));
  }
  StatusCode CodeOf(const MessageHeader& header) const {
    return steps_.RowsOf(header).status().code();
  }
  // Whether time that passes now counts as a bubble: a step with decode rows is under way.
  bool IsUnderWay() {
    times_.BeginWork();
    times_.Take();
    times_.EndWork();
    const int64_t end = NowNs() + 1000;
    while (NowNs() < end) continue;
    times_.BeginWork();
    const bool under_way = times_.Take().bubble_ns > 0;
    times_.EndWork();
    return under_way;
  }

  ServiceTimes times_;
  OrderedSteps steps_{kEpoch, times_};
};

TEST_F(OrderedStepsTest, MessagesAreEarlyUntilTheirOrderIsHere) {
  EXPECT_EQ(steps_.newest(), StepId{});
  EXPECT_EQ(TimingOf(5), Timing::kEarly);
  Decode(5, 0);
  EXPECT_EQ(steps_.newest(), StepId{5});
  EXPECT_EQ(TimingOf(5), Timing::kDue);
  EXPECT_EQ(TimingOf(6), Timing::kEarly);
}

TEST_F(OrderedStepsTest, MessagesAreStaleWithoutAnOrderOrInAnotherEpoch) {
  Decode(5, 0);
  EXPECT_EQ(TimingOf(3), Timing::kStale) << "never ordered here";
  MessageHeader header = Message(MessageKind::kDecode, 5, 1);
  header.epoch = kEpoch + 1;
  EXPECT_EQ(steps_.TimingOf(header), Timing::kStale);
  header.step = 6;
  EXPECT_EQ(steps_.TimingOf(header), Timing::kStale) << "its order will not come";
}

TEST_F(OrderedStepsTest, AnOrderWithoutRowsCountsAsTheNewest) {
  steps_.Add(OrderOf(4, 0));
  EXPECT_EQ(steps_.newest(), StepId{4});
  EXPECT_EQ(TimingOf(4), Timing::kStale);
  EXPECT_EQ(steps_.Find(StepId{4}), nullptr);
}

TEST_F(OrderedStepsTest, AStepEndsTheEarlierOnesOfItsBatch) {
  Decode(1, 0);
  Decode(2, 1);
  Decode(3, 0);
  EXPECT_EQ(TimingOf(1), Timing::kDue) << "the order alone ends nothing";
  steps_.ForgetBefore(StepId{3});
  EXPECT_EQ(TimingOf(1), Timing::kStale);
  EXPECT_EQ(TimingOf(2), Timing::kDue) << "of another batch";
  EXPECT_EQ(TimingOf(3), Timing::kDue);
  steps_.ForgetBefore(StepId{7});
  EXPECT_EQ(TimingOf(2), Timing::kDue) << "there is no step 7";
}

TEST_F(OrderedStepsTest, RowsAreThoseOfTheOrder) {
  MemoryOrder order = OrderOf(2, 0);
  AddDecode(order, kA, 7, 4);
  AddDecode(order, kA, 8, 5);  // behind a shared prefix
  AddDecode(order, kB, 3);
  AddPrompt(order, kB, 4, 2);
  steps_.Add(order);

  const auto decode = steps_.RowsOf(Message(MessageKind::kDecode, 2, 3));
  ASSERT_TRUE(decode.ok()) << decode.status();
  ASSERT_EQ(decode->size(), 3u);
  const OrderedRow& second = (*decode)[1];
  EXPECT_EQ(second.sequence, kA);
  EXPECT_EQ(second.num_stored, 8);
  EXPECT_EQ(second.num_before, 7) << "the row before is new in the same step";
  EXPECT_EQ(second.position, 18);
  EXPECT_TRUE(second.stores);
  EXPECT_EQ((*decode)[2].num_before, 3);
  EXPECT_FALSE((*decode)[2].stores);
  EXPECT_TRUE(steps_.RowsOf(Message(MessageKind::kQueries, 2, 3)).ok());

  const auto pushed = steps_.RowsOf(Message(MessageKind::kPush, 2, 1, 1));
  ASSERT_TRUE(pushed.ok()) << pushed.status();
  ASSERT_EQ(pushed->size(), 1u);
  EXPECT_EQ(pushed->front().num_stored, 5);
  EXPECT_EQ(pushed->front().num_before, 4);
  EXPECT_EQ(pushed->front().position, 25);
  EXPECT_TRUE(pushed->front().stores);
}

TEST_F(OrderedStepsTest, OtherRowsThanTheOrderHasAreCorrupt) {
  MemoryOrder order = OrderOf(2, 0);
  AddDecode(order, kA, 7);
  AddDecode(order, kB, 3);
  AddPrompt(order, SequenceId{3}, 0, 4);
  steps_.Add(order);
  EXPECT_EQ(CodeOf(Message(MessageKind::kDecode, 3, 2)), StatusCode::kNotFound);
  EXPECT_EQ(CodeOf(Message(MessageKind::kDecode, 2, 1)), StatusCode::kCorrupt) << "only a part";
  EXPECT_EQ(CodeOf(Message(MessageKind::kDecode, 2, 1, 1)), StatusCode::kCorrupt);
  EXPECT_EQ(CodeOf(Message(MessageKind::kDecode, 2, 3)), StatusCode::kCorrupt);
  EXPECT_EQ(CodeOf(Message(MessageKind::kPush, 2, 4)), StatusCode::kOk);
  EXPECT_EQ(CodeOf(Message(MessageKind::kPush, 2, 2, 3)), StatusCode::kCorrupt);
  EXPECT_EQ(CodeOf(Message(MessageKind::kPush, 2, 0, 5)), StatusCode::kCorrupt);
  constexpr uint32_t kMost = std::numeric_limits<uint32_t>::max();
  EXPECT_EQ(CodeOf(Message(MessageKind::kPush, 2, kMost, 2)), StatusCode::kCorrupt)
      << "the sum of the two is 1 in 32 bits";
}

TEST_F(OrderedStepsTest, PromptsThatAreMadeUpHaveNoRows) {
  MemoryOrder order = OrderOf(1, 0);
  order.dummy_prefill = true;
  AddPrompt(order, kA, 0, 3);
  steps_.Add(order);
  EXPECT_EQ(steps_.Find(StepId{1}), nullptr);
}

TEST_F(OrderedStepsTest, TimesCountAStepFromItsOrderToItsLastAnswer) {
  Prompt(1, 0, 2);
  EXPECT_FALSE(IsUnderWay()) << "it has no decode rows";
  Decode(2, 0);
  EXPECT_TRUE(IsUnderWay());
  steps_.FinishDecode(StepId{2});
  EXPECT_FALSE(IsUnderWay());
  steps_.FinishDecode(StepId{2});  // the message is answered again
  Decode(3, 0);
  EXPECT_TRUE(IsUnderWay());
  steps_.FinishDecode(StepId{3});
  EXPECT_FALSE(IsUnderWay());
}

TEST_F(OrderedStepsTest, TimesDoNotCountAStepThatWasGivenUpOrOrderedTwice) {
  Decode(1, 0);
  Decode(2, 0);
  steps_.ForgetBefore(StepId{2});
  steps_.FinishDecode(StepId{2});
  EXPECT_FALSE(IsUnderWay()) << "step 1 was forgotten";
  Decode(3, 0);
  Decode(3, 0);
  steps_.FinishDecode(StepId{3});
  EXPECT_FALSE(IsUnderWay()) << "step 3 was ordered twice";
  Decode(4, 0);
  steps_.Add(OrderOf(4, 0));
  EXPECT_FALSE(IsUnderWay()) << "step 4 was ordered again without rows";
}

TEST_F(OrderedStepsTest, StepsAreKeptWhilePushesAreAwaited) {
  constexpr int kLayers = 2;
  steps_.AwaitPushes(kLayers);
  Prompt(1, 0, 3);
  Decode(2, 0);
  EXPECT_FALSE(IsUnderWay()) << "decode messages do not come to this host";
  EXPECT_TRUE(steps_.AllPushedBefore(StepId{1}));
  EXPECT_FALSE(steps_.AllPushedBefore(StepId{2}));
  steps_.ForgetBefore(StepId{2});
  EXPECT_EQ(TimingOf(1), Timing::kDue);
  steps_.CountPushed(StepId{1}, 3);
  EXPECT_FALSE(steps_.AllPushedBefore(StepId{2})) << "one of two layers";
  steps_.CountPushed(StepId{1}, 2);
  steps_.CountPushed(StepId{1}, 1);
  EXPECT_TRUE(steps_.AllPushedBefore(StepId{2}));
  steps_.ForgetBefore(StepId{2});
  EXPECT_EQ(TimingOf(1), Timing::kStale);
}

}  // namespace ordered_steps_test
}  // namespace lamina
