// What a memory node keeps of a session when its manager's connection ends, and for whom.
#include <gtest/gtest.h>
#include <poll.h>

#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "base/inbox.h"
#include "memory_node/memory_node.h"
#include "transport/control_channel.h"
#include "wire/codec.h"

namespace lamina {
namespace kept_kv_test {

using std::chrono::seconds;

constexpr SequenceId kA{1}, kB{2}, kC{3};

class KeptKvTest : public ::testing::Test {
 protected:
  KeptKvTest() {
    MemoryNodeOptions options;
    options.name = "memory";
    options.memory_bytes = int64_t{1} << 20;
    options.num_threads = 1;
    node_ = *MemoryNode::Create(options);
    thread_ = std::thread([this] { node_->Run(); });
    Connect();
  }
  ~KeptKvTest() override {
    node_->Stop();
    thread_.join();
  }

  // As a manager, whose connection before this ends.
  void Connect() {
    if (manager_ != nullptr) manager_->Close(Deadline::After(seconds(10)));
    manager_ =
        *ConnectControl(node_->address(), {.hello = "manager"}, Deadline::After(seconds(10)));
    manager_->Start({.on_frame = [this](ControlFrame frame) { answers_.Push(std::move(frame)); },
                     .on_lost = [](const Status&) {}});
  }

  static ConfigureMemory Request(uint64_t epoch) {
    ConfigureMemory request;
    request.epoch = epoch;
    request.fabrics = {TransportKind::kTcp};
    request.session_token = "the right token!";
    AttentionSpec& spec = request.attention;
    spec.num_layers = 1;
    spec.num_heads = 2;
    spec.num_kv_heads = 1;
    spec.head_dim = 8;
    request.limits.max_num_seqs = 4;
    request.keep_for = seconds(60);
    return request;
  }

  template <typename Answer>
  Answer Ask(MessageType type, const std::string& request) {
    EXPECT_TRUE(manager_->Send(FrameType(type), request).ok());
    pollfd entry{answers_.fd(), POLLIN, 0};
    poll(&entry, 1, 60'000);
    return Decode<Answer>(answers_.TryPop().value().payload).value();
  }
  // The node may not have noticed yet that the connection before this has ended.
  Configured Configure(const ConfigureMemory& request) {
    while (true) {
      Configured answer = Ask<Configured>(MessageType::kConfigureMemory, Encode(request));
      if (answer.status.code() != StatusCode::kTryAgain) return answer;
    }
  }
  MemoryStats Stats(uint64_t epoch) {
    return Ask<MemoryStats>(MessageType::kStatsRequest, Encode(StatsRequest{epoch}));
  }

  // A session with two tokens of kA and three of kB. Returns the id of its KV.
  uint64_t FirstSession(const ConfigureMemory& request) {
    const Configured opened = Configure(request);
    EXPECT_TRUE(opened.status.ok()) << opened.status;
    MemoryOrder order;
    order.epoch = request.epoch;
    order.step = StepId{1};
    order.dummy_prefill = true;
    order.prefill.resize(2);
    order.prefill[0] = {.sequence = kA, .num_stored = 0, .slots = {5, 7}, .first_position = 0};
    order.prefill[1] = {.sequence = kB, .num_stored = 0, .slots = {1, 2, 3}, .first_position = 0};
    EXPECT_TRUE(manager_->Send(FrameType(MessageType::kMemoryOrder), Encode(order)).ok());
    EXPECT_EQ(Stats(request.epoch).used_tokens, 5);
    return opened.kv_id;
  }

  Inbox<ControlFrame> answers_;
  std::unique_ptr<MemoryNode> node_;
  std::thread thread_;
  std::unique_ptr<ControlConnection> manager_;
};

TEST_F(KeptKvTest, AManagerThatComesBackFindsWhatItAsksFor) {
  const uint64_t id = FirstSession(Request(1));
  EXPECT_NE(id, 0u);
  Connect();
  ConfigureMemory free = Request(2);
  free.prepare_only = true;
  EXPECT_TRUE(Configure(free).status.ok());
  ConfigureMemory request = Request(2);
  request.kv_id = id;
  request.held = {{kB, 2}, {kC, 1}};
  const Configured again = Configure(request);
  ASSERT_TRUE(again.status.ok()) << again.status;
  EXPECT_EQ(again.kv_id, id);
  EXPECT_EQ(again.missing, std::vector<SequenceId>{kC});
  const MemoryStats stats = Stats(2);
  EXPECT_EQ(stats.num_sequences, 1);
  EXPECT_EQ(stats.used_tokens, 2);
}

TEST_F(KeptKvTest, AnotherManagersSessionBeginsEmptyAndTheKvIsGone) {
  const uint64_t id = FirstSession(Request(1));
  Connect();
  const Configured other = Configure(Request(2));
  EXPECT_NE(other.kv_id, id);
  EXPECT_EQ(Stats(2).used_tokens, 0);
  Connect();
  ConfigureMemory request = Request(3);
  request.kv_id = id;
  request.held = {{kA, 2}};
  const Configured late = Configure(request);
  EXPECT_TRUE(late.status.ok()) << late.status;
  EXPECT_NE(late.kv_id, id);
  EXPECT_EQ(late.missing, std::vector<SequenceId>{kA});
  EXPECT_EQ(Stats(3).used_tokens, 0);
}

TEST_F(KeptKvTest, KvOfAnotherModelIsNotTaken) {
  ConfigureMemory request = Request(2);
  request.kv_id = FirstSession(Request(1));
  request.attention.num_layers = 2;
  Connect();
  const Configured other = Configure(request);
  EXPECT_TRUE(other.status.ok()) << other.status;
  EXPECT_NE(other.kv_id, request.kv_id);
}

TEST_F(KeptKvTest, ItIsDroppedWhenItsTimeIsOver) {
  ConfigureMemory brief = Request(1);
  brief.keep_for = milliseconds(1);
  ConfigureMemory request = Request(2);
  request.kv_id = FirstSession(brief);
  Connect();
  ConfigureMemory free = Request(2);
  free.prepare_only = true;
  ASSERT_TRUE(Configure(free).status.ok()) << "its session is over";
  const Deadline over = Deadline::After(milliseconds(20));
  while (!over.Passed()) Configure(free);
  EXPECT_NE(Configure(request).kv_id, request.kv_id);
}

// The next manager's request, which wants to hear what is left.
ConfigureMemory Successor(ConfigureMemory request) {
  request.manager_id = 12;
  request.takes_over = true;
  return request;
}

ConfigureMemory By(uint64_t manager, ConfigureMemory request) {
  request.manager_id = manager;
  return request;
}

TEST_F(KeptKvTest, TheNextManagerHearsWhatIsLeftAndTheNodeForgetsIt) {
  const uint64_t id = FirstSession(By(11, Request(1)));
  Connect();
  const Configured next = Configure(Successor(Request(2)));
  ASSERT_TRUE(next.status.ok()) << next.status;
  EXPECT_NE(next.kv_id, id) << "no sequence of this manager's is in it";
  EXPECT_EQ(next.left.manager, 11u);
  ASSERT_EQ(next.left.sequences.size(), 2u);
  EXPECT_EQ(next.left.sequences[0].sequence, kA);
  EXPECT_EQ(next.left.sequences[0].slots, (std::vector<TokenSlot>{5, 7}));
  EXPECT_EQ(next.left.sequences[1].sequence, kB);
  EXPECT_EQ(next.left.sequences[1].slots, (std::vector<TokenSlot>{1, 2, 3}));
  EXPECT_EQ(Stats(2).used_tokens, 0) << "who needs them is the manager's matter";
  Connect();
  EXPECT_EQ(Configure(Successor(Request(3))).left.sequences.size(), 0u);
}

TEST_F(KeptKvTest, AManagerThatIsGoneBeforeItSaidAnythingLeavesAllToTheNext) {
  FirstSession(By(11, Request(1)));
  Connect();
  Configure(Successor(Request(2)));
  Connect();
  const Configured third = Configure(Successor(Request(3)));
  EXPECT_EQ(third.left.manager, 11u);
  EXPECT_EQ(third.left.sequences.size(), 2u);
}

TEST_F(KeptKvTest, NumbersOfAnotherManagerNameNothing) {
  FirstSession(By(11, Request(1)));
  Connect();
  const Configured second = Configure(Successor(Request(2)));
  Connect();
  ConfigureMemory same = By(12, Request(3));
  same.kv_id = second.kv_id;
  same.held = {{kB, 2}};  // its own kB, of which the node did not hear before the connection ended
  const Configured again = Configure(same);
  EXPECT_EQ(again.kv_id, second.kv_id);
  EXPECT_EQ(again.missing, std::vector<SequenceId>{kB});
  EXPECT_EQ(Stats(3).used_tokens, 0);
}

TEST_F(KeptKvTest, WhatNobodyIsToFindIsNotLeft) {
  FirstSession(Request(1));
  Connect();
  const Configured next = Configure(Successor(Request(2)));
  EXPECT_EQ(next.left.manager, 0u);
  EXPECT_EQ(Stats(2).used_tokens, 0);
}

TEST_F(KeptKvTest, KvOfOtherWeightsIsNotTakenOver) {
  ConfigureMemory request = By(11, Request(1));
  request.kv_content = 5;
  FirstSession(request);
  Connect();
  ConfigureMemory other = Successor(Request(2));
  other.kv_content = 6;
  EXPECT_EQ(Configure(other).left.manager, 0u);
  EXPECT_EQ(Stats(2).used_tokens, 0);
}

TEST_F(KeptKvTest, KvOfAnotherModelIsNotTakenOver) {
  FirstSession(By(11, Request(1)));
  Connect();
  ConfigureMemory other = Successor(Request(2));
  other.attention.num_layers = 2;
  EXPECT_EQ(Configure(other).left.manager, 0u);
}

}  // namespace kept_kv_test
}  // namespace lamina
