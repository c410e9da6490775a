// Lanes between two ends that live in this process, some of which misbehave.
#include "wire/lanes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "tests/support/faulty_fabric.h"

namespace lamina {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kEpoch = 77;

// Two batches of few rows.
WireShape Shape(bool overlap) { return {2, 1, 8, DType::kBF16, 3, 2, DType::kF32, overlap}; }

// One end: lanes, and the endpoint that a hostile peer has instead of lanes.
struct End {
  std::unique_ptr<Lanes> lanes;
  std::vector<Notification> seen = {};

  Result<Lanes::Polled> Poll() {
    return lanes->Poll([&](const Notification& notification) {
      seen.push_back(notification);
      return true;
    });
  }
  void PollUntil(size_t num_seen) {
    for (const Deadline deadline = Deadline::After(std::chrono::seconds(5));
         seen.size() < num_seen && !deadline.Passed();)
      ASSERT_TRUE(Poll().ok());
    ASSERT_EQ(seen.size(), num_seen);
  }
};

class LanesTest : public ::testing::TestWithParam<const char*> {
 protected:
  struct Connected {
    std::unique_ptr<Endpoint> first, second;
  };

  Connected Connect(uint64_t first_bytes, uint64_t second_bytes) {
    fabric_ = std::make_unique<FaultyFabric>(*OpenFabric(GetParam()), plan_);
    other_fabric_ = *OpenFabric(GetParam());
    listener_ =
        *other_fabric_->Listen(std::string_view(GetParam()) == "tcp" ? "127.0.0.1:0" : "lanes");
    Connected connected;
    std::thread connecting([&] {
      connected.first = *fabric_->Connect(listener_->address(), {first_bytes, "first"},
                                          Deadline::After(std::chrono::seconds(10)));
    });
    while (connected.second == nullptr) {
      auto accepted = listener_->Accept({second_bytes, "second"});
      if (accepted.ok()) connected.second = std::move(*accepted);
    }
    connecting.join();
    return connected;
  }

  // A compute node (first) and a memory node (second).
  void Join(const WireShape& wire) {
    Connected ends = Connect(wire.compute_window_bytes(), wire.memory_window_bytes());
    compute_.lanes = *Lanes::Create(*fabric_, std::move(ends.first), DecodeLanes(wire),
                                    ReplyLanes(wire), {kEpoch, Switch::kOn});
    memory_.lanes = *Lanes::Create(*other_fabric_, std::move(ends.second), ReplyLanes(wire),
                                   DecodeLanes(wire), {kEpoch, Switch::kOn});
  }

  static void Fill(Lanes& from, MessageKind kind, uint32_t slot, const std::string& text) {
    std::memcpy(from.payload(kind, slot).data(), text.data(), text.size());
  }
  static void Send(Lanes& from, MessageKind kind, uint32_t slot, const std::string& text) {
    Fill(from, kind, slot, text);
    const Status posted = from.Post(kind, slot, {.step = 5, .layer = 1}, text.size());
    ASSERT_TRUE(posted.ok()) << posted;
  }
  static std::string Text(const Result<ReceivedMessage>& message) {
    if (!message.ok()) return message.status().message();
    EXPECT_EQ(message->header.epoch, kEpoch);
    EXPECT_EQ(message->header.step, 5u);
    return {reinterpret_cast<const char*>(message->payload.data()), message->payload.size()};
  }

  FaultPlan plan_;
  std::unique_ptr<Fabric> fabric_, other_fabric_;
  std::unique_ptr<Listener> listener_;
  End compute_, memory_;
};

TEST_P(LanesTest, MessagesOfALaneAreTakenInTurn) {
  Join(Shape(/*overlap=*/false));
  for (int i = 0; i < 5; ++i) {
    const std::string text = "question " + std::to_string(i);
    Send(*compute_.lanes, MessageKind::kDecode, 1, text);
    memory_.PollUntil(static_cast<size_t>(i + 1));
    EXPECT_FALSE(memory_.lanes->arrived(MessageKind::kDecode, 0));
    ASSERT_TRUE(memory_.lanes->arrived(MessageKind::kDecode, 1));
    EXPECT_EQ(Text(memory_.lanes->Peek(MessageKind::kDecode, 1)), text);
    EXPECT_EQ(Text(memory_.lanes->Take(MessageKind::kDecode, 1)), text);
    EXPECT_FALSE(memory_.lanes->arrived(MessageKind::kDecode, 1));
    EXPECT_EQ(memory_.lanes->taken(MessageKind::kDecode, 1), static_cast<uint32_t>(i + 1));

    Fill(*memory_.lanes, MessageKind::kReply, 1, "an answer");
    ASSERT_TRUE(memory_.lanes->PostEarly(MessageKind::kReply, 1, 3).ok());
    ASSERT_TRUE(memory_.lanes->Post(MessageKind::kReply, 1, {.step = 5}, 9, 3).ok());
    compute_.PollUntil(static_cast<size_t>(i + 1));
    EXPECT_EQ(Text(compute_.lanes->Take(MessageKind::kReply, 1)), "an answer");
  }
  EXPECT_EQ(memory_.lanes->TakeStale() + compute_.lanes->TakeStale(), 0);
}

TEST_P(LanesTest, AMessageInTwoPartsHasOneNumber) {
  Join(Shape(/*overlap=*/true));
  for (uint32_t number = 1; number <= 3; ++number) {
    Send(*compute_.lanes, MessageKind::kQueries, 0, "q");
    Send(*compute_.lanes, MessageKind::kDecode, 0, "k and v");
    memory_.PollUntil(2 * number);
    EXPECT_EQ(memory_.lanes->Peek(MessageKind::kQueries, 0)->header.number, number);
    EXPECT_EQ(memory_.lanes->Peek(MessageKind::kDecode, 0)->header.number, number);
    EXPECT_EQ(Text(memory_.lanes->Take(MessageKind::kQueries, 0)), "q");
    EXPECT_EQ(Text(memory_.lanes->Take(MessageKind::kDecode, 0)), "k and v");
  }
}

// A rank may be one sum ahead of the others.
TEST_P(LanesTest, ALaneOfTwoAreasHoldsTwoMessages) {
  const std::vector<Lane> lanes = ContextLanes(2, 100, 50);
  Connected ends = Connect(WindowBytes(lanes), WindowBytes(lanes));
  compute_.lanes =
      *Lanes::Create(*fabric_, std::move(ends.first), lanes, lanes, {kEpoch, Switch::kOff});
  memory_.lanes =
      *Lanes::Create(*other_fabric_, std::move(ends.second), lanes, lanes, {kEpoch, Switch::kOff});
  for (int i = 0; i < 4; i += 2) {
    Send(*compute_.lanes, MessageKind::kPartialSum, 1, "sum " + std::to_string(i));
    Send(*compute_.lanes, MessageKind::kPartialSum, 1, "sum " + std::to_string(i + 1));
    memory_.PollUntil(static_cast<size_t>(i + 2));
    EXPECT_EQ(Text(memory_.lanes->Take(MessageKind::kPartialSum, 1)), "sum " + std::to_string(i));
    EXPECT_EQ(Text(memory_.lanes->Take(MessageKind::kPartialSum, 1)),
              "sum " + std::to_string(i + 1));
    EXPECT_FALSE(memory_.lanes->arrived(MessageKind::kPartialSum, 1));
  }
}

TEST_P(LanesTest, APushStaysUntilItIsAcknowledged) {
  Join(Shape(/*overlap=*/false));
  EXPECT_FALSE(compute_.lanes->pushing(3));
  Send(*compute_.lanes, MessageKind::kPush, 3, "k and v");
  EXPECT_TRUE(compute_.lanes->pushing(3));
  EXPECT_FALSE(compute_.lanes->pushing(2));
  memory_.PollUntil(1);
  EXPECT_EQ(Text(memory_.lanes->Take(MessageKind::kPush, 3)), "k and v");
  ASSERT_TRUE(memory_.lanes->Acknowledge(3).ok());
  compute_.PollUntil(1);
  EXPECT_FALSE(compute_.lanes->pushing(3));
  // Once more, and for one that was never pushed.
  ASSERT_TRUE(memory_.lanes->Acknowledge(3).ok());
  ASSERT_TRUE(memory_.lanes->Acknowledge(0).ok());
  ASSERT_TRUE(memory_.lanes->Signal({MessageKind::kLink, 1, 1}).ok());
  compute_.PollUntil(2);
  EXPECT_EQ(compute_.lanes->TakeStale(), 2);
}

TEST_P(LanesTest, ANotificationThatComesTwiceIsCounted) {
  plan_.duplicate_notification = 1;
  Join(Shape(/*overlap=*/false));
  for (size_t i = 1; i <= 4; ++i) {
    Send(*compute_.lanes, MessageKind::kDecode, 0, "question");
    memory_.PollUntil(i);
    EXPECT_EQ(Text(memory_.lanes->Take(MessageKind::kDecode, 0)), "question");
  }
  // It comes twice itself, behind all others.
  ASSERT_TRUE(compute_.lanes->Signal({MessageKind::kLink, 0, 1}).ok());
  memory_.PollUntil(6);
  EXPECT_EQ(memory_.lanes->TakeStale(), 4);
  EXPECT_EQ(memory_.lanes->TakeStale(), 0);
}

// The caller knows that its bytes are there, as posts are written in order.
TEST_P(LanesTest, WhatIsTakenBeforeItWasAnnouncedIsNotTakenTwice) {
  plan_.mutes = [](uint32_t value) {
    return Notification::Unpack(value)->kind == MessageKind::kQueries;
  };
  Join(Shape(/*overlap=*/true));
  Send(*compute_.lanes, MessageKind::kQueries, 0, "q");
  Send(*compute_.lanes, MessageKind::kDecode, 0, "k and v");
  memory_.PollUntil(2);
  memory_.lanes->Drop(MessageKind::kDecode, 0);
  EXPECT_EQ(Text(memory_.lanes->Take(MessageKind::kQueries, 0)), "q");
  EXPECT_FALSE(memory_.lanes->arrived(MessageKind::kQueries, 0));
  // The next one was not posted yet: its area still has the first message.
  const Result<ReceivedMessage> next = memory_.lanes->Peek(MessageKind::kQueries, 0);
  EXPECT_EQ(next.status().code(), StatusCode::kCorrupt);
  EXPECT_THAT(next.status().message(), HasSubstr("message 1 stands where message 2"));
}

TEST_P(LanesTest, ABitThatFlipsOnTheWayIsSeen) {
  plan_.corrupt_payload = 1;
  Join(Shape(/*overlap=*/false));
  Send(*compute_.lanes, MessageKind::kDecode, 0, std::string(100, 'x'));
  memory_.PollUntil(1);
  EXPECT_EQ(memory_.lanes->Take(MessageKind::kDecode, 0).status().code(), StatusCode::kCorrupt);
}

TEST_P(LanesTest, WhatFindsNoRoomIsSentLaterInOrder) {
  bool full = true;
  plan_.full = [&] { return full; };
  Join(Shape(/*overlap=*/true));
  Send(*compute_.lanes, MessageKind::kQueries, 0, "q");
  EXPECT_TRUE(compute_.lanes->unsent());
  Send(*compute_.lanes, MessageKind::kDecode, 0, "k and v");
  Send(*compute_.lanes, MessageKind::kPush, 2, "a push");
  ASSERT_TRUE(compute_.lanes->Signal({MessageKind::kAlive, 0, 0}).ok());
  EXPECT_TRUE(compute_.lanes->pushing(2)) << "its area is taken already";
  ASSERT_TRUE(compute_.Poll().ok());
  ASSERT_TRUE(memory_.Poll().ok());
  EXPECT_THAT(memory_.seen, ::testing::IsEmpty());

  full = false;
  // What finds room does not overtake what waits for it.
  Send(*compute_.lanes, MessageKind::kPush, 3, "another push");
  EXPECT_EQ(compute_.lanes->PostEarly(MessageKind::kQueries, 1, 1).code(), StatusCode::kTryAgain);
  EXPECT_TRUE(compute_.lanes->unsent());
  ASSERT_TRUE(compute_.Poll().ok());
  EXPECT_FALSE(compute_.lanes->unsent());
  memory_.PollUntil(5);
  std::vector<MessageKind> kinds;
  for (const Notification& notification : memory_.seen) kinds.push_back(notification.kind);
  EXPECT_THAT(kinds, ElementsAre(MessageKind::kQueries, MessageKind::kDecode, MessageKind::kPush,
                                 MessageKind::kAlive, MessageKind::kPush));
  EXPECT_EQ(Text(memory_.lanes->Take(MessageKind::kQueries, 0)), "q");
  EXPECT_EQ(Text(memory_.lanes->Take(MessageKind::kDecode, 0)), "k and v");
  EXPECT_EQ(Text(memory_.lanes->Take(MessageKind::kPush, 2)), "a push");
  EXPECT_EQ(Text(memory_.lanes->Take(MessageKind::kPush, 3)), "another push");
  EXPECT_EQ(memory_.lanes->TakeStale(), 0);
}

// Bytes that are written behind the seal show at the receiver. A second seal would hide them.
TEST_P(LanesTest, WhatWaitsForRoomIsSealedOnce) {
  bool full = true;
  plan_.full = [&] { return full; };
  Join(Shape(/*overlap=*/false));
  const std::span<std::byte> payload = compute_.lanes->payload(MessageKind::kDecode, 0);
  Send(*compute_.lanes, MessageKind::kDecode, 0, "question");
  payload[0] ^= std::byte{1};
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(compute_.Poll().ok());
  full = false;
  ASSERT_TRUE(compute_.Poll().ok());
  memory_.PollUntil(1);
  EXPECT_EQ(memory_.lanes->Take(MessageKind::kDecode, 0).status().code(), StatusCode::kCorrupt);
}

TEST_P(LanesTest, SomeOfWhatWaitsLeavesAsSoonAsThereIsRoomForIt) {
  int room = 0;
  plan_.full = [&] { return room-- <= 0; };
  Join(Shape(/*overlap=*/false));
  for (uint32_t slot = 0; slot < 3; ++slot)
    Send(*compute_.lanes, MessageKind::kPush, slot, "push " + std::to_string(slot));
  for (uint32_t slot = 0; slot < 3; ++slot) {
    EXPECT_TRUE(compute_.lanes->unsent());
    room = 1;
    ASSERT_TRUE(compute_.Poll().ok());
    memory_.PollUntil(slot + 1);
    EXPECT_EQ(Text(memory_.lanes->Take(MessageKind::kPush, slot)), "push " + std::to_string(slot));
  }
  EXPECT_FALSE(compute_.lanes->unsent());
}

// Nobody who keeps to his side gets so far: a signal answers a message, or is sent now and then.
TEST_P(LanesTest, TheQueueHasAnEnd) {
  plan_.full = [] { return true; };
  Join(Shape(/*overlap=*/false));
  int num_queued = 0;
  while (num_queued < 1000 && compute_.lanes->Signal({MessageKind::kAlive, 0, 0}).ok())
    ++num_queued;
  EXPECT_GE(num_queued, static_cast<int>(kPushSlots));
  EXPECT_LT(num_queued, 100);
  EXPECT_EQ(compute_.lanes->Signal({MessageKind::kAlive, 0, 0}).code(), StatusCode::kTryAgain);
}

// Of a peer that has all a peer has, but does not keep to its side.
TEST_P(LanesTest, NotificationsThatMeanNothingLoseThePeer) {
  const WireShape wire = Shape(/*overlap=*/false);
  for (const Notification bad : {
           Notification{MessageKind::kDecode, 2, 1},   // a batch that does not exist
           Notification{MessageKind::kQueries, 0, 1},  // only with overlap
           Notification{MessageKind::kReply, 0, 1},    // the other way round
           Notification{MessageKind::kPushDone, 0, 1},
           Notification{MessageKind::kContext, 0, 1},
           Notification{MessageKind::kPush, 15, 1},
           Notification{static_cast<MessageKind>(12), 0, 1},
       }) {
    SCOPED_TRACE(bad.Pack());
    Connected ends = Connect(wire.compute_window_bytes(), wire.memory_window_bytes());
    Lanes& lanes = *(memory_.lanes = *Lanes::Create(*other_fabric_, std::move(ends.second),
                                                    ReplyLanes(wire), DecodeLanes(wire), {}));
    ASSERT_TRUE(ends.first->Post({}, bad.Pack(), 0).ok());
    Result<Lanes::Polled> polled = Lanes::Polled{};
    for (const Deadline deadline = Deadline::After(std::chrono::seconds(5));
         polled.ok() && !deadline.Passed();)
      polled = lanes.Poll([](const Notification&) { return ADD_FAILURE(), true; });
    EXPECT_EQ(polled.status().code(), StatusCode::kCorrupt);
    EXPECT_THAT(polled.status().message(), HasSubstr("means nothing: "));
    memory_.lanes.reset();
    ends = {};
    listener_.reset();
  }
}

TEST_P(LanesTest, WhoAnnouncesMoreThanThereIsRoomForIsNotBelieved) {
  const WireShape wire = Shape(/*overlap=*/false);
  Connected ends = Connect(wire.compute_window_bytes(), wire.memory_window_bytes());
  memory_.lanes = *Lanes::Create(*other_fabric_, std::move(ends.second), ReplyLanes(wire),
                                 DecodeLanes(wire), {});
  for (uint32_t number = 1; number <= 10; ++number)
    ASSERT_TRUE(ends.first->Post({}, Notification{MessageKind::kDecode, 0, number}.Pack(), 0).ok());
  ASSERT_TRUE(ends.first->Post({}, Notification{MessageKind::kLink, 0, 1}.Pack(), 0).ok());
  memory_.PollUntil(2);
  EXPECT_EQ(memory_.seen[0].number, 1u);
  EXPECT_EQ(memory_.lanes->TakeStale(), 9);
  EXPECT_EQ(memory_.lanes->Peek(MessageKind::kDecode, 0).status().code(), StatusCode::kCorrupt)
      << "nothing was written";
}

TEST_P(LanesTest, APeerThatIsGoneIsLost) {
  Join(Shape(/*overlap=*/false));
  compute_.lanes.reset();
  Result<Lanes::Polled> polled = Lanes::Polled{};
  for (const Deadline deadline = Deadline::After(std::chrono::seconds(5));
       polled.ok() && !deadline.Passed();)
    polled = memory_.Poll();
  EXPECT_EQ(polled.status().code(), StatusCode::kPeerLost);
}

TEST_P(LanesTest, AWindowThatIsTooSmallIsRefused) {
  const WireShape wire = Shape(/*overlap=*/false);
  Connected ends = Connect(wire.compute_window_bytes() - 1, wire.memory_window_bytes());
  const auto lanes = Lanes::Create(*other_fabric_, std::move(ends.second), ReplyLanes(wire),
                                   DecodeLanes(wire), {});
  EXPECT_EQ(lanes.status().code(), StatusCode::kInternal);
  EXPECT_THAT(lanes.status().message(), HasSubstr("offers a window of 8191 bytes, expected 8192"));
}

// tcp copies; with loopback the peer's window can be written from here.
INSTANTIATE_TEST_SUITE_P(Fabrics, LanesTest, ::testing::Values("loopback", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

TEST(LaneTables, AreasDoNotOverlapAndFillTheWindow) {
  for (const bool overlap : {false, true}) {
    WireShape wire = Shape(overlap);
    wire.num_batches = kMaxBatches;
    const std::vector<std::vector<Lane>> tables = {DecodeLanes(wire), ReplyLanes(wire),
                                                   ContextLanes(kMaxBatches, 100, 50),
                                                   ContextLanes(3, 5000, 0)};
    for (std::vector<Lane> lanes : tables) {
      std::ranges::sort(lanes, {}, &Lane::offset);
      uint64_t end = 0;
      for (const Lane& lane : lanes) {
        EXPECT_GE(lane.offset, end);
        EXPECT_LT(lane.offset, end + 4096) << "nothing is wasted but for page boundaries";
        EXPECT_GT(lane.area_bytes, sizeof(MessageHeader));
        end = lane.offset + lane.depth * lane.area_bytes;
      }
      EXPECT_EQ(WindowBytes(lanes), end);
    }
    EXPECT_EQ(WindowBytes(tables[0]), wire.memory_window_bytes());
    EXPECT_EQ(WindowBytes(tables[1]), wire.compute_window_bytes());
  }
}

}  // namespace
}  // namespace lamina
