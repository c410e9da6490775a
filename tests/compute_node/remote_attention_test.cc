// Attention over the wire against a memory node that this test plays, well and badly. Its
// "attention" of a row is twice its q.
#include "compute_node/remote_attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <thread>

#include "tests/support/faulty_fabric.h"

namespace lamina {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;

constexpr uint64_t kEpoch = 77;
constexpr WireShape kWire{.num_heads = 2,
                          .num_kv_heads = 1,
                          .head_dim = 8,
                          .kv_dtype = DType::kF32,
                          .max_rows = 8,
                          .num_batches = 2};
constexpr size_t kQ = 16, kKv = 8;  // floats per row

// What is written back; none: silence.
using Answer = std::function<std::optional<std::vector<std::byte>>(const ReceivedMessage&)>;

std::vector<std::byte> Reply(MessageHeader header, std::span<const std::byte> payload) {
  header.kind = MessageKind::kReply;
  header = Seal(header, payload, true);
  std::vector<std::byte> reply(sizeof(header) + payload.size());
  std::memcpy(reply.data(), &header, sizeof(header));
  std::memcpy(reply.data() + sizeof(header), payload.data(), payload.size());
  return reply;
}

std::optional<std::vector<std::byte>> TwiceQ(const ReceivedMessage& message) {
  std::vector<float> out(message.header.num_rows * kQ);
  std::memcpy(out.data(), message.payload.data(), out.size() * 4);
  for (float& x : out) x *= 2;
  return Reply(message.header, std::as_bytes(std::span(out)));
}

class PlayedMemoryNode {
 public:
  PlayedMemoryNode(const std::string& address, Answer answer) : answer_(std::move(answer)) {
    thread_ = std::thread([this, address] { Run(address); });
    while (!listening_) std::this_thread::yield();
  }
  ~PlayedMemoryNode() {
    stop_ = true;
    thread_.join();
  }
  int num_pushes() const { return num_pushes_; }
  std::atomic<int> posts_per_reply{1};
  std::atomic<bool> pauses{false};  // once it is connected
  std::vector<float> pushed_k;      // of the last push; read after num_pushes() said that it came

 private:
  void Run(const std::string& address) {
    const std::unique_ptr<Fabric> fabric = *OpenFabric("loopback");
    const std::unique_ptr<Listener> listener = *fabric->Listen(address);
    const std::unique_ptr<Buffer> buffer = *fabric->Allocate(kWire.compute_window_bytes());
    std::unique_ptr<Endpoint> endpoint;
    listening_ = true;
    while (!stop_) {
      if (endpoint == nullptr) {
        Result<std::unique_ptr<Endpoint>> accepted =
            listener->Accept({kWire.memory_window_bytes(), DataHello{kEpoch, 0, ""}.Encode()});
        if (accepted.ok()) endpoint = std::move(*accepted);
      } else if (!pauses) {
        Serve(*endpoint, buffer->bytes());
      }
      std::this_thread::yield();
    }
  }

  void Serve(Endpoint& endpoint, std::span<std::byte> buffer) {
    std::array<Event, 8> events;
    const size_t count = endpoint.Poll(events);
    for (size_t i = 0; i < count; ++i) {
      if (events[i].kind != Event::Kind::kNotification) continue;
      Notification notification = *Notification::Unpack(events[i].value);
      const int batch = static_cast<int>(notification.slot);
      if (notification.kind == MessageKind::kDecode) {
        const auto reply = answer_(
            *Open(endpoint.window().subspan(kWire.decode_offset(batch), kWire.decode_area_bytes()),
                  MessageKind::kDecode, true));
        if (!reply) continue;
        std::memcpy(buffer.data(), reply->data(), reply->size());
        const WriteOp write{buffer.first(reply->size()), kWire.reply_offset(batch)};
        notification.kind = MessageKind::kReply;
        for (int post = 0; post < posts_per_reply; ++post) {
          // Written once.
          EXPECT_TRUE(
              endpoint.Post({&write, post == 0 ? size_t{1} : 0}, notification.Pack(), 0).ok());
        }
      } else {
        const auto area =
            endpoint.window().subspan(kWire.push_offset(static_cast<int>(notification.slot)));
        const auto message = *Open(area, MessageKind::kPush, true);
        pushed_k.resize(message.header.num_rows * kKv);
        std::memcpy(pushed_k.data(), message.payload.data(), pushed_k.size() * 4);
        notification.kind = MessageKind::kPushDone;
        for (int post = 0; post < posts_per_reply; ++post)
          EXPECT_TRUE(endpoint.Post({}, notification.Pack(), 0).ok());
        ++num_pushes_;
      }
    }
  }

  const Answer answer_;
  std::atomic<bool> listening_{false}, stop_{false};
  std::atomic<int> num_pushes_{0};
  std::thread thread_;
};

class RemoteAttentionTest : public testing::Test {
 protected:
  static RemoteAttentionOptions Options(Clock::duration peer_timeout = seconds(10)) {
    RemoteAttentionOptions options;
    options.epoch = kEpoch;
    options.payload_checksum = Switch::kOn;
    options.attention = {.num_heads = 2, .num_kv_heads = 1, .head_dim = 8, .scale = 0.3f};
    options.wire = kWire;
    options.num_layers = 2;
    options.prefill_cache_tokens = 32;
    options.peer_timeout = peer_timeout;
    return options;
  }

  static std::unique_ptr<Ladder> Loopback() {
    return *Ladder::Open(std::vector<std::string>{"loopback"});
  }

  // Loopback on which there is no room while full_.
  std::unique_ptr<Ladder> LoopbackThatFills() {
    std::vector<std::unique_ptr<Fabric>> fabrics;
    FaultPlan plan;
    plan.full = [this] { return full_; };
    fabrics.push_back(std::make_unique<FaultyFabric>(*OpenFabric("loopback"), plan));
    return std::make_unique<Ladder>(std::move(fabrics));
  }

  void Connect(const std::vector<MemoryNodeAddress>& peers,
               Clock::duration peer_timeout = seconds(10)) {
    auto attention = RemoteAttention::Create(Options(peer_timeout), LoopbackThatFills(), peers,
                                             device_, Deadline::After(seconds(10)));
    ASSERT_TRUE(attention.ok()) << attention.status();
    attention_ = std::move(*attention);
  }

  // One layer of a step with a decoding row per entry: (sequence, node). Steps alternate between
  // the batches.
  void Decode(uint64_t step, const std::vector<std::pair<uint64_t, uint32_t>>& rows,
              int layer = 0) {
    work_.clear();
    for (const auto& [sequence, node] : rows)
      work_.push_back({.sequence = SequenceId{sequence}, .node = NodeId{node}, .position = 5});
    q_.resize(rows.size() * kQ);
    for (size_t i = 0; i < q_.size(); ++i) q_[i] = static_cast<float>(i) + 0.5f;
    k_.assign(rows.size() * kKv, 1);
    v_.assign(rows.size() * kKv, 1);
    out_.assign(q_.size(), -1);
    step_ = &attention_->Begin({static_cast<uint32_t>(step % 2), StepId{step}, work_});
    step_->Start({layer, q_.data(), k_.data(), v_.data(), out_.data()});
    // Where there is no room nobody waits in Start, and there is some after a while.
    for (int i = 0; full_ && i < turns_without_room_; ++i) EXPECT_FALSE(step_->Finish());
    if (turns_without_room_ > 0) full_ = false;
    while (!step_->Finish()) std::this_thread::yield();
    step_->End();
  }

  // The first layer of a step with a prompt of so many rows on node 1: its attention is begun.
  AttentionValues Prompt(uint64_t step, size_t num_rows) {
    work_.clear();
    for (size_t i = 0; i < num_rows; ++i)
      work_.push_back({.sequence = SequenceId{9},
                       .node = NodeId{1},
                       .position = static_cast<int64_t>(i),
                       .prefill = true,
                       .last_chunk = true});
    q_.assign(num_rows * kQ, 0);
    v_.assign(num_rows * kKv, 1);
    k_.resize(num_rows * kKv);
    for (size_t i = 0; i < k_.size(); ++i) k_[i] = static_cast<float>(i);
    out_.assign(num_rows * kQ, -1);
    step_ = &attention_->Begin({0, StepId{step}, work_});
    return {0, q_.data(), k_.data(), v_.data(), out_.data()};
  }

  void ExpectTwiceQ(size_t row) {
    for (size_t i = row * kQ; i < (row + 1) * kQ; ++i)
      EXPECT_EQ(out_[i], 2 * q_[i]) << "row " << row;
  }

  // The only peer answers like this: it must be lost, for the reason.
  void ExpectLost(Answer answer, const std::string& why,
                  Clock::duration peer_timeout = seconds(10)) {
    PlayedMemoryNode node("bad-memory", std::move(answer));
    Connect({{NodeId{1}, "m1", "loopback=bad-memory", NodeId{1}, 0, 1}}, peer_timeout);
    Decode(3, {{100, 1}}, 1);
    ASSERT_TRUE(step_->failures().contains(SequenceId{100}));
    const Status status = step_->failures().at(SequenceId{100});
    EXPECT_EQ(status.code(), StatusCode::kPeerLost);
    EXPECT_THAT(status.message(), testing::AllOf(HasSubstr("memory node m1"), HasSubstr(why)));
    const std::vector<LostNode> lost = attention_->TakeLostNodes();
    ASSERT_EQ(lost.size(), 1u);
    EXPECT_EQ(lost[0].node, NodeId{1});
    EXPECT_TRUE(attention_->TakeLostNodes().empty()) << "said once";
    Decode(4, {{101, 1}});
    EXPECT_TRUE(step_->failures().contains(SequenceId{101})) << "later rows on it fail at once";
    attention_.reset();
  }

  WorkerTeam team_{1};
  CpuDevice device_{team_};
  bool full_ = false;           // there is no room for posts
  int turns_without_room_ = 0;  // as long as that lasts if there is none when a step begins
  std::unique_ptr<RemoteAttention> attention_;
  RemoteStep* step_ = nullptr;  // the last one
  std::vector<AttentionWork> work_;
  std::vector<float> q_, k_, v_, out_;
};

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

TEST_F(RemoteAttentionTest, ANodeWithoutRoomIsLostAfterThePeerTimeout) {
  full_ = true;
  ExpectLost(TwiceQ,
             "step 3 batch 1 layer 1: room to send q, k and v did not come from loopback "
             "bad-memory over loopback within 150 ms",
             std::chrono::milliseconds(150));
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
  EXPECT_THAT(m1.pushed_k, testing::ElementsAreArray(std::span(k_).last(2 * kKv)))
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

TEST_F(RemoteAttentionTest, ANodeThatIsSilentIsLostAfterThePeerTimeout) {
  ExpectLost([](const ReceivedMessage&) { return std::nullopt; },
             "step 3 batch 1 layer 1: the attention output did not come from loopback bad-memory "
             "over loopback within 150 ms",
             std::chrono::milliseconds(150));
}

TEST_F(RemoteAttentionTest, DuplicateAnswersAreDroppedAndCounted) {
  PlayedMemoryNode node("memory-1", TwiceQ);
  node.posts_per_reply = 2;
  Connect({{NodeId{1}, "m1", "loopback=memory-1", NodeId{1}, 0, 1}});
  constexpr int kSteps = 50;
  int64_t num_stale = 0;
  for (uint64_t step = 1; step <= kSteps; ++step) {
    Decode(step, {{100, 1}, {101, 1}});
    EXPECT_TRUE(step_->failures().empty());
    for (size_t row = 0; row < 2; ++row) ExpectTwiceQ(row);
    num_stale += step_->traffic().stale_messages;
  }
  EXPECT_GE(num_stale, kSteps - 1);  // the last may still be on its way
  EXPECT_LE(num_stale, kSteps);
  attention_.reset();
}

TEST_F(RemoteAttentionTest, AnAnswerToAnotherStepIsNotTaken) {
  ExpectLost(
      [](const ReceivedMessage& message) {
        MessageHeader header = message.header;
        header.step = 4;
        return std::optional(Reply(header, std::vector<std::byte>(kQ * 4)));
      },
      "answered step 4");
}

TEST_F(RemoteAttentionTest, ACorruptAnswerIsNotTaken) {
  ExpectLost(
      [](const ReceivedMessage& message) {
        std::vector<std::byte> reply = *TwiceQ(message);
        reply.back() ^= std::byte{1};
        return std::optional(reply);
      },
      "checksum");
}

TEST_F(RemoteAttentionTest, AnAnswerWithTooFewRowsIsNotTaken) {
  ExpectLost(
      [](const ReceivedMessage& message) {
        return std::optional(Reply(message.header, std::vector<std::byte>(8)));
      },
      "another number of rows");
}

TEST_F(RemoteAttentionTest, AnErrorOfTheNodeFailsItsRowsOnly) {
  PlayedMemoryNode m1("memory-1", TwiceQ);
  PlayedMemoryNode m2("memory-2", [](const ReceivedMessage& message) {
    MessageHeader header = message.header;
    header.status = static_cast<uint16_t>(StatusCode::kNotFound);
    const std::string text = "no such sequence here";
    return std::optional(Reply(header, std::as_bytes(std::span(text))));
  });
  Connect({{NodeId{1}, "m1", "loopback=memory-1", NodeId{1}, 0, 1},
           {NodeId{2}, "m2", "loopback=memory-2", NodeId{2}, 0, 1}});
  Decode(1, {{100, 1}, {101, 2}});
  EXPECT_EQ(step_->failures().size(), 1u);
  EXPECT_THAT(step_->failures().at(SequenceId{101}).message(),
              testing::AllOf(HasSubstr("m2"), HasSubstr("no such sequence here")));
  ExpectTwiceQ(0);
  EXPECT_TRUE(attention_->TakeLostNodes().empty()) << "the node lives";
  attention_.reset();
}

std::vector<std::byte> TwiceQBut(const ReceivedMessage& message, const FailedRows& failed) {
  std::vector<std::byte> payload(message.header.num_rows * kWire.q_row_bytes() +
                                 FailedRows::MaxBytes(8));
  const std::vector<std::byte> all = *TwiceQ(message);
  const size_t output_bytes = all.size() - sizeof(MessageHeader);
  std::memcpy(payload.data(), all.data() + sizeof(MessageHeader), output_bytes);
  payload.resize(output_bytes + failed.Write(std::span(payload).subspan(output_bytes)));
  MessageHeader header = message.header;
  header.flags |= kFailedRows;
  return Reply(header, payload);
}

TEST_F(RemoteAttentionTest, ARowThatFailedAtTheNodeFailsAlone) {
  PlayedMemoryNode m1("memory-1", [](const ReceivedMessage& message) {
    return std::optional(TwiceQBut(
        message, {{1}, Status(StatusCode::kNotFound, "sequence 101 is not stored here")}));
  });
  Connect({{NodeId{1}, "m1", "loopback=memory-1", NodeId{1}, 0, 1}});
  Decode(1, {{100, 1}, {101, 1}, {102, 1}});
  ASSERT_EQ(step_->failures().size(), 1u);
  const Status status = step_->failures().at(SequenceId{101});
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_EQ(status.message(), "memory node m1: sequence 101 is not stored here");
  ExpectTwiceQ(0);
  ExpectTwiceQ(2);
  EXPECT_TRUE(attention_->TakeLostNodes().empty());
  attention_.reset();
}

TEST_F(RemoteAttentionTest, FailedRowsThatThereAreNotAreNotTaken) {
  const auto answer = [](const ReceivedMessage& message) {
    return std::optional(
        TwiceQBut(message, {{7}, Status(StatusCode::kNotFound, "not stored here")}));
  };
  ExpectLost(answer, "failed row 7 of 1");
}

TEST_F(RemoteAttentionTest, ADeadNodeTakesOnlyItsRowsWithIt) {
  PlayedMemoryNode m1("memory-1", TwiceQ);
  auto m2 = std::make_unique<PlayedMemoryNode>("memory-2", TwiceQ);
  Connect({{NodeId{1}, "m1", "loopback=memory-1", NodeId{1}, 0, 1},
           {NodeId{2}, "m2", "loopback=memory-2", NodeId{2}, 0, 1}});
  Decode(1, {{100, 1}, {101, 2}});
  EXPECT_TRUE(step_->failures().empty());
  m2.reset();
  Decode(2, {{100, 1}, {101, 2}});
  EXPECT_EQ(step_->failures().size(), 1u);
  EXPECT_TRUE(step_->failures().contains(SequenceId{101}));
  ExpectTwiceQ(0);
  attention_.reset();
}

TEST_F(RemoteAttentionTest, ANodeThatCannotBeReachedIsNamed) {
  const auto attention = RemoteAttention::Create(
      Options(), Loopback(), {{NodeId{1}, "m1", "loopback=nobody-there", NodeId{1}, 0, 1}}, device_,
      Deadline::After(std::chrono::milliseconds(50)));
  ASSERT_FALSE(attention.ok());
  EXPECT_THAT(attention.status().message(), HasSubstr("m1"));
}

}  // namespace
}  // namespace lamina
