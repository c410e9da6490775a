// What an attention service asks its device for ahead, and when. The device is played.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/kv_tables.h"
#include "memory_node/attention_service.h"

namespace lamina {
namespace {

constexpr uint64_t kEpoch = 9;
constexpr int kLayers = 2;
constexpr int64_t kWindow = 2;  // of the second layer
constexpr WireShape kWire{.num_heads = 2,
                          .num_kv_heads = 1,
                          .head_dim = 8,
                          .kv_dtype = DType::kF32,
                          .max_rows = 4,
                          .num_batches = 2};
constexpr size_t kKvBytes = 2 * 8 * 4;  // of a pushed row

using Slots = std::vector<TokenSlot>;

// What was asked for.
struct Asked {
  int batch = 0;
  Slots stored;
  std::vector<std::vector<Slots>> by_layer;  // [layers][rows]
  Status refused;
};

class PlayedAhead final : public AheadAttention {
 public:
  PlayedAhead(KvTables& tables, std::vector<Asked>& asked) : tables_(tables), asked_(asked) {}

  DeviceWindow window() const override { return {}; }
  Status Join(const DeviceWindow& /*peer*/) override { return OkStatus(); }
  Result<bool> Carry(Endpoint& /*compute_node*/) override { return false; }
  bool carries() const override { return false; }
  int num_layers() const override { return kLayers; }
  Result<std::span<const TokenSlot>> Claim(SequenceId sequence, int64_t num_tokens,
                                           StepId step) override {
    LAMINA_RETURN_IF_ERROR(tables_.ClaimAll(sequence, num_tokens, step));
    return tables_.Readable(0, sequence, num_tokens);
  }
  void Attend(const AheadStep& step) override {
    Asked& asked = asked_.emplace_back(Asked{step.batch, step.stored, {}, OkStatus()});
    for (const int kind : step.kind_of_layer) {
      std::vector<Slots>& rows = asked.by_layer.emplace_back();
      for (const auto& slots : step.tables[static_cast<size_t>(kind)])
        rows.emplace_back(slots.begin(), slots.end());
    }
  }
  void Refuse(const AheadStep& step, size_t num_rows, const Status& why) override {
    EXPECT_EQ(num_rows, 1u);
    asked_.push_back({step.batch, step.stored, {}, why});
  }
  void GiveUp() override {}
  bool gave_up() const override { return false; }
  int64_t attention_us() const override { return 1234; }

 private:
  KvTables& tables_;
  std::vector<Asked>& asked_;
};

class PlayedDevice final : public KvDevice, public KvCache {
 public:
  explicit PlayedDevice(std::vector<Asked>& asked) : asked_(asked) {}

  KvCache& cache() override { return *this; }
  int64_t capacity_tokens() const override { return tables_.capacity_tokens(); }
  Status SetLayersInside(int num_layers) override { return tables_.SetLayersInside(num_layers); }
  int64_t used_tokens() const override { return tables_.used_tokens(); }
  int64_t num_sequences() const override { return tables_.num_sequences(); }
  std::vector<SequenceId> sequences() const override { return tables_.sequences(); }
  int64_t NumWritten(SequenceId sequence) const override { return tables_.NumWritten(sequence); }
  Status Append(SequenceId sequence, int64_t position, std::span<const TokenSlot> slots,
                StepId step) override {
    return tables_.Append(sequence, position, slots, step);
  }
  Status AppendDummy(SequenceId sequence, int64_t position, std::span<const TokenSlot> slots,
                     StepId step) override {
    return tables_.Append(sequence, position, slots, step);
  }
  Status Share(SequenceId sequence, std::span<const TokenSlot> slots, StepId step) override {
    return tables_.Share(sequence, slots, step);
  }
  void Truncate(SequenceId sequence, int64_t num_tokens) override {
    tables_.Truncate(sequence, num_tokens);
  }
  void Release(SequenceId sequence) override { tables_.Release(sequence); }
  Status WriteRaw(int layer, SequenceId sequence, int64_t position, const void* /*k*/,
                  const void* /*v*/, StepId step) override {
    return tables_.Claim(layer, sequence, position, step).status();
  }
  Result<std::span<const TokenSlot>> Readable(int layer, SequenceId sequence,
                                              int64_t num_tokens) const override {
    return tables_.Readable(layer, sequence, num_tokens);
  }
  void Attend(const AttentionShape& /*shape*/, int /*layer*/, DType /*dtype*/,
              std::span<const KvQuery> /*rows*/) override {
    FAIL();
  }
  void AttendMore(const AttentionShape& /*shape*/, int /*layer*/, DType /*dtype*/,
                  std::span<const KvQuery> /*rows*/) override {
    FAIL();
  }
  Result<std::unique_ptr<AheadAttention>> MakeAheadAttention(const AttentionShape& /*shape*/,
                                                             const WireShape& /*wire*/) override {
    return std::unique_ptr<AheadAttention>(std::make_unique<PlayedAhead>(tables_, asked_));
  }

 private:
  KvTables tables_{kLayers, 32};
  std::vector<Asked>& asked_;
};

struct Decoding {
  uint64_t sequence;
  int64_t num_stored;
  std::optional<TokenSlot> slot;
};

class AttentionAheadTest : public ::testing::Test {
 protected:
  AttentionAheadTest()
      : service_(kWire, {0.3f, 0, {{0}, {kWindow}}}, kEpoch,
                 KvState{std::make_unique<PlayedDevice>(asked_)}) {
    service_.Use(*service_.MakeAheadAttention());
  }

  static void AddDecode(MemoryOrder& order, const Decoding& decoding) {
    DecodeRow& row = order.decode.emplace_back();
    row.sequence = SequenceId{decoding.sequence};
    row.num_stored = decoding.num_stored;
    row.position = decoding.num_stored;
    if (decoding.slot) row.slot = *decoding.slot;
  }
  static void AddPrompt(MemoryOrder& order, uint64_t sequence, const Slots& slots) {
    PrefillChunk& chunk = order.prefill.emplace_back();
    chunk.sequence = SequenceId{sequence};
    chunk.slots.assign(slots.begin(), slots.end());
  }
  void Apply(uint64_t step, uint32_t batch, MemoryOrder order) {
    order.step = StepId{step};
    order.batch = batch;
    service_.Apply(order);
  }
  void Prompt(uint64_t step, uint32_t batch, uint64_t sequence, const Slots& slots) {
    MemoryOrder order;
    AddPrompt(order, sequence, slots);
    Apply(step, batch, order);
  }
  void Decode(uint64_t step, uint32_t batch, const Decoding& decoding) {
    MemoryOrder order;
    AddDecode(order, decoding);
    Apply(step, batch, order);
  }

  // K and V of the step's first `rows` prompt tokens.
  Status Push(uint64_t step, int layer, uint32_t rows, size_t missing_bytes = 0) {
    std::vector<std::byte> area(sizeof(MessageHeader) + rows * kKvBytes - missing_bytes);
    const MessageHeader header = Seal({.kind = MessageKind::kPush,
                                       .epoch = kEpoch,
                                       .step = step,
                                       .layer = static_cast<uint32_t>(layer),
                                       .num_rows = rows},
                                      std::span(area).subspan(sizeof(MessageHeader)), true);
    std::memcpy(area.data(), &header, sizeof(header));
    EXPECT_EQ(service_.steps().TimingOf(header), OrderedSteps::Timing::kDue) << "step " << step;
    return service_.Push(*Open(area, MessageKind::kPush, true));
  }
  void PushAll(uint64_t step, uint32_t rows) {
    for (int layer = 0; layer < kLayers; ++layer) ASSERT_TRUE(Push(step, layer, rows).ok());
  }

  std::vector<Asked> asked_;
  AttentionService service_;
};

TEST_F(AttentionAheadTest, AStepIsAskedForWithItsOrderAndEachLayerWithItsWindow) {
  Prompt(1, 0, 7, {5, 3, 8});
  PushAll(1, 3);
  EXPECT_TRUE(asked_.empty());
  Decode(2, 1, {7, 3, 6});
  ASSERT_EQ(asked_.size(), 1u);
  EXPECT_TRUE(asked_[0].refused.ok());
  EXPECT_EQ(asked_[0].batch, 1);
  EXPECT_EQ(asked_[0].stored, Slots{6});
  ASSERT_EQ(asked_[0].by_layer.size(), 2u);
  EXPECT_EQ(asked_[0].by_layer[0], std::vector<Slots>{(Slots{5, 3, 8, 6})});
  EXPECT_EQ(asked_[0].by_layer[1], std::vector<Slots>{(Slots{8, 6})});
  Decode(3, 1, {7, 4, std::nullopt});  // the token goes to another node
  ASSERT_EQ(asked_.size(), 2u);
  EXPECT_EQ(asked_[1].stored, Slots{});
  EXPECT_EQ(asked_[1].by_layer[0], std::vector<Slots>{(Slots{5, 3, 8, 6})});
  const MemoryStats stats = service_.stats();
  EXPECT_EQ(stats.attention_us, 1234);
  EXPECT_EQ(stats.attention_messages, 2 * kLayers);
  EXPECT_EQ(stats.attention_rows, 2 * kLayers);
  EXPECT_EQ(stats.attended_tokens, 4 + 2 + 4 + 1);
}

TEST_F(AttentionAheadTest, RowsOfOneSequenceAttendToThoseBefore) {
  Prompt(1, 0, 7, {5});
  PushAll(1, 1);
  MemoryOrder order;
  AddDecode(order, {7, 1, 2});
  AddDecode(order, {7, 2, 4});
  Apply(2, 0, order);
  ASSERT_EQ(asked_.size(), 1u);
  EXPECT_EQ(asked_[0].stored, (Slots{2, 4}));
  EXPECT_EQ(asked_[0].by_layer[0], (std::vector<Slots>{{5, 2}, {5, 2, 4}}));
}

// Tokens count as written as soon as the device was asked; those of the last step may never come.
TEST_F(AttentionAheadTest, TokensOfASequencesLastStepAreNotLeft) {
  Prompt(1, 0, 7, {5});
  PushAll(1, 1);
  Prompt(2, 0, 8, {9, 10});
  PushAll(2, 2);
  Decode(3, 0, {7, 1, 2});
  MemoryOrder order;
  AddDecode(order, {7, 2, 4});
  AddDecode(order, {7, 3, 6});
  Apply(4, 0, order);
  ASSERT_EQ(asked_.size(), 2u);
  AttentionService next(kWire, {0.3f, 0, {{0}, {kWindow}}}, kEpoch + 1, service_.TakeKv());
  std::vector<LeftSequence> left = next.Left();
  ASSERT_EQ(left.size(), 2u);
  EXPECT_EQ(left[0].slots, (Slots{5, 2}));
  EXPECT_EQ(left[1].slots, (Slots{9, 10}));
  const std::vector<HeldSequence> held = {{SequenceId{7}, 4}};
  EXPECT_TRUE(next.Keep(held).empty()) << "who says so knows of a step that was complete";
  EXPECT_EQ(next.Left()[0].slots, (Slots{5, 2, 4, 6}));
}

TEST_F(AttentionAheadTest, AStepWaitsUntilItsPromptHasComeInAllLayers) {
  Prompt(1, 0, 7, {5, 3});
  Decode(2, 0, {7, 2, 6});
  EXPECT_TRUE(asked_.empty());
  ASSERT_TRUE(Push(1, 0, 2).ok());
  EXPECT_TRUE(asked_.empty());
  ASSERT_TRUE(Push(1, 1, 2).ok());
  ASSERT_EQ(asked_.size(), 1u);
  EXPECT_EQ(asked_[0].by_layer[0], std::vector<Slots>{(Slots{5, 3, 6})});
}

TEST_F(AttentionAheadTest, AStepDoesNotWaitForRowsThatWereRefused) {
  Prompt(1, 0, 7, {5, 3});
  Decode(2, 0, {7, 2, 6});
  ASSERT_TRUE(Push(1, 0, 2).ok());
  EXPECT_EQ(Push(1, 1, 2, /*missing_bytes=*/1).code(), StatusCode::kCorrupt);
  ASSERT_EQ(asked_.size(), 1u);
  EXPECT_EQ(asked_[0].refused.code(), StatusCode::kCorrupt);
}

TEST_F(AttentionAheadTest, APromptOfOthersHoldsNothingUpAndIsNotForgotten) {
  Prompt(1, 0, 7, {5});
  PushAll(1, 1);
  MemoryOrder order;
  AddDecode(order, {7, 1, 6});
  AddPrompt(order, 8, {10, 11});
  Apply(2, 0, order);
  EXPECT_EQ(asked_.size(), 1u);
  // The batch's next step, while messages of the one before are under way.
  Decode(3, 0, {7, 2, 12});
  EXPECT_EQ(asked_.size(), 2u);
  Decode(4, 1, {8, 2, 13});
  EXPECT_EQ(asked_.size(), 2u);
  PushAll(2, 2);
  ASSERT_EQ(asked_.size(), 3u);
  EXPECT_EQ(asked_[2].by_layer[0], std::vector<Slots>{(Slots{10, 11, 13})});
}

// Only what a completed step has attended to is shared: it is there.
TEST_F(AttentionAheadTest, WhoSharesTokensWaitsForNoPrompt) {
  Prompt(1, 0, 7, {5, 3});
  PushAll(1, 2);
  Prompt(2, 0, 9, {12, 13});
  MemoryOrder order;
  SharedPrefix& shared = order.shared.emplace_back();
  shared.sequence = SequenceId{8};
  shared.slots.push_back(5);
  shared.slots.push_back(3);
  AddDecode(order, {8, 2, 6});
  Apply(3, 1, order);
  ASSERT_EQ(asked_.size(), 1u);
  EXPECT_EQ(asked_[0].by_layer[0], std::vector<Slots>{(Slots{5, 3, 6})});
}

TEST_F(AttentionAheadTest, OrdersThatNoWindowHasRoomForAreDropped) {
  Prompt(1, 0, 7, {5});
  PushAll(1, 1);
  Decode(2, kWire.num_batches, {7, 1, 6});
  MemoryOrder order;
  for (int i = 0; i <= kWire.max_rows; ++i) AddDecode(order, {7, 1 + i, 10 + i});
  Apply(3, 0, order);
  EXPECT_TRUE(asked_.empty());
  Decode(4, 0, {7, 1, 6});
  EXPECT_EQ(asked_.size(), 1u);
}

TEST_F(AttentionAheadTest, WhatCannotComeIsRefused) {
  Decode(1, 0, {7, 2, 6});  // nobody has told of its tokens
  ASSERT_EQ(asked_.size(), 1u);
  EXPECT_EQ(asked_[0].refused.code(), StatusCode::kNotFound);
  Prompt(2, 0, 8, {5, 3});
  PushAll(2, 2);
  Decode(3, 0, {8, 7, std::nullopt});  // more tokens than there are
  ASSERT_EQ(asked_.size(), 2u);
  EXPECT_EQ(asked_[1].refused.code(), StatusCode::kCorrupt);
  Decode(4, 0, {8, 2, 9});
  ASSERT_EQ(asked_.size(), 3u);
  EXPECT_TRUE(asked_[2].refused.ok());
}

}  // namespace
}  // namespace lamina
