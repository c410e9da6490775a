#include "memory_node/sequence_slots.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <vector>

#include "kernels/kv_store.h"

namespace lamina {
namespace sequence_slots_test {

constexpr SequenceId kA{1}, kB{2};

using Slots = std::vector<TokenSlot>;

// Prompts are made up, so that their tokens count as written.
class SequenceSlotsTest : public ::testing::Test {
 protected:
  static MemoryOrder Next() {
    static uint64_t step = 0;
    MemoryOrder order;
    order.step = StepId{++step};
    order.dummy_prefill = true;
    return order;
  }
  static void AddPrompt(MemoryOrder& order, SequenceId sequence, int64_t num_stored,
                        const Slots& slots, int64_t first_position) {
    PrefillChunk& chunk = order.prefill.emplace_back();
    chunk.sequence = sequence;
    chunk.num_stored = num_stored;
    chunk.first_position = first_position;
    chunk.slots.assign(slots.begin(), slots.end());
  }
  void Prompt(SequenceId sequence, int64_t num_stored, const Slots& slots, int64_t first_position) {
    MemoryOrder order = Next();
    AddPrompt(order, sequence, num_stored, slots, first_position);
    slots_.Apply(order);
  }
  Result<Slots> Attended(uint32_t layer, SequenceId sequence, int64_t position,
                         int64_t num_tokens) const {
    LAMINA_ASSIGN_OR_RETURN(
        const std::span<const TokenSlot> slots,
        slots_.Attended(layer, {.sequence = sequence, .position = position}, num_tokens));
    return Slots(slots.begin(), slots.end());
  }
  StatusCode CodeOf(SequenceId sequence) const {
    return Attended(0, sequence, 0, 1).status().code();
  }

  const std::unique_ptr<KvStore> cache_ =
      KvStore::Create({.num_layers = 3, .num_kv_heads = 1, .head_dim = 8}, 16).value();
  SequenceSlots slots_{*cache_,
                       {{0}, {4}, {4, true}}};  // a window in the second layer, chunks in the third
};

TEST_F(SequenceSlotsTest, ARowAttendsToTheTokensInItsWindow) {
  // Positions 2, 3 and 6, 7 of the sequence; the others are elsewhere.
  Prompt(kA, 0, {5, 3}, 2);
  Prompt(kA, 2, {8, 1}, 6);
  EXPECT_EQ(*Attended(0, kA, 8, 4), (Slots{5, 3, 8, 1}));
  EXPECT_EQ(*Attended(0, kA, 8, 2), (Slots{5, 3})) << "the first two only";
  EXPECT_EQ(*Attended(1, kA, 3, 2), (Slots{5, 3}));
  EXPECT_EQ(*Attended(1, kA, 6, 3), (Slots{3, 8}));
  EXPECT_EQ(*Attended(1, kA, 8, 4), (Slots{8, 1}));
  EXPECT_EQ(*Attended(1, kA, 10, 4), (Slots{1}));
  EXPECT_EQ(*Attended(1, kA, 11, 4), Slots{});
  // Chunks of positions 0 to 3, 4 to 7, 8 to 11.
  EXPECT_EQ(*Attended(2, kA, 3, 2), (Slots{5, 3}));
  EXPECT_EQ(*Attended(2, kA, 6, 3), Slots{8});
  EXPECT_EQ(*Attended(2, kA, 7, 4), (Slots{8, 1}));
  EXPECT_EQ(*Attended(2, kA, 8, 4), Slots{});
}

TEST_F(SequenceSlotsTest, KeepsWhatItIsToldToAndForgetsTheRest) {
  constexpr SequenceId kC{3}, kD{4};
  Prompt(kA, 0, {5, 3}, 2);
  Prompt(kA, 2, {8, 1}, 6);
  Prompt(kB, 0, {0, 2}, 0);
  Prompt(kC, 0, {4}, 0);
  const std::vector<HeldSequence> held = {{kA, 3}, {kC, 2}, {kD, 1}};
  EXPECT_EQ(slots_.Keep(held), (std::vector<SequenceId>{kC, kD}));
  EXPECT_EQ(cache_->sequences(), std::vector<SequenceId>{kA});
  EXPECT_EQ(*Attended(0, kA, 8, 3), (Slots{5, 3, 8}));
  EXPECT_EQ(*Attended(1, kA, 8, 3), (Slots{8})) << "their positions are known still";
  EXPECT_EQ(CodeOf(kB), StatusCode::kNotFound);
  EXPECT_EQ(CodeOf(kC), StatusCode::kNotFound) << "it has fewer tokens";

  SequenceSlots later(*cache_, {{0}, {4}}, slots_.TakePositions());
  const Result<std::span<const TokenSlot>> attended =
      later.Attended(1, {.sequence = kA, .position = 8}, 3);
  ASSERT_TRUE(attended.ok());
  EXPECT_EQ(Slots(attended->begin(), attended->end()), Slots{8});
}

TEST_F(SequenceSlotsTest, SaysWhatIsLeftOfSequencesFromTheirFirstTokenOn) {
  constexpr SequenceId kC{3}, kD{4}, kE{5};
  Prompt(kC, 0, {5, 3}, 0);
  Prompt(kC, 2, {8}, 2);
  Prompt(kA, 0, {0, 2}, 2);  // its first tokens are elsewhere
  Prompt(kB, 0, {4, 6}, 0);
  Prompt(kB, 2, {7}, 3);  // and one between
  Prompt(kD, 0, {9, 10}, 0);
  MemoryOrder order = Next();
  order.dummy_prefill = false;
  AddPrompt(order, kD, 2, {11}, 2);  // whose K and V never come
  AddPrompt(order, kE, 0, {12}, 0);
  slots_.Apply(order);
  const std::vector<LeftSequence> left = slots_.Left();
  ASSERT_EQ(left.size(), 2u);
  EXPECT_EQ(left[0].sequence, kC);
  EXPECT_EQ(left[0].slots, (Slots{5, 3, 8}));
  EXPECT_EQ(left[1].sequence, kD);
  EXPECT_EQ(left[1].slots, (Slots{9, 10}));

  SequenceSlots later(*cache_, {{0}, {4}}, slots_.TakePositions(), slots_.TakeScattered());
  EXPECT_EQ(later.Left().size(), 2u) << "it is known still who is scattered";
}

// The token may be ordered in one layer only when its step is given up.
TEST_F(SequenceSlotsTest, ATokenThatIsNotWrittenInEveryLayerIsNotKept) {
  MemoryOrder order = Next();
  order.dummy_prefill = false;
  AddPrompt(order, kA, 0, {5}, 0);
  slots_.Apply(order);
  const std::array<float, 8> values{};
  ASSERT_TRUE(cache_->WriteRaw(0, kA, 0, values.data(), values.data(), order.step).ok());
  EXPECT_EQ(slots_.Keep(std::vector<HeldSequence>{{kA, 1}}), std::vector<SequenceId>{kA});
  EXPECT_EQ(cache_->num_sequences(), 0);
}

TEST_F(SequenceSlotsTest, AReleaseTakesEffectBeforeTheRowsOfItsOrder) {
  Prompt(kA, 0, {5, 3}, 0);
  MemoryOrder order = Next();
  order.released.push_back(kA);
  AddPrompt(order, kA, 0, {7}, 0);
  slots_.Apply(order);
  EXPECT_EQ(*Attended(0, kA, 1, 1), Slots{7});
  EXPECT_EQ(cache_->used_tokens(), 1);
}

// Its step did not complete. The order is the same whether it came here or not.
TEST_F(SequenceSlotsTest, ATokenThatIsOrderedAgainTakesThePlaceOfTheFirst) {
  Prompt(kA, 0, {5, 3}, 2);
  for (int times = 0; times < 3; ++times) {
    MemoryOrder order = Next();
    order.decode.push_back({kA, 2, TokenSlot{8}, 6, /*again=*/times > 0});
    slots_.Apply(order);
    EXPECT_EQ(cache_->used_tokens(), 3);
    EXPECT_EQ(Attended(0, kA, 6, 3).status().code(), StatusCode::kCorrupt) << "it is to be written";
    const std::array<float, 8> kv{};
    for (const int layer : {0, 1})
      ASSERT_TRUE(cache_->Write(layer, kA, 2, kv.data(), kv.data(), order.step).ok());
    EXPECT_EQ(*Attended(0, kA, 6, 3), (Slots{5, 3, 8}));
    EXPECT_EQ(*Attended(1, kA, 6, 3), (Slots{3, 8})) << "positions 3 and 6 are in the window";
  }
  MemoryOrder repeated = Next();
  repeated.decode.push_back({kA, 2, TokenSlot{8}, 6});
  slots_.Apply(repeated);
  EXPECT_EQ(CodeOf(kA), StatusCode::kNotFound) << "only an order that says so is taken as the same";
}

TEST_F(SequenceSlotsTest, AnOrderThatContradictsATableForgetsThatSequenceOnly) {
  Prompt(kA, 0, {5, 3}, 0);
  Prompt(kB, 0, {6}, 0);
  MemoryOrder order = Next();
  AddPrompt(order, kA, 7, {8}, 7);  // there are 2 tokens, not 7
  AddPrompt(order, kB, 1, {9}, 1);
  slots_.Apply(order);
  EXPECT_EQ(CodeOf(kA), StatusCode::kNotFound);
  EXPECT_EQ(*Attended(0, kB, 2, 2), (Slots{6, 9}));
  Prompt(kB, 2, {10}, -1);
  EXPECT_EQ(CodeOf(kB), StatusCode::kNotFound) << "no token is at a position below 0";
}

TEST_F(SequenceSlotsTest, ASharedPrefixIsThereAtOnce) {
  Prompt(kA, 0, {5, 3}, 0);
  MemoryOrder order = Next();
  SharedPrefix& shared = order.shared.emplace_back();
  shared.sequence = kB;
  for (const TokenSlot slot : {5u, 3u}) shared.slots.push_back(slot);
  DecodeRow& row = order.decode.emplace_back();
  row.sequence = kB;
  row.num_stored = row.position = 2;
  row.slot = 6;
  slots_.Apply(order);
  EXPECT_EQ(*Attended(1, kB, 1, 2), (Slots{5, 3}));
  EXPECT_EQ(Attended(0, kB, 2, 3).status().code(), StatusCode::kCorrupt)
      << "K and V of the new token have not come";
}

}  // namespace sequence_slots_test
}  // namespace lamina
