// Attention over the wire: what travels where, and when.
#include "compute_node/remote_attention.h"

#include <gmock/gmock.h>

#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "tests/compute_node/remote_attention_fixture.h"

namespace lamina::testing {
namespace {

TEST_F(RemoteAttentionTest, RowsGoToTheirNodeAndComeBackToTheirPlace) {
  PlayedMemoryNode m1("memory-1", TwiceQ), m2("memory-2", TwiceQ);
  Connect({{NodeId{1}, "m1", "loopback=memory-1", NodeId{1}, 0, 1},
           {NodeId{2}, "m2", "loopback=memory-2", NodeId{2}, 0, 1}});
  for (uint64_t step = 1; step <= 50; ++step) {
    Decode(step, {{100, 1}, {101, 2}, {102, 2}, {103, 1}, {104, 2}});
    EXPECT_TRUE(step_->failures().empty());
    for (size_t row = 0; row < 5; ++row) ExpectTwiceQ(row);
  }
  EXPECT_EQ(step_->traffic().sent_bytes,
            static_cast<int64_t>(2 * sizeof(MessageHeader) + 5 * kWire.decode_row_bytes()));
  EXPECT_EQ(step_->traffic().received_bytes,
            static_cast<int64_t>(2 * sizeof(MessageHeader) + 5 * kWire.q_row_bytes()));
  attention_.reset();
}

TEST_F(RemoteAttentionTest, KeysAndValuesTravelInTheirOwnDtype) {
  std::atomic<size_t> payload_bytes{0};
  std::atomic<float> last_v{0};
  PlayedMemoryNode node("memory-1", [&](const ReceivedMessage& message) {
    payload_bytes = message.payload.size();
    last_v = ToFloat(F8{std::to_integer<uint8_t>(message.payload.back())});
    return TwiceQ(message);
  });
  RemoteAttentionOptions options = Options();
  options.wire.kv_dtype = DType::kF8;
  attention_ = *RemoteAttention::Create(options, Loopback(),
                                        {{NodeId{1}, "m1", "loopback=memory-1", NodeId{1}, 0, 1}},
                                        device_, Deadline::After(seconds(10)));
  Decode(2, {{100, 1}});
  EXPECT_TRUE(step_->failures().empty());
  EXPECT_EQ(payload_bytes, kQ * 4 + 2 * kKv);
  EXPECT_EQ(last_v, 1.0f);
  ExpectTwiceQ(0);
  attention_.reset();
}

TEST_F(RemoteAttentionTest, ScalesTravelBehindTheCodesOfARow) {
  std::atomic<size_t> payload_bytes{0};
  std::atomic<int> last_code{0};
  std::atomic<float> last_scale{0};
  PlayedMemoryNode node("memory-1", [&](const ReceivedMessage& message) {
    payload_bytes = message.payload.size();
    const size_t num_heads = static_cast<size_t>(kWire.num_kv_heads);
    const std::span<const std::byte> scales = message.payload.last(num_heads * sizeof(float));
    float scale;
    std::memcpy(&scale, &scales[scales.size() - sizeof(scale)], sizeof(scale));
    last_scale = scale;
    last_code = static_cast<int8_t>(*(scales.data() - 1));
    return TwiceQ(message);
  });
  RemoteAttentionOptions options = Options();
  options.wire.kv_dtype = DType::kI8Scaled;
  attention_ = *RemoteAttention::Create(options, Loopback(),
                                        {{NodeId{1}, "m1", "loopback=memory-1", NodeId{1}, 0, 1}},
                                        device_, Deadline::After(seconds(10)));
  Decode(2, {{100, 1}});
  EXPECT_TRUE(step_->failures().empty());
  EXPECT_EQ(payload_bytes, kQ * 4 + 2 * (kKv + static_cast<size_t>(kWire.num_kv_heads) * 4));
  EXPECT_EQ(step_->traffic().sent_bytes,
            static_cast<int64_t>(sizeof(MessageHeader) + payload_bytes));
  EXPECT_EQ(last_code, 127) << "all values are 1";
  EXPECT_EQ(last_scale, 1.0f / 127);
  ExpectTwiceQ(0);
  attention_.reset();
}

TEST_F(RemoteAttentionTest, QueriesAndOutputsCanTravelInHalfTheBytes) {
  std::atomic<size_t> payload_bytes{0};
  std::atomic<float> last_v{0};
  PlayedMemoryNode node("memory-1", [&](const ReceivedMessage& message) {
    payload_bytes = message.payload.size();
    BF16 v;
    std::memcpy(&v, message.payload.data() + message.payload.size() - sizeof(v), sizeof(v));
    last_v = ToFloat(v);
    std::vector<F16> out(kQ);
    std::memcpy(out.data(), message.payload.data(), kQ * sizeof(F16));
    for (F16& x : out) x = ToF16(2 * ToFloat(x));
    return std::optional(Reply(message.header, std::as_bytes(std::span(out))));
  });
  RemoteAttentionOptions options = Options();
  options.wire.wire_dtype = DType::kF16;
  options.wire.kv_dtype = DType::kBF16;
  attention_ = *RemoteAttention::Create(options, Loopback(),
                                        {{NodeId{1}, "m1", "loopback=memory-1", NodeId{1}, 0, 1}},
                                        device_, Deadline::After(seconds(10)));
  Decode(2, {{100, 1}});
  EXPECT_TRUE(step_->failures().empty());
  EXPECT_EQ(payload_bytes, kQ * 2 + 2 * kKv * 2);
  EXPECT_EQ(last_v, 1.0f);
  ExpectTwiceQ(0);
  attention_.reset();
}

// Plays one memory node by hand, to see what is there when.
TEST_F(RemoteAttentionTest, WithOverlapQueriesLeaveBeforeKeysAndValues) {
  WireShape wire = kWire;
  wire.overlap = true;
  const std::unique_ptr<Ladder> ladder = Loopback();
  ASSERT_TRUE(ladder->Listen("127.0.0.1").ok());
  RemoteAttentionOptions options = Options();
  options.wire = wire;
  std::unique_ptr<Endpoint> node;
  std::thread accepting([&] {
    const Deadline deadline = Deadline::After(seconds(10));
    while (node == nullptr && !deadline.Passed()) {
      Result<Path> path =
          ladder->Accept({wire.memory_window_bytes(), DataHello{kEpoch, 0, ""}.Encode()});
      if (path.ok()) node = std::move(path->endpoint);
    }
  });
  attention_ = *RemoteAttention::Create(options, Loopback(),
                                        {{NodeId{1}, "m1", ladder->offers(), NodeId{1}, 0, 1}},
                                        device_, Deadline::After(seconds(10)));
  accepting.join();
  ASSERT_NE(node, nullptr);
  EXPECT_TRUE(attention_->capabilities().queries_first);
  const auto next = [&] {
    std::array<Event, 4> events;
    for (size_t count = node->Poll(events); count > 0; count = node->Poll(events)) {
      for (size_t i = 0; i < count; ++i) {
        if (events[i].kind == Event::Kind::kNotification)
          return Notification::Unpack(events[i].value);
      }
    }
    return std::optional<Notification>();
  };
  const std::vector<AttentionWork> work = {
      {.sequence = SequenceId{100}, .node = NodeId{1}, .position = 5}};
  const std::vector<float> q(kQ, 3), kv(kKv, 1);
  std::vector<float> out(kQ, 0);
  step_ = &attention_->Begin({1, StepId{7}, work});
  step_->StartQueries(0, q.data(), NodeId{});
  const std::optional<Notification> first = next();
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->kind, MessageKind::kQueries);
  EXPECT_EQ(first->slot, 1u);
  const ReceivedMessage queries =
      *Open(node->window().subspan(wire.decode_offset(1)), MessageKind::kQueries, true);
  EXPECT_EQ(queries.payload.size(), kQ * 4);
  EXPECT_FALSE(next().has_value()) << "k and v are not there yet";
  step_->Start({0, q.data(), kv.data(), kv.data(), out.data()});
  const std::optional<Notification> second = next();
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(second->kind, MessageKind::kDecode);
  EXPECT_EQ(second->number, first->number);
  const ReceivedMessage keys_values =
      *Open(node->window().subspan(wire.second_part_offset(1), wire.second_part_bytes()),
            MessageKind::kDecode, true);
  EXPECT_EQ(keys_values.payload.size(), 2 * kKv * 4);
  EXPECT_FALSE(next().has_value()) << "q is not sent twice";
  step_->End();
  attention_.reset();
}

TEST_F(RemoteAttentionTest, BatchesOverlap) {
  PlayedMemoryNode m1("memory-1", TwiceQ);
  Connect({{NodeId{1}, "m1", "loopback=memory-1", NodeId{1}, 0, 1}});
  const std::vector<AttentionWork> work = {
      {.sequence = SequenceId{100}, .node = NodeId{1}, .position = 5}};
  std::vector<float> q[2], out[2];
  RemoteStep* steps[2];
  const std::vector<float> kv(kKv, 1);
  for (size_t batch = 0; batch < 2; ++batch) {
    q[batch].assign(kQ, static_cast<float>(batch + 1));
    out[batch].assign(kQ, 0);
    steps[batch] = &attention_->Begin({static_cast<uint32_t>(batch), StepId{batch + 1}, work});
  }
  for (int layer = 0; layer < 20; ++layer) {
    for (const int batch : {0, 1})
      steps[batch]->Start({layer, q[batch].data(), kv.data(), kv.data(), out[batch].data()});
    for (const int batch : {1, 0}) {
      while (!steps[batch]->Finish()) std::this_thread::yield();
      for (size_t i = 0; i < kQ; ++i)
        EXPECT_EQ(out[batch][i], 2 * q[batch][i]) << "batch " << batch;
      out[batch].assign(kQ, 0);
    }
  }
  for (const int batch : {0, 1}) {
    steps[batch]->End();
    EXPECT_TRUE(steps[batch]->failures().empty());
  }
  attention_.reset();
}

TEST_F(RemoteAttentionTest, PrefillIsComputedHereAndItsKvPushed) {
  PlayedMemoryNode m1("memory-1", TwiceQ);
  Connect({{NodeId{1}, "m1", "loopback=memory-1", NodeId{1}, 0, 1}});
  work_.clear();
  for (int64_t i = 0; i < 3; ++i)
    work_.push_back({.sequence = SequenceId{9},
                     .node = NodeId{1},
                     .position = i,
                     .prefill = true,
                     .last_chunk = true});
  q_.assign(3 * kQ, 0);  // all scores are equal: the output is the mean of v so far
  k_ = std::vector<float>(3 * kKv, 0);
  v_.resize(3 * kKv);
  for (size_t i = 0; i < v_.size(); ++i) v_[i] = static_cast<float>(i / kKv) * 3;  // rows 0, 3, 6
  for (size_t i = 0; i < k_.size(); ++i) k_[i] = static_cast<float>(i);
  out_.assign(3 * kQ, -1);
  step_ = &attention_->Begin({0, StepId{1}, work_});
  step_->Start({0, q_.data(), k_.data(), v_.data(), out_.data()});
  while (!step_->Finish()) std::this_thread::yield();
  step_->End();
  EXPECT_TRUE(step_->failures().empty());
  EXPECT_FLOAT_EQ(out_[0], 0);
  EXPECT_FLOAT_EQ(out_[kQ], 1.5);
  EXPECT_FLOAT_EQ(out_[2 * kQ], 3);
  const Deadline deadline = Deadline::After(seconds(10));
  while (m1.num_pushes() < 1 && !deadline.Passed()) std::this_thread::yield();
  ASSERT_EQ(m1.num_pushes(), 1);
  EXPECT_EQ(m1.pushed_k, k_);
  attention_.reset();
}

TEST_F(RemoteAttentionTest, WhatFindsNoRoomLeavesInALaterTurn) {
  PlayedMemoryNode m1("memory-1", TwiceQ), m2("memory-2", TwiceQ);
  Connect({{NodeId{1}, "m1", "loopback=memory-1", NodeId{1}, 0, 1},
           {NodeId{2}, "m2", "loopback=memory-2", NodeId{2}, 0, 1}});
  turns_without_room_ = 100;
  for (uint64_t step = 1; step <= 10; ++step) {
    full_ = true;
    Decode(step, {{100, 1}, {101, 2}, {102, 1}});
    EXPECT_TRUE(step_->failures().empty());
    for (size_t row = 0; row < 3; ++row) ExpectTwiceQ(row);
  }
  attention_.reset();
}

// A prompt that fills all push slots, while the node stores nothing.
TEST_F(RemoteAttentionTest, PushesWithoutASlotLeaveInALaterTurn) {
  constexpr size_t kRows = kMaxPushRows * (kPushSlots + 1) + 2;
  PlayedMemoryNode m1("memory-1", TwiceQ);
  RemoteAttentionOptions options = Options();
  options.prefill_cache_tokens = kRows;
  attention_ = *RemoteAttention::Create(options, LoopbackThatFills(),
                                        {{NodeId{1}, "m1", "loopback=memory-1", NodeId{1}, 0, 1}},
                                        device_, Deadline::After(seconds(10)));
  m1.pauses = true;
  const AttentionValues values = Prompt(1, kRows);
  step_->Start(values);
  EXPECT_EQ(out_.back(), 1) << "the attention here does not wait for it";
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(step_->Finish()) << "k and v are still needed";
  m1.pauses = false;
  while (!step_->Finish()) std::this_thread::yield();
  step_->End();
  EXPECT_TRUE(step_->failures().empty());
  const Deadline deadline = Deadline::After(seconds(10));
  while (m1.num_pushes() < kPushSlots + 2 && !deadline.Passed()) std::this_thread::yield();
  ASSERT_EQ(m1.num_pushes(), kPushSlots + 2);
  EXPECT_THAT(m1.pushed_k, ::testing::ElementsAreArray(std::span(k_).last(2 * kKv)))
      << "the last rows are pushed last";
  attention_.reset();
}

TEST_F(RemoteAttentionTest, AStepThatIsGivenUpLeavesNoWaitBehind) {
  PlayedMemoryNode m1("memory-1", TwiceQ);
  Connect({{NodeId{1}, "m1", "loopback=memory-1", NodeId{1}, 0, 1}});
  m1.pauses = true;
  const AttentionValues values = Prompt(2, 3);
  step_->StartFor(NodeId{4}, values);
  EXPECT_FALSE(step_->Stored());
  EXPECT_LT(step_->patience_ends(), TimePoint::max());
  step_->End();
  EXPECT_EQ(step_->patience_ends(), TimePoint::max());

  work_ = {{.sequence = SequenceId{100}, .node = NodeId{1}, .position = 5}};
  step_ = &attention_->Begin({1, StepId{3}, work_});
  step_->Start(values);
  EXPECT_FALSE(step_->Finish());
  EXPECT_LT(step_->patience_ends(), TimePoint::max());
  step_->End();
  EXPECT_EQ(step_->patience_ends(), TimePoint::max());
  attention_.reset();
}

}  // namespace
}  // namespace lamina::testing
