#include "compute_node/step_trace.h"

#include <gtest/gtest.h>

namespace lamina {
namespace step_trace_test {

constexpr NodeId kMemory{7};
constexpr TracedWork kWork{StepId{3}, 1, 2, 5};

void Work() {
  const int64_t end = NowNs() + 20'000;
  while (NowNs() < end) continue;
}

std::vector<StepRecord> RecordsOf(StepTrace& trace) {
  TraceAnswer answer;
  trace.TellRecords(1000, answer);
  return DecodeRecords(answer.records).value_or(std::vector<StepRecord>{});
}

StepTimes TimesOf(StepTrace& trace, NodeId node) {
  StepResult result;
  trace.TellTimes(result);
  StepTimes times;
  for (const NodeTimes& told : result.times) {
    if (told.node == node) times.Add(told.times);
  }
  return times;
}

StepTimes SumOf(const std::vector<StepRecord>& records, NodeId node) {
  StepTimes times;
  for (const StepRecord& record : records) {
    if (record.node == node.value) times.Add(record.work, record.end_ns - record.start_ns);
  }
  return times;
}

std::vector<StepWork> WorkOf(const std::vector<StepRecord>& records) {
  std::vector<StepWork> works;
  for (const StepRecord& record : records) works.push_back(record.work);
  return works;
}

TEST(StepTrace, BubblesAreBetweenPiecesOfWorkWhileAStepIsUnderWay) {
  StepTrace trace;
  Work();  // no step is under way: no bubble
  trace.BeginStep(true);
  const int64_t begun = trace.Now();
  Work();
  const int64_t start = trace.Now();
  Work();
  const int64_t ran = trace.Ran(StepWork::kSlice, kWork, start);
  trace.Ran(StepWork::kPost, kWork, ran);
  Work();
  trace.Ran(StepWork::kSample, kWork, trace.Now());
  trace.EndStep(kWork, begun);
  const std::vector<StepRecord> records = RecordsOf(trace);
  EXPECT_EQ(WorkOf(records), (std::vector{StepWork::kBubble, StepWork::kSlice, StepWork::kPost,
                                          StepWork::kBubble, StepWork::kSample, StepWork::kStep}));
  for (size_t i = 1; i + 1 < records.size(); ++i)
    EXPECT_EQ(records[i].start_ns, records[i - 1].end_ns) << "no time is left out";
  const StepTimes sums = TimesOf(trace, NodeId{});
  EXPECT_EQ(sums.ns, SumOf(records, NodeId{}).ns);
  EXPECT_GE(sums.of(StepWork::kBubble), 40'000);
  // The first bubble begins with the step's work, a moment before the caller's clock is read for
  // the whole step.
  EXPECT_GE(records.back().end_ns - records.front().start_ns,
            sums.of(StepWork::kBubble) + sums.of(StepWork::kSlice));
  EXPECT_EQ(TimesOf(trace, NodeId{}).ns, StepTimes{}.ns) << "told once";
}

TEST(StepTrace, AStepThatIsNotTimedLeavesNothing) {
  StepTrace trace;
  trace.BeginStep(false);
  const int64_t begun = trace.Now();
  trace.Ran(StepWork::kSlice, kWork, trace.Now());
  trace.Answered(kMemory, kWork, trace.Now(), {ClockId(), 10, 20, 30, 0});
  trace.EndStep(kWork, begun);
  EXPECT_TRUE(RecordsOf(trace).empty());
  trace.BeginStep(true);
  trace.Ran(StepWork::kSlice, kWork, 0);  // started while nothing was timed
  EXPECT_TRUE(RecordsOf(trace).empty());
}

TEST(StepTrace, AMessageIsDividedAtTheMemoryNodesTimes) {
  StepTrace trace;
  trace.BeginStep(true);
  const int64_t now = NowNs();
  trace.Answered(kMemory, kWork, now - 100, {ClockId(), now - 80, now - 70, now - 10, 25});
  const std::vector<StepRecord> records = RecordsOf(trace);
  ASSERT_EQ(WorkOf(records), (std::vector{StepWork::kBubble, StepWork::kQWire, StepWork::kQueue,
                                          StepWork::kAttention, StepWork::kOutputWire}));
  const StepTimes sums = TimesOf(trace, kMemory);
  EXPECT_EQ(sums.ns, SumOf(records, kMemory).ns);
  EXPECT_EQ(sums.of(StepWork::kBubble), 25);
  EXPECT_EQ(sums.of(StepWork::kQWire), 20);
  EXPECT_EQ(sums.of(StepWork::kQueue), 10);
  EXPECT_EQ(sums.of(StepWork::kAttention), 60);
  EXPECT_GE(sums.of(StepWork::kOutputWire), 10);
  EXPECT_EQ(records[1].rows, 5u);
  EXPECT_EQ(records[1].layer, 2);
  EXPECT_EQ(records[1].batch, 1);
}

// Whatever the clock of another host says: in order, none negative, durations as told.
TEST(StepTrace, TimesOfAnotherHostAreShiftedToWhereTheyFit) {
  StepTrace trace;
  trace.BeginStep(true);
  for (const int64_t ahead :
       {int64_t{0}, int64_t{5'000'000}, int64_t{-9'000'000'000}, int64_t{5'000'000}}) {
    const int64_t now = NowNs(), there = now + ahead;
    trace.Answered(kMemory, kWork, now - 100'000,
                   {99, there - 80'000, there - 70'000, there - 10'000, 0});
    const std::vector<StepRecord> records = RecordsOf(trace);
    ASSERT_EQ(records.size(), 4u);
    EXPECT_EQ(records[0].start_ns, now - 100'000);
    for (size_t i = 1; i < records.size(); ++i)
      EXPECT_EQ(records[i].start_ns, records[i - 1].end_ns);
    for (const StepRecord& record : records) EXPECT_LE(record.start_ns, record.end_ns);
    EXPECT_EQ(records[2].end_ns - records[2].start_ns, 60'000);
  }
}

TEST(StepTrace, TheRingKeepsTheNewestAndCountsTheRest) {
  StepTrace full(8);
  full.BeginStep(true);
  for (uint64_t i = 0; i < 13; ++i) full.EndStep({StepId{i}, 0, 0, 0}, NowNs());
  std::vector<uint64_t> steps;
  for (const bool more : {true, true, false}) {
    TraceAnswer answer;
    full.TellRecords(3, answer);
    EXPECT_EQ(answer.more, more);
    EXPECT_EQ(answer.num_lost, steps.empty() ? 5u : 0u);
    EXPECT_EQ(answer.clock, ClockId());
    const auto records = DecodeRecords(answer.records);
    ASSERT_TRUE(records);
    for (const StepRecord& record : *records) steps.push_back(record.step);
  }
  EXPECT_EQ(steps, (std::vector<uint64_t>{5, 6, 7, 8, 9, 10, 11, 12}));
}

TEST(StepTrace, TellsHowWellItKnowsTheClocks) {
  StepTrace trace;
  trace.BeginStep(true);
  const int64_t now = NowNs();
  trace.Answered(kMemory, kWork, now - 100, {ClockId(), now - 80, now - 70, now - 10, 0});
  trace.Answered(NodeId{8}, kWork, now - 100'000, {99, 80'000, 90'000, 100'000, 0});
  TraceAnswer answer;
  trace.TellRecords(0, answer);
  ASSERT_EQ(answer.peers.size(), 2u);
  EXPECT_EQ(answer.peers[0].error_ns, 0);
  EXPECT_GE(answer.peers[1].error_ns, 40'000);
}

}  // namespace step_trace_test
}  // namespace lamina
