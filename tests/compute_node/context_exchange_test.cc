// Contexts between compute nodes that all live on the thread of the test.
#include "compute_node/context_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "compute_node/step_context.h"
#include "tests/support/faulty_fabric.h"
#include "tests/support/join_all.h"
#include "tests/support/plain_slices.h"
#include "tests/support/tiny_checkpoint.h"

namespace lamina {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr uint64_t kEpoch = 77;
constexpr size_t kPayload = 5000;
const std::string kToken(kSessionTokenBytes, 't');

ContextExchangeOptions Options(uint32_t self) {
  ContextExchangeOptions options;
  options.epoch = kEpoch;
  options.session_token = kToken;
  options.payload_checksum = Switch::kOn;
  options.self = NodeId{self};
  options.num_batches = 3;
  options.payload_bytes = kPayload;
  options.peer_timeout = seconds(2);
  return options;
}

PassedMessage Context(uint32_t batch, uint64_t step, int slice) {
  return {MessageKind::kContext, batch, StepId{step}, slice, /*num_rows=*/1};
}

void Send(ContextExchange& from, int to, uint32_t batch, uint64_t step, int slice,
          const std::string& text) {
  std::memcpy(from.payload(to, MessageKind::kContext, batch).data(), text.data(), text.size());
  const Status posted = from.Post(to, Context(batch, step, slice), text.size());
  EXPECT_TRUE(posted.ok()) << posted;
}

bool Await(ContextExchange& exchange, int from, uint32_t batch) {
  for (const Deadline deadline = Deadline::After(seconds(5));
       !exchange.arrived(from, MessageKind::kContext, batch) && !exchange.lost() &&
       !deadline.Passed();)
    exchange.Poll();
  return exchange.arrived(from, MessageKind::kContext, batch);
}

std::string Text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(ContextExchange, EveryPairOfThreeNodesInBothDirections) {
  const Joined nodes = JoinOverLoopback({Options(11), Options(12), Options(13)});
  for (const auto& node : nodes) ASSERT_TRUE(node.ok()) << node.status();
  for (uint64_t step = 1; step <= 20; ++step) {
    for (int from = 0; from < 3; ++from) {
      for (int to = 0; to < 3; ++to) {
        if (from == to) continue;
        ContextExchange& sender = **nodes[static_cast<size_t>(from)];
        ContextExchange& taker = **nodes[static_cast<size_t>(to)];
        const auto batch = static_cast<uint32_t>(step % 3);
        const std::string text(step * 100, static_cast<char>('a' + from * 3 + to));
        EXPECT_FALSE(taker.arrived(from, MessageKind::kContext, batch));
        Send(sender, to, batch, step, 7, text);
        ASSERT_TRUE(Await(taker, from, batch));
        const Result<std::span<const std::byte>> payload =
            taker.Take(from, Context(batch, step, 7));
        ASSERT_TRUE(payload.ok()) << payload.status();
        EXPECT_EQ(Text(*payload), text);
      }
    }
  }
  EXPECT_EQ((*nodes[2])->paths().size(), 2u) << "it connected to those before it";
  EXPECT_TRUE((*nodes[0])->paths().empty());
}

TEST(ContextExchange, ANotificationThatComesTwiceIsDropped) {
  FaultPlan plan;
  plan.duplicate_notification = 1;
  const Joined nodes =
      JoinOverLoopback({Options(11), Options(12)}, Deadline::After(seconds(10)), plan);
  ASSERT_TRUE(nodes[0].ok() && nodes[1].ok());
  for (uint64_t step = 1; step <= 20; ++step) {
    Send(**nodes[0], 1, 0, step, 1, "context " + std::to_string(step));
    ASSERT_TRUE(Await(**nodes[1], 0, 0));
    EXPECT_EQ(Text(*(*nodes[1])->Take(0, Context(0, step, 1))), "context " + std::to_string(step));
    (*nodes[1])->Poll();
    EXPECT_FALSE((*nodes[1])->arrived(0, MessageKind::kContext, 0))
        << "the second one of step " << step;
    EXPECT_EQ((*nodes[1])->TakeStale(), 1);
  }
}

TEST(ContextExchange, AnotherStepOrSliceThanTheNextIsAnError) {
  for (const auto& [step, slice] : {std::pair(uint64_t{4}, 1), std::pair(uint64_t{3}, 2)}) {
    const Joined nodes = JoinOverLoopback({Options(11), Options(12)});
    ASSERT_TRUE(nodes[0].ok() && nodes[1].ok());
    Send(**nodes[0], 1, 0, step, slice, "context");
    ASSERT_TRUE(Await(**nodes[1], 0, 0));
    const auto taken = (*nodes[1])->Take(0, Context(0, 3, 1));
    ASSERT_FALSE(taken.ok());
    EXPECT_THAT(taken.status().message(), HasSubstr("where step 3 slice 1 is next"));
    ASSERT_TRUE((*nodes[1])->lost());
    EXPECT_EQ((*nodes[1])->lost()->node, NodeId{11});
  }
}

TEST(ContextExchange, CorruptBytesAreAnError) {
  FaultPlan plan;
  plan.corrupt_payload = 1;
  const Joined nodes =
      JoinOverLoopback({Options(11), Options(12)}, Deadline::After(seconds(10)), plan);
  ASSERT_TRUE(nodes[0].ok() && nodes[1].ok());
  Send(**nodes[0], 1, 0, 3, 1, std::string(1000, 'x'));
  ASSERT_TRUE(Await(**nodes[1], 0, 0));
  EXPECT_FALSE((*nodes[1])->Take(0, Context(0, 3, 1)).ok());
  EXPECT_TRUE((*nodes[1])->lost());
}

TEST(ContextExchange, ANodeThatIsGoneIsLost) {
  Joined nodes = JoinOverLoopback({Options(11), Options(12)});
  ASSERT_TRUE(nodes[0].ok() && nodes[1].ok());
  nodes[0]->reset();
  EXPECT_FALSE(Await(**nodes[1], 0, 0));
  ASSERT_TRUE((*nodes[1])->lost());
  EXPECT_THAT((*nodes[1])->lost()->message, HasSubstr("c0"));
  EXPECT_FALSE((*nodes[1])->Post(0, Context(0, 1, 1), 10).ok());
}

// Both nodes live, and the connection stays open.
TEST(ContextExchange, ANodeBehindACutIsLostAfterThePeerTimeout) {
  FaultPlan cut;
  cut.mute_after_posts = 0;
  ContextExchangeOptions first = Options(11), second = Options(12);
  first.peer_timeout = second.peer_timeout = milliseconds(200);
  const Joined nodes = JoinOverLoopback({first, second}, Deadline::After(seconds(10)), cut);
  ASSERT_TRUE(nodes[0].ok() && nodes[1].ok());
  ContextExchange &sender = **nodes[0], &taker = **nodes[1];
  const TimePoint since = Clock::now();
  Send(sender, 1, 0, 3, 1, "context");
  for (const Deadline deadline = Deadline::After(seconds(20));
       !taker.lost() && !deadline.Passed();) {
    sender.Poll();
    taker.Poll();
    EXPECT_FALSE(taker.arrived(0, MessageKind::kContext, 0));
    taker.LoseIfSilent(0, since);
  }
  ASSERT_TRUE(taker.lost());
  EXPECT_GE(Clock::now() - since, milliseconds(200));
  EXPECT_EQ(taker.lost()->node, NodeId{11});
  EXPECT_THAT(taker.lost()->message, ::testing::StartsWith("c0: no sign of life from "));
}

TEST(ContextExchange, WhatFindsNoRoomIsSentLater) {
  bool full = false;
  FaultPlan plan;
  plan.full = [&] { return full; };
  const Joined nodes =
      JoinOverLoopback({Options(11), Options(12)}, Deadline::After(seconds(10)), plan);
  ASSERT_TRUE(nodes[0].ok() && nodes[1].ok());
  ContextExchange &sender = **nodes[0], &taker = **nodes[1];
  EXPECT_FALSE(sender.unsent());
  full = true;
  Send(sender, 1, 0, 3, 1, "a context");
  Send(sender, 1, 2, 4, 1, "another batch's context");
  for (int i = 0; i < 10; ++i) {
    sender.Poll();
    taker.Poll();
  }
  EXPECT_TRUE(sender.unsent());
  EXPECT_FALSE(taker.arrived(0, MessageKind::kContext, 0));
  full = false;
  sender.Poll();
  EXPECT_FALSE(sender.unsent());
  ASSERT_TRUE(Await(taker, 0, 0) && Await(taker, 0, 2));
  EXPECT_EQ(Text(*taker.Take(0, Context(0, 3, 1))), "a context");
  EXPECT_EQ(Text(*taker.Take(0, Context(2, 4, 1))), "another batch's context");
}

TEST(ContextExchange, ANodeWithoutRoomIsLostAfterThePeerTimeout) {
  FaultPlan plan;
  plan.full = [] { return true; };
  ContextExchangeOptions first = Options(11);
  first.peer_timeout = milliseconds(200);
  const Joined nodes = JoinOverLoopback({first, Options(12)}, Deadline::After(seconds(10)), plan);
  ASSERT_TRUE(nodes[0].ok() && nodes[1].ok());
  ContextExchange& sender = **nodes[0];
  const TimePoint since = Clock::now();
  Send(sender, 1, 0, 3, 1, "context");
  for (const Deadline deadline = Deadline::After(seconds(20));
       !sender.lost() && !deadline.Passed();)
    sender.Poll();
  ASSERT_TRUE(sender.lost());
  EXPECT_GE(Clock::now() - since, milliseconds(200));
  EXPECT_EQ(sender.lost()->node, NodeId{12});
  EXPECT_THAT(sender.lost()->message, ::testing::StartsWith("c1: no room for messages to "));
  EXPECT_FALSE(sender.unsent()) << "nothing is left to be done";
}

TEST(ContextExchange, ANodeThatTakesItsTimeIsNotLost) {
  ContextExchangeOptions first = Options(11), second = Options(12);
  first.peer_timeout = second.peer_timeout = milliseconds(200);
  const Joined nodes = JoinOverLoopback({first, second});
  ASSERT_TRUE(nodes[0].ok() && nodes[1].ok());
  const TimePoint since = Clock::now();
  while (Clock::now() < since + seconds(1)) {  // many times the peer timeout
    (*nodes[0])->Poll();
    (*nodes[1])->Poll();
    (*nodes[1])->LoseIfSilent(0, since);
    ASSERT_FALSE((*nodes[1])->lost()) << (*nodes[1])->lost()->message;
  }
  Send(**nodes[0], 1, 0, 3, 1, "context");
  EXPECT_TRUE(Await(**nodes[1], 0, 0));
}

TEST(ContextExchange, StrangersDoNotJoin) {
  ContextExchangeOptions other_epoch = Options(12), other_token = Options(12),
                         other_node = Options(12);
  other_epoch.epoch = kEpoch + 1;
  other_token.session_token = std::string(kSessionTokenBytes, 'x');
  for (const ContextExchangeOptions& stranger : {other_epoch, other_token}) {
    const Joined nodes =
        JoinOverLoopback({Options(11), stranger}, Deadline::After(milliseconds(300)));
    ASSERT_FALSE(nodes[0].ok());
    EXPECT_THAT(nodes[0].status().message(),
                HasSubstr("compute node c1 did not open its data path"));
  }
  EXPECT_THAT(ContextExchange::StartJoin(Options(99), ListeningOnLoopback(), {},
                                         Deadline::After(seconds(1)))
                  .status()
                  .message(),
              HasSubstr("not among"));
}

TEST(StepContext, ValuesPrefillOutputsAndStateArrive) {
  const TinyCheckpoint checkpoint({});
  const std::unique_ptr<LoadedModel> model = *LoadedModel::Describe(checkpoint.dir());
  const SlicedModel& sliced = model->sliced;
  WorkerTeam team(1);
  CpuDevice device(team);
  constexpr size_t kRows = 5, kFirstPrefill = 3;
  PlainSlices here(sliced, kRows), there(sliced, kRows);
  std::vector<std::byte> payload(MaxContextBytes({sliced}, kRows));
  for (int k = 1; k < static_cast<int>(sliced.slices.size()); ++k) {
    const Slice& slice = sliced.slices[static_cast<size_t>(k)];
    ASSERT_FALSE(slice.context_in.empty());
    const auto width = [&](ValueId id) {
      return static_cast<size_t>(sliced.graph.values[static_cast<size_t>(id)].width);
    };
    std::vector<ValueId> ids = slice.context_in;
    ids.push_back(slice.attention_out);
    for (const ValueId id : ids) {
      for (size_t i = 0; i < kRows * width(id); ++i) {
        here.value(id)[i] = static_cast<float>(i) + 1000.0f * static_cast<float>(id);
        there.value(id)[i] = -1;
      }
    }
    StepState state;
    state.so_far.emplace().step = StepId{9};
    state.asked.push_back({NodeId{4}, 17});
    for (uint64_t i = 0; i < kRows; ++i) {
      state.so_far->failed.push_back({SequenceId{i}, TimedOut(std::string(5000, 'x')),
                                      i == 4 ? FailureCause::kKvLost : FailureCause::kRequest});
    }
    const size_t bytes =
        WriteContext({sliced}, device, {k, here, kRows, kFirstPrefill}, state, payload);
    ASSERT_LE(bytes, payload.size());
    const Result<StepState> read = ReadContext({sliced}, device, {k, there, kRows, kFirstPrefill},
                                               std::span(payload).first(bytes));
    ASSERT_TRUE(read.ok()) << read.status();
    ASSERT_TRUE(read->so_far);
    EXPECT_EQ(read->so_far->step, StepId{9});
    ASSERT_EQ(read->so_far->failed.size(), kRows) << "their texts are cut";
    EXPECT_EQ(read->so_far->failed[4].why.code(), StatusCode::kTimeout);
    EXPECT_EQ(read->so_far->failed[4].cause, FailureCause::kKvLost);
    EXPECT_EQ(read->so_far->failed[3].cause, FailureCause::kRequest);
    EXPECT_EQ(read->asked.at(0).node, NodeId{4});
    EXPECT_EQ(read->asked.at(0).posted_ns, 17);
    for (const ValueId id : slice.context_in) {
      for (size_t i = 0; i < kRows * width(id); ++i)
        ASSERT_EQ(there.value(id)[i], here.value(id)[i]);
    }
    const ValueId out = slice.attention_out;
    for (size_t i = 0; i < kRows * width(out); ++i)
      ASSERT_EQ(there.value(out)[i], i < kFirstPrefill * width(out) ? -1 : here.value(out)[i]);
    EXPECT_EQ(ReadContext({sliced}, device, {k, there, kRows, kFirstPrefill},
                          std::span(payload).first(100))
                  .status()
                  .code(),
              StatusCode::kCorrupt);
    EXPECT_FALSE(ReadContext({sliced}, device, {k, there, kRows, kFirstPrefill},
                             std::span(payload).first(bytes - 1))
                     .ok())
        << "half a state";
  }
}

}  // namespace
}  // namespace lamina
