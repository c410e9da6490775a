// Attention over the wire against a memory node that a test plays, well and badly. Its "attention"
// of a row is twice its q.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "compute_node/remote_attention.h"
#include "tests/support/faulty_fabric.h"

namespace lamina::testing {

using std::chrono::seconds;

inline constexpr uint64_t kEpoch = 77;
inline constexpr WireShape kWire{.num_heads = 2,
                                 .num_kv_heads = 1,
                                 .head_dim = 8,
                                 .kv_dtype = DType::kF32,
                                 .max_rows = 8,
                                 .num_batches = 2};
inline constexpr size_t kQ = 16, kKv = 8;  // floats per row

// What is written back; none: silence.
using Answer = std::function<std::optional<std::vector<std::byte>>(const ReceivedMessage&)>;

inline std::vector<std::byte> Reply(MessageHeader header, std::span<const std::byte> payload) {
  header.kind = MessageKind::kReply;
  header = Seal(header, payload, true);
  std::vector<std::byte> reply(sizeof(header) + payload.size());
  std::memcpy(reply.data(), &header, sizeof(header));
  std::memcpy(reply.data() + sizeof(header), payload.data(), payload.size());
  return reply;
}

inline std::optional<std::vector<std::byte>> TwiceQ(const ReceivedMessage& message) {
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

class RemoteAttentionTest : public ::testing::Test {
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
    EXPECT_THAT(status.message(), ::testing::AllOf(::testing::HasSubstr("memory node m1"),
                                                   ::testing::HasSubstr(why)));
    Decode(4, {{101, 1}});
    EXPECT_TRUE(step_->failures().contains(SequenceId{101})) << "later rows on it fail at once";
    const std::vector<LostNode> lost = attention_->LostNodes();
    ASSERT_EQ(lost.size(), 1u);
    EXPECT_EQ(lost[0].node, NodeId{1});
    EXPECT_EQ(attention_->LostNodes().size(), 1u) << "said until the manager knows";
    attention_->Lose(NodeId{1}, "c1 has lost it");
    EXPECT_TRUE(attention_->LostNodes().empty());
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

}  // namespace lamina::testing
