#include "wire/step_times.h"

#include <gtest/gtest.h>

#include <cstring>

namespace lamina {
namespace {

StepRecord SomeRecord() {
  return {.start_ns = 5,
          .end_ns = 7,
          .step = 1,
          .node = 2,
          .rows = 3,
          .layer = 4,
          .work = StepWork::kQWire,
          .batch = 6};
}

TEST(StepTimes, RecordsComeBackAsTheyWere) {
  const std::vector<StepRecord> records(3, SomeRecord());
  const std::string bytes = EncodeRecords(records);
  EXPECT_EQ(bytes.size(), 120u);
  const auto decoded = DecodeRecords(bytes);
  ASSERT_TRUE(decoded);
  EXPECT_EQ(EncodeRecords(*decoded), bytes);
  EXPECT_EQ(decoded->back().layer, 4);
  EXPECT_TRUE(DecodeRecords("")->empty());
}

TEST(StepTimes, ForeignBytesThatCannotBeAreRefused) {
  EXPECT_FALSE(DecodeRecords(std::string(41, '\0')));
  EXPECT_FALSE(DecodeRecords(std::string(40, '\xff')));
  StepRecord record = SomeRecord();
  record.end_ns = 4;
  EXPECT_FALSE(DecodeRecords(EncodeRecords({&record, 1}))) << "ends before it starts";
  record = SomeRecord();
  record.work = static_cast<StepWork>(kNumStepWorks);
  EXPECT_FALSE(DecodeRecords(EncodeRecords({&record, 1}))) << "no such kind";
  record = SomeRecord();
  record.end_ns = INT64_MAX;
  EXPECT_FALSE(DecodeRecords(EncodeRecords({&record, 1}))) << "differences would overflow";
}

std::vector<std::byte> Payload(const ReplyTimes& times) {
  std::vector<std::byte> bytes(8 + sizeof(times));
  std::memcpy(bytes.data() + 8, &times, sizeof(times));
  return bytes;
}

TEST(StepTimes, ReplyTimesAreCutOffTheEnd) {
  const std::vector<std::byte> bytes = Payload({1, 10, 20, 30, 5});
  std::span<const std::byte> payload = bytes;
  const std::optional<ReplyTimes> times = CutReplyTimes(payload);
  ASSERT_TRUE(times);
  EXPECT_EQ(payload.size(), 8u);
  EXPECT_EQ(times->started_ns, 20);
  EXPECT_FALSE(CutReplyTimes(payload)) << "nothing is left to cut";
  EXPECT_EQ(payload.size(), 8u);
}

TEST(StepTimes, ReplyTimesThatContradictThemselvesAreDropped) {
  for (const ReplyTimes& times :
       {ReplyTimes{1, 20, 10, 30, 5}, ReplyTimes{1, 10, 30, 20, 5}, ReplyTimes{1, 10, 20, 30, -1},
        ReplyTimes{1, 10, 20, INT64_MAX, 0}, ReplyTimes{1, INT64_MIN, 20, 30, 0}}) {
    const std::vector<std::byte> bytes = Payload(times);
    std::span<const std::byte> payload = bytes;
    EXPECT_FALSE(CutReplyTimes(payload));
    EXPECT_EQ(payload.size(), 8u) << "the outputs before them are good";
  }
}

TEST(StepTimes, EveryKindHasAName) {
  for (size_t i = 0; i < kNumStepWorks; ++i)
    EXPECT_STRNE(StepWorkName(static_cast<StepWork>(i)), "?");
}

}  // namespace
}  // namespace lamina
