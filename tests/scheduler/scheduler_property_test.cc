// Thousands of random steps per seed; FakeKvNodes checks every plan against what the nodes hold
// (see tests/support/fake_kv_nodes.h).
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <set>

#include "scheduler/scheduler.h"
#include "tests/support/fake_cluster.h"

namespace lamina {
namespace {

class RandomLoad {
 public:
  RandomLoad(uint32_t seed, bool spread, int num_batches = 1, bool prefix_caching = false,
             bool replays_as_computed = false, std::unique_ptr<QueuePolicy> queue = MakeFifoQueue(),
             int64_t swap_tokens = 0)
      : random_(seed),
        spread_(spread),
        ranks_(queue->ranks()),
        options_(RandomOptions(num_batches, prefix_caching, replays_as_computed, swap_tokens)),
        nodes_(RandomNodes()),
        cluster_(options_, nodes_, std::move(queue), RandomPlacement()) {}

  // What its queue, one that ranks, is to go by.
  void RankByPriority() { cluster_.nodes().OrderBy(FakeKvNodes::Priority); }
  void RankByDue() {
    cluster_.nodes().OrderBy([this](const SequenceSpec& spec, int64_t num_generated) {
      return last_.contains(spec.id) ? std::numeric_limits<int64_t>::max()
                                     : FakeKvNodes::Due(spec, num_generated);
    });
  }

  void Run(int num_steps) {
    for (int step = 0; step < num_steps && !::testing::Test::HasFailure(); ++step) {
      if (step % 1000 < 700 && Below(2) == 0) AddOne();  // then the load drains for a while
      const int batch = static_cast<int>(Below(static_cast<uint32_t>(options_.num_batches)));
      if (!cluster_.in_flight(batch)) cluster_.Plan(batch);
      // In flight.
      if (Below(10) == 0) AddOne();
      if (Below(50) == 0) FinishOne();
      if (Below(100) == 0) StartOneAgain();
      if (Below(400) == 0) LoseOne();
      if (restarts_ && Below(100) == 0) {
        cluster_.Restart();
        suspended_.clear();
      }
      if (abandons_ && Below(50) == 0) {
        cluster_.Abandon();
        suspended_.clear();
      }
      if (succeeds_ && Below(100) == 0) Succeed();
      if (succeeds_ && Below(20) == 0) cluster_.scheduler().DropLeft();
      now_ += milliseconds(1);
      if (ranks_) {
        for (const SequenceId id : cluster_.scheduler().TakeHopeless(now_)) TakeHopeless(id);
      }
      cluster_.Complete(options_.num_batches == 1
                            ? 0
                            : static_cast<int>(Below(static_cast<uint32_t>(options_.num_batches))));
      if (Below(50) == 0) FinishOne();
      if (Below(400) == 0) LoseOne();
      if (Below(60) == 0 && num_nodes_ < 4) AddNode();
      if (suspends_) SuspendOrResumeOne();
      if (Below(100) == 0) {
        const NodeId node{Below(next_node_)};
        cluster_.scheduler().SetSpeed(node, 0.25 * (1 + Below(8)));
      }
    }
    for (const NodeId node : std::exchange(suspended_, {})) cluster_.Resume(node.value);
    num_left_ += cluster_.scheduler().stats().num_left_tokens;
    cluster_.scheduler().DropLeft();
    // For what is parked.
    cluster_.AddNode({NodeId{next_node_++}, options_.max_model_len});
    cluster_.RunUntilIdle();
    CheckResults();
  }

  // From here on all nodes forget everything now and then.
  void AlsoRestart() { restarts_ = true; }

  // The compute nodes forget everything now and then.
  void AlsoAbandon() { abandons_ = true; }

  // And nodes are late now and then.
  void AlsoSuspend() { suspends_ = true; }

  // Another scheduler takes over now and then.
  void AlsoSucceed() { succeeds_ = true; }

  int64_t num_left() const { return num_left_; }  // tokens that another scheduler went on with
  int64_t num_kept() { return cluster_.nodes().num_kept(); }
  int64_t num_again() { return cluster_.nodes().num_again(); }
  int64_t num_preemptions() { return cluster_.nodes().num_preemptions(); }
  size_t num_spread() { return cluster_.nodes().num_spread(); }
  int64_t num_shared() { return cluster_.nodes().num_shared(); }
  int64_t num_swapped() { return cluster_.nodes().num_swapped(); }
  int64_t num_hopeless() const { return num_hopeless_; }
  size_t num_completed() const { return cluster_.results().size(); }

 private:
  // Prompt and new tokens of those not aborted.
  using Sizes = std::map<SequenceId, std::pair<int64_t, int64_t>>;

  // One that is not complete, or the end.
  Sizes::iterator AnyOpen() {
    if (accepted_.empty()) return accepted_.end();
    auto it = accepted_.begin();
    std::advance(it, Below(static_cast<uint32_t>(accepted_.size())));
    return cluster_.results().contains(it->first) ? accepted_.end() : it;
  }

  uint32_t Below(uint32_t end) { return static_cast<uint32_t>(random_() % end); }

  SchedulerOptions RandomOptions(int num_batches, bool prefix_caching, bool replays_as_computed,
                                 int64_t swap_tokens) {
    SchedulerOptions options;
    options.swap_tokens = swap_tokens;
    options.replays_as_computed = replays_as_computed;
    options.num_batches = num_batches;
    options.prefix_caching = prefix_caching;
    options.max_num_seqs = 1 + static_cast<int>(Below(12));
    options.max_num_batched_tokens = options.max_num_seqs + static_cast<int>(Below(60));
    options.max_model_len = 180;
    options.max_queued = 20;
    return options;
  }

  std::vector<KvNode> RandomNodes() {
    std::vector<KvNode> nodes;
    for (num_nodes_ = 0; num_nodes_ <= Below(3); ++num_nodes_)
      nodes.push_back({NodeId{next_node_++}, 40 + Below(180)});
    return nodes;
  }

  void AddNode() {
    cluster_.AddNode({NodeId{next_node_++}, 40 + Below(180)});
    ++num_nodes_;
  }

  void AddOne() {
    const int64_t prompt_tokens = 1 + Below(Below(4) == 0 ? 60 : 10),
                  max_new_tokens = 1 + Below(Below(3) == 0 ? 10 : 120);
    const uint64_t id = next_id_++;
    const uint64_t group = options_.prefix_caching && !ranks_ && Below(3) == 0 ? 1 + id % 2 : 0;
    const Status status = ranks_ ? cluster_.Add(id, prompt_tokens, max_new_tokens, RandomUrgency())
                                 : cluster_.Add(id, prompt_tokens, max_new_tokens, group);
    if (status.ok()) {
      accepted_[SequenceId{id}] = {prompt_tokens, max_new_tokens};
      if (group != 0) in_groups_.insert(SequenceId{id});
      if (cluster_.scheduler().IsParked(SequenceId{id}) || !suspended_.empty())
        were_parked_.insert(SequenceId{id});
    } else if (status.code() == StatusCode::kInvalidArgument) {
      int64_t together = 0;
      for (const NodeUse& node : cluster_.scheduler().stats().nodes) {
        EXPECT_GT(prompt_tokens + max_new_tokens, node.capacity_tokens);
        together += node.capacity_tokens;
      }
      EXPECT_TRUE(!spread_ || prompt_tokens + max_new_tokens > together);
    } else {
      EXPECT_EQ(status.code(), StatusCode::kTryAgain);
      const SchedulerStats stats = cluster_.scheduler().stats();
      EXPECT_GE(stats.num_waiting + stats.num_parked, options_.max_queued);
    }
  }

  FakeCluster::Urgency RandomUrgency() {
    FakeCluster::Urgency urgency;
    urgency.start = now_;
    urgency.priority = static_cast<int>(Below(4)) - 2;
    urgency.slo.ttft = milliseconds(Below(4) == 0 ? 0 : 1 + Below(100));
    urgency.slo.tpot = milliseconds(Below(4));
    return urgency;
  }

  // Waits, and its first token was due. Some are dropped.
  void TakeHopeless(SequenceId id) {
    ASSERT_TRUE(accepted_.contains(id));
    EXPECT_EQ(std::ssize(cluster_.scheduler().Tokens(id)), accepted_.at(id).first);
    ++num_hopeless_;
    if (Below(2) == 0) {
      last_.insert(id);
      return cluster_.scheduler().PutLast(id);
    }
    cluster_.Finish(id.value);
    accepted_.erase(id);
  }

  // A client goes away, or a stop token: any sequence, in any state.
  void FinishOne() {
    const auto it = AnyOpen();
    if (it == accepted_.end()) return;
    const auto& [prompt_tokens, max_new_tokens] = it->second;
    const std::vector<TokenId> alone =
        GenerateAlone(cluster_.Prompt(it->first, prompt_tokens), max_new_tokens);
    const std::span<const TokenId> tokens = cluster_.scheduler().Tokens(it->first);
    EXPECT_GE(tokens.size(), static_cast<size_t>(prompt_tokens));
    EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), alone.begin()));
    if (options_.prefix_caching && Below(2) == 0) {
      cluster_.Fail(it->first.value);
    } else {
      cluster_.Finish(it->first.value);
    }
    accepted_.erase(it);
  }

  std::unique_ptr<PlacementPolicy> RandomPlacement() {
    return spread_ ? MakeSpreadPlacement(1 + Below(60)) : MakeLeastLoadedPlacement();
  }

  // Who waited in front because it had to start again does so no more.
  void Succeed() {
    num_left_ += cluster_.scheduler().stats().num_left_tokens;
    for (const uint64_t id : cluster_.Succeed(MakeFifoQueue(), RandomPlacement()))
      accepted_.erase(SequenceId{id});
    suspended_.clear();
  }

  // A row of it failed, or was lost.
  void StartOneAgain() {
    if (const auto it = AnyOpen(); it != accepted_.end()) cluster_.Again(it->first.value);
  }

  // While one is suspended, what only that one can hold may be overtaken.
  void SuspendOrResumeOne() {
    if (!suspended_.empty() && Below(20) == 0) {
      cluster_.Resume(suspended_.begin()->value);
      suspended_.erase(suspended_.begin());
    }
    const std::vector<NodeUse> nodes = cluster_.scheduler().stats().nodes;
    if (nodes.empty() || Below(60) != 0) return;
    const NodeId node = nodes[Below(static_cast<uint32_t>(nodes.size()))].id;
    cluster_.Suspend(node.value);
    suspended_.insert(node);
    for (const auto& [id, sizes] : accepted_) were_parked_.insert(id);
  }

  void LoseOne() {
    const std::vector<NodeUse> nodes = cluster_.scheduler().stats().nodes;
    if (nodes.empty()) return;
    --num_nodes_;
    const NodeId node = nodes[Below(static_cast<uint32_t>(nodes.size()))].id;
    suspended_.erase(node);
    const LostSequences lost = cluster_.LoseNode(node.value);
    for (const std::vector<SequenceId>& ids : {lost.again, lost.parked}) {
      for (const SequenceId id : ids) EXPECT_TRUE(accepted_.contains(id));
    }
    were_parked_.insert(lost.parked.begin(), lost.parked.end());
  }

  // Whoever was not aborted has the tokens that it would have alone, and nobody was overtaken at
  // the first start but those who may have waited for others of their group or for a larger node.
  void CheckResults() {
    EXPECT_LE(cluster_.results().size(), accepted_.size());
    for (const auto& [id, sizes] : accepted_) {
      const auto result = cluster_.results().find(id);
      ASSERT_NE(result, cluster_.results().end()) << "sequence " << id << " did not complete";
      EXPECT_EQ(result->second, GenerateAlone(cluster_.Prompt(id, sizes.first), sizes.second));
    }
    if (ranks_) return;
    SequenceId latest{0};
    for (const SequenceId id : cluster_.nodes().first_starts()) {
      if (were_parked_.contains(id)) continue;
      EXPECT_TRUE(latest < id || in_groups_.contains(id))
          << "sequence " << latest << " overtook " << id;
      latest = std::max(latest, id);
    }
  }

  std::mt19937 random_;
  const bool spread_, ranks_;
  TimePoint now_;
  int64_t num_hopeless_ = 0;
  std::set<SequenceId> last_;  // hopeless, and not dropped
  bool restarts_ = false, abandons_ = false, succeeds_ = false;
  int64_t num_left_ = 0;
  uint32_t num_nodes_ = 0;
  uint32_t next_node_ = 0;
  // Drawn in this order, with every compiler.
  SchedulerOptions options_;
  std::vector<KvNode> nodes_;
  FakeCluster cluster_;
  uint64_t next_id_ = 1;
  std::set<SequenceId> in_groups_;
  std::set<SequenceId> were_parked_;  // or waited while a node was suspended
  bool suspends_ = false;
  std::set<NodeId> suspended_;
  Sizes accepted_;
};

class SchedulerProperty : public ::testing::TestWithParam<uint32_t> {};

TEST_P(SchedulerProperty, RandomLoadKeepsEveryPromise) {
  RandomLoad load(GetParam(), /*spread=*/false);
  load.Run(2000);
  EXPECT_GT(load.num_completed(), 20u);
  EXPECT_EQ(load.num_spread(), 0u);
}

TEST_P(SchedulerProperty, AlsoWhereSequencesSpreadOverNodes) {
  RandomLoad load(GetParam(), /*spread=*/true);
  load.Run(2000);
  EXPECT_GT(load.num_completed(), 20u);
}

TEST_P(SchedulerProperty, AlsoWithSeveralBatchesInFlight) {
  for (const bool spread : {false, true}) {
    RandomLoad load(GetParam(), spread, 2 + static_cast<int>(GetParam() % 3));
    load.Run(3000);
    EXPECT_GT(load.num_completed(), 20u);
  }
}

TEST_P(SchedulerProperty, AlsoWhenAllNodesForgetEverything) {
  RandomLoad load(GetParam(), GetParam() % 2 == 0, 1 + static_cast<int>(GetParam() % 4));
  load.AlsoRestart();
  load.Run(3000);
  EXPECT_GT(load.num_completed(), 20u);
}

TEST_P(SchedulerProperty, AlsoWhenTheComputeNodesForgetEverything) {
  for (const int num_batches : {1, 3}) {
    RandomLoad load(GetParam(), /*spread=*/GetParam() % 2 == 0, num_batches,
                    /*prefix_caching=*/GetParam() % 4 >= 2,
                    /*replays_as_computed=*/GetParam() % 6 == 3);
    load.AlsoAbandon();
    if (GetParam() % 5 == 0) load.AlsoRestart();
    if (GetParam() % 7 < 3) load.AlsoSuspend();
    load.Run(5000);
    EXPECT_GT(load.num_completed(), 20u);
    EXPECT_GT(load.num_kept(), 10);
  }
}

TEST_P(SchedulerProperty, AlsoWhenAnotherSchedulerTakesOver) {
  for (const int num_batches : {1, 3}) {
    RandomLoad load(GetParam(), /*spread=*/GetParam() % 3 == 0, num_batches,
                    /*prefix_caching=*/GetParam() % 2 == 0,
                    /*replays_as_computed=*/GetParam() % 3 == 1);
    load.AlsoSucceed();
    if (GetParam() % 4 == 0) load.AlsoAbandon();
    if (GetParam() % 5 == 0) load.AlsoRestart();
    if (GetParam() % 7 < 3) load.AlsoSuspend();
    load.Run(5000);
    EXPECT_GT(load.num_completed(), 20u);
    EXPECT_GT(load.num_left(), 100);
  }
}

TEST_P(SchedulerProperty, AlsoWhereSequencesShareTheirBeginnings) {
  for (const int num_batches : {1, 3}) {
    RandomLoad load(GetParam(), GetParam() % 4 == 3, num_batches, /*prefix_caching=*/true);
    if (GetParam() % 3 == 0) load.AlsoRestart();
    load.Run(3000);
    EXPECT_GT(load.num_completed(), 20u);
  }
}

TEST_P(SchedulerProperty, AlsoWhereSequencesAreReplayedAsTheyWereComputed) {
  for (const bool prefix_caching : {false, true}) {
    RandomLoad load(GetParam(), /*spread=*/false, 1 + static_cast<int>(GetParam() % 3),
                    prefix_caching, /*replays_as_computed=*/true);
    if (GetParam() % 2 == 0) load.AlsoRestart();
    load.Run(3000);
    EXPECT_GT(load.num_completed(), 20u);
  }
}

TEST_P(SchedulerProperty, AlsoWherePreemptedSequencesAreSwapped) {
  int64_t num_swapped = 0;
  for (const int num_batches : {1, 3}) {
    RandomLoad load(GetParam(), /*spread=*/GetParam() % 6 == 5, num_batches,
                    /*prefix_caching=*/GetParam() % 6 == 4,
                    /*replays_as_computed=*/GetParam() % 3 == 1, MakeFifoQueue(),
                    /*swap_tokens=*/GetParam() % 2 == 0 ? 100 : 100000);
    if (GetParam() % 4 == 0) load.AlsoRestart();
    if (GetParam() % 5 == 0) load.AlsoAbandon();
    if (GetParam() % 7 < 3) load.AlsoSuspend();
    load.Run(3000);
    EXPECT_GT(load.num_completed(), 20u);
    num_swapped += load.num_swapped();
  }
  if (GetParam() % 6 < 4) {
    EXPECT_GT(num_swapped, 0);
  }
}

TEST_P(SchedulerProperty, AlsoWhereNodesAreLateNowAndThen) {
  int64_t num_again = 0;
  for (const int num_batches : {1, 3}) {
    RandomLoad load(GetParam(), /*spread=*/GetParam() % 3 == 0, num_batches,
                    /*prefix_caching=*/GetParam() % 2 == 0);
    load.AlsoSuspend();
    if (GetParam() % 4 == 0) load.AlsoRestart();
    load.Run(3000);
    EXPECT_GT(load.num_completed(), 20u);
    num_again += load.num_again();
  }
  EXPECT_GT(num_again, 3);
}

TEST_P(SchedulerProperty, AlsoWhereSequencesAreServedByPriority) {
  for (const int num_batches : {1, 3}) {
    RandomLoad load(GetParam(), /*spread=*/GetParam() % 3 == 0, num_batches,
                    /*prefix_caching=*/GetParam() % 2 == 0,
                    /*replays_as_computed=*/GetParam() % 3 == 1, MakePriorityQueue());
    load.RankByPriority();
    if (GetParam() % 4 == 0) load.AlsoRestart();
    load.Run(3000);
    EXPECT_GT(load.num_completed(), 20u);
  }
}

TEST_P(SchedulerProperty, AlsoWhereSequencesAreServedByWhatIsDueFirst) {
  int64_t num_hopeless = 0;
  for (const int num_batches : {1, 3}) {
    RandomLoad load(GetParam(), /*spread=*/GetParam() % 3 == 0, num_batches,
                    /*prefix_caching=*/GetParam() % 2 == 0,
                    /*replays_as_computed=*/GetParam() % 3 == 1, MakeDeadlineQueue());
    load.RankByDue();
    load.Run(3000);
    EXPECT_GT(load.num_completed(), 20u);
    num_hopeless += load.num_hopeless();
  }
  EXPECT_GT(num_hopeless, 5);
}

INSTANTIATE_TEST_SUITE_P(Seeds, SchedulerProperty, ::testing::Range(0u, 24u));

// The promises above would be cheap if nothing was ever preempted.
TEST(RandomLoad, Preempts) {
  for (const bool spread : {false, true}) {
    int64_t num_preemptions = 0;
    size_t num_spread = 0;
    for (uint32_t seed = 100; seed < 124; ++seed) {
      RandomLoad load(seed, spread);
      load.Run(1000);
      num_preemptions += load.num_preemptions();
      num_spread += load.num_spread();
    }
    EXPECT_GT(num_preemptions, 50);
    EXPECT_EQ(num_spread > 50, spread) << num_spread;
  }
}

TEST(RandomLoad, SharesBeginnings) {
  int64_t num_shared = 0;
  for (uint32_t seed = 100; seed < 108; ++seed) {
    RandomLoad load(seed, /*spread=*/false, 1, /*prefix_caching=*/true);
    load.Run(1000);
    num_shared += load.num_shared();
  }
  EXPECT_GT(num_shared, 200);
}

}  // namespace
}  // namespace lamina
