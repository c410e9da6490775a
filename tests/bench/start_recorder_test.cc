#include "bench/recovery/start_recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/fake_executor.h"

namespace lamina::testing {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;

constexpr size_t kStreams = 4;
constexpr TimePoint kStart{seconds(100)};

NewSequence Announced(SequenceId sequence, size_t stream, size_t request, size_t num_tokens) {
  NewSequence announced;
  announced.sequence = sequence;
  announced.sampling.seed = SeedOf(stream, request, kStreams);
  announced.tokens.resize(num_tokens);
  return announced;
}

// `num_there`: how many of its tokens have KV on the nodes already; then it is its first work.
Work WorkOn(SequenceId sequence, const std::vector<NodeId>& nodes, int64_t num_there = 0) {
  Work work;
  work.sequence = sequence;
  for (const NodeId node : nodes) work.route.push_back({node, 0, {}});
  work.first = num_there > 0;
  work.first_position = num_there;
  return work;
}

StepPlan PlanOf(std::vector<Work> work) {
  StepPlan plan;
  plan.work = std::move(work);
  return plan;
}

std::vector<NodeId> NodesOf(const SequenceStart& start) {
  std::vector<NodeId> nodes;
  for (const SequenceStart::Place& place : start.places) nodes.push_back(place.node);
  return nodes;
}

TEST(StartRecorder, KnowsStreamsAndRequestsBySeed) {
  StartRecorder recorder(kStreams);
  const SequenceId first{1}, second{2};
  recorder.Take(PlanOf({WorkOn(first, {kNode}), WorkOn(second, {kOther})}),
                std::vector<NewSequence>{Announced(first, 3, 0, 10), Announced(second, 0, 2, 20)},
                kStart);
  const std::vector<SequenceStart> starts = recorder.TakeStarts();
  ASSERT_EQ(starts.size(), 2u);
  EXPECT_EQ(starts[0].stream, 3u);
  EXPECT_EQ(starts[0].request, 0u);
  EXPECT_EQ(starts[0].num_tokens, 10);
  EXPECT_EQ(starts[0].at, kStart);
  EXPECT_FALSE(starts[0].again);
  EXPECT_THAT(NodesOf(starts[0]), ElementsAre(kNode));
  EXPECT_EQ(starts[1].stream, 0u);
  EXPECT_EQ(starts[1].request, 2u);
  EXPECT_THAT(NodesOf(starts[1]), ElementsAre(kOther));
}

TEST(StartRecorder, ASequenceThatGrowsOntoANodeHasKvThereFromThenOn) {
  StartRecorder recorder(kStreams);
  const SequenceId sequence{1};
  recorder.Take(PlanOf({WorkOn(sequence, {kNode})}),
                std::vector<NewSequence>{Announced(sequence, 1, 0, 10)}, kStart);
  for (const int step : {1, 2})
    recorder.Take(PlanOf({WorkOn(sequence, {kNode, kOther})}), {}, kStart + seconds(step));
  const std::vector<SequenceStart> starts = recorder.TakeStarts();
  ASSERT_EQ(starts.size(), 1u);
  ASSERT_THAT(NodesOf(starts[0]), ElementsAre(kNode, kOther));
  EXPECT_EQ(starts[0].places[1].since, kStart + seconds(1));
}

TEST(StartRecorder, ASecondStartIsAgainWithWhatItHasByThen) {
  StartRecorder recorder(kStreams);
  const SequenceId sequence{1};
  recorder.Take(PlanOf({WorkOn(sequence, {kNode})}),
                std::vector<NewSequence>{Announced(sequence, 1, 0, 10)}, kStart);
  recorder.Take(PlanOf({WorkOn(sequence, {kOther}, /*num_there=*/6)}),
                std::vector<NewSequence>{Announced(sequence, 1, 0, 17)}, kStart + seconds(5));
  const std::vector<SequenceStart> starts = recorder.TakeStarts();
  ASSERT_EQ(starts.size(), 2u);
  EXPECT_THAT(NodesOf(starts[0]), ElementsAre(kNode)) << "the first start is over";
  EXPECT_EQ(starts[0].num_shared, 0);
  EXPECT_TRUE(starts[1].again);
  EXPECT_EQ(starts[1].num_tokens, 17);
  EXPECT_EQ(starts[1].num_shared, 6);
  EXPECT_THAT(NodesOf(starts[1]), ElementsAre(kOther));
}

// A step of sequence 1 goes through the executor, and is written down.
void ExpectWatched(StepExecutor& executor, FakeExecutor::Shared& nodes, StartRecorder& recorder) {
  const SequenceId sequence{1};
  executor.Submit(PlanOf({WorkOn(sequence, {kNode})}), {Announced(sequence, 2, 1, 10)});
  EXPECT_EQ(nodes.submitted.size(), 1u);
  EXPECT_EQ(nodes.announced.size(), 1u);
  const std::vector<SequenceStart> starts = recorder.TakeStarts();
  ASSERT_EQ(starts.size(), 1u);
  EXPECT_EQ(starts[0].stream, 2u);
  EXPECT_EQ(starts[0].request, 1u);
}

std::shared_ptr<FakeExecutor::Shared> SilentNodes() {
  auto nodes = std::make_shared<FakeExecutor::Shared>();
  nodes->answer_at_once = false;
  nodes->groups = {{kOther, kNode}};
  return nodes;
}

TEST(StartRecorder, PassesStepsOn) {
  StartRecorder recorder(kStreams);
  const auto nodes = SilentNodes();
  const std::unique_ptr<StepExecutor> executor =
      recorder.Watch(std::make_unique<FakeExecutor>(nodes));
  ExpectWatched(*executor, *nodes, recorder);
  EXPECT_EQ(executor->KvNodeOf(kOther), kNode);
  EXPECT_EQ(executor->kv_nodes().size(), 1u);
}

Procedure<Reconnected> AnswerWith(std::shared_ptr<FakeExecutor::Shared> nodes) {
  if (nodes == nullptr) co_return PeerLost("nobody is left");
  co_return std::unique_ptr<StepExecutor>(std::make_unique<FakeExecutor>(nodes));
}

// What comes of connecting anew to these nodes, null: to none, while the recorder watches.
Reconnected ReconnectedTo(std::shared_ptr<FakeExecutor::Shared> nodes, StartRecorder& recorder) {
  const Reconnect reconnect = Recorded(
      [nodes](Turns&, KnownNodes, TimePoint, OnChange) { return AnswerWith(nodes); }, recorder);
  Turns turns(kStart);
  Procedure<Reconnected> procedure = reconnect(turns, {}, kStart, [] {});
  procedure.Start();
  EXPECT_TRUE(procedure.done());
  return procedure.TakeResult();
}

TEST(Recorded, WatchesWhatIsConnectedAnew) {
  StartRecorder recorder(kStreams);
  const auto nodes = SilentNodes();
  const Reconnected executor = ReconnectedTo(nodes, recorder);
  ASSERT_TRUE(executor.ok()) << executor.status();
  ExpectWatched(**executor, *nodes, recorder);
}

TEST(Recorded, PassesOnThatNobodyIsLeft) {
  StartRecorder recorder(kStreams);
  EXPECT_EQ(ReconnectedTo(nullptr, recorder).status().message(), "nobody is left");
}

}  // namespace
}  // namespace lamina::testing
