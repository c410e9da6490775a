// Memory nodes that are silent, dead or wrong, and answers that are errors.
#include <gmock/gmock.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tests/compute_node/remote_attention_fixture.h"

namespace lamina::testing {
namespace {

using ::testing::HasSubstr;

TEST_F(RemoteAttentionTest, ANodeWithoutRoomIsLostAfterThePeerTimeout) {
  full_ = true;
  ExpectLost(TwiceQ,
             "step 3 batch 1 layer 1: room to send q, k and v did not come from loopback "
             "bad-memory over loopback within 150 ms",
             std::chrono::milliseconds(150));
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
              ::testing::AllOf(HasSubstr("m2"), HasSubstr("no such sequence here")));
  ExpectTwiceQ(0);
  EXPECT_TRUE(attention_->LostNodes().empty()) << "the node lives";
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
  EXPECT_TRUE(attention_->LostNodes().empty());
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
}  // namespace lamina::testing
