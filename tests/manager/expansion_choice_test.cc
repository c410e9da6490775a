// How many layers of a KV cache have a place in memory.
#include "manager/expansion_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/device_timeline.h"
#include "tiers/modelled_ring.h"

namespace lamina {
namespace {

constexpr int kLayers = 24;
constexpr NodeId kNode{3};

ElasticKv Kv() {
  return *ElasticKvOf({.expansion = 3, .is_auto = true}, kLayers, /*tokens_of_all=*/1200);
}

// A second's copies of the cache with all layers inside; waits of a step, played on the ring that
// nodes have, in virtual time.
Clock::duration Waits(int inside, double layer_bytes_per_s, Clock::duration step) {
  const auto now = std::make_shared<TimePoint>();
  const auto ring = MakeModelledFifoRing(kLayers, 0, inside, layer_bytes_per_s, layer_bytes_per_s,
                                         now, LayerBytes(Kv(), /*layer_token_bytes=*/1000));
  EXPECT_TRUE(ring.ok()) << ring.status();
  Clock::duration waited{};
  for (int i = 0; i < 60 * kLayers; ++i) {
    const TimePoint before = *now;
    EXPECT_TRUE((*ring)->Enter(i % kLayers).ok());
    if (i >= 40 * kLayers) waited += *now - before;
    *now += step / kLayers;
    (*ring)->Leave(i % kLayers, true);
  }
  return waited / 20;
}

TEST(ExpansionChoice, WhatFitsIsWhatTheRingHidesAndNothingLessDoes) {
  const Clock::duration step = milliseconds(24);
  int num_between = 0;
  for (const double rate : {2e8, 5e8, 8e8, 1e9, 1.5e9, 2e9, 3e9, 5e9, 1e10}) {
    // Of a layer while all are inside.
    const Clock::duration copy = FromSeconds(1000.0 * 1200 / rate);
    const int fewest = FewestThatFit(Kv(), kLayers, copy, step);
    if (fewest < kLayers) {
      EXPECT_EQ(Waits(fewest, rate, step).count(), 0) << rate << " " << fewest;
    }
    if (fewest > Kv().least_inside + 1) {
      EXPECT_GT(Waits(fewest - 2, rate, step).count(), 0) << rate << " " << fewest;
    }
    num_between += fewest < kLayers && fewest > Kv().least_inside;
  }
  EXPECT_GE(num_between, 3);
}

class ExpansionChoiceTest : public ::testing::Test {
 protected:
  ExpansionChoiceTest()
      : scheduler_({.max_num_seqs = 64, .max_num_batched_tokens = 4096, .max_model_len = 1200},
                   MakeFifoQueue(), MakeLeastLoadedPlacement()) {
    scheduler_.AddNode({kNode, 1200, Kv().Tokens(Kv().least_inside)});
    choice_.Begin(kNode, Kv(), kLayers, scheduler_);
  }

  // So many requests of 300 tokens wait for room, or run.
  void Ask(int num_requests) {
    for (int i = 0; i < num_requests; ++i) {
      ASSERT_TRUE(scheduler_.Add({SequenceId{next_++}, std::vector<TokenId>(300, 7), 500}).ok());
    }
  }

  // Steps of 24 ms; `waits`: how long of that with so many layers inside.
  template <typename WaitsOf>
  void Serve(int num_steps, Clock::duration copy_of_all, WaitsOf waits) {
    for (int i = 0; i < num_steps; ++i) {
      scheduler_.CompleteStep(Sampled(scheduler_.NextStep()));
      const int ordered = choice_.ordered().at(kNode);
      state_.num_layers = ordered;
      state_.waited += waits(ordered);
      if (ordered < kLayers) state_.copy = copy_of_all * kLayers / ordered;
      choice_.TakeState(kNode, state_);
      choice_.TakeStep(milliseconds(24) + waits(ordered), scheduler_);
    }
  }

  static std::vector<Scheduler::Sampled> Sampled(const StepPlan& plan) {
    std::vector<Scheduler::Sampled> sampled;
    for (const Work& work : plan.work)
      if (work.sample) sampled.push_back({work.sequence, 1});
    return sampled;
  }

  int64_t capacity() const { return scheduler_.stats().nodes[0].capacity_tokens; }

  uint64_t next_ = 1;
  Scheduler scheduler_;
  LayersInside state_{kLayers};
  ExpansionChoice choice_;
};

constexpr auto kNoWaits = [](int) { return Clock::duration::zero(); };

TEST_F(ExpansionChoiceTest, NothingComesAndGoesWhileThereIsRoom) {
  Ask(2);
  Serve(300, milliseconds(1), kNoWaits);
  EXPECT_EQ(choice_.ordered().at(kNode), kLayers);
  EXPECT_EQ(capacity(), 1200);
}

TEST_F(ExpansionChoiceTest, TheCapacityGrowsToWhatTheLinkHides) {
  Ask(30);
  const Clock::duration copy = milliseconds(1);
  Serve(300, copy, kNoWaits);
  const int fewest = FewestThatFit(Kv(), kLayers, copy, milliseconds(24));
  EXPECT_LT(fewest, kLayers);
  EXPECT_EQ(choice_.ordered().at(kNode), fewest);
  EXPECT_EQ(capacity(), Kv().Tokens(fewest));
}

TEST_F(ExpansionChoiceTest, WhereStepsWaitFewerTokensHaveRoom) {
  Ask(30);
  const auto waits = [](int inside) { return milliseconds(inside < 20 ? 2 : 0); };
  Serve(1000, milliseconds(1), waits);
  EXPECT_GE(choice_.ordered().at(kNode), 19);
  EXPECT_LE(choice_.ordered().at(kNode), 21);
  EXPECT_LE(capacity(), Kv().Tokens(19));
}

TEST_F(ExpansionChoiceTest, ALinkThatBecomesSlowTakesRoomAway) {
  Ask(30);
  Serve(300, milliseconds(1), kNoWaits);
  const int64_t before = capacity();
  // Something else takes half of the link: copies take twice the time, and steps wait for them.
  const int fits = FewestThatFit(Kv(), kLayers, milliseconds(2), milliseconds(24));
  const auto waits = [&](int inside) { return milliseconds(inside < fits ? 3 : 0); };
  Serve(300, milliseconds(2), waits);
  EXPECT_EQ(choice_.ordered().at(kNode), fits);
  EXPECT_LT(capacity(), before);
}

TEST_F(ExpansionChoiceTest, ACacheThatIsFoundWithFewLayersInsideGoesOnSo) {
  choice_.Begin(kNode, Kv(), 10, scheduler_);
  EXPECT_EQ(choice_.ordered().at(kNode), 10);
  EXPECT_EQ(capacity(), Kv().Tokens(10));
  choice_.Begin(kNode, Kv(), kLayers, scheduler_);
  EXPECT_EQ(capacity(), 1200) << "another one, which is new";
  choice_.End(kNode);
  EXPECT_TRUE(choice_.ordered().empty());
}

TEST_F(ExpansionChoiceTest, WhatANodeSaysNeedNotBePossible) {
  Ask(30);
  for (const LayersInside& told :
       {LayersInside{-3, std::chrono::hours(-1), std::chrono::hours(-1)},
        LayersInside{kLayers, std::chrono::hours(1000000), std::chrono::hours(1000000)},
        LayersInside{kLayers, std::chrono::hours(-1000000), std::chrono::nanoseconds(-1)},
        LayersInside{1 << 30}}) {
    for (int i = 0; i < 100; ++i) {
      scheduler_.CompleteStep(Sampled(scheduler_.NextStep()));
      choice_.TakeState(kNode, told);
      choice_.TakeStep(milliseconds(24), scheduler_);
      EXPECT_GE(choice_.ordered().at(kNode), Kv().least_inside);
      EXPECT_LE(choice_.ordered().at(kNode), kLayers);
    }
  }
}

}  // namespace
}  // namespace lamina
