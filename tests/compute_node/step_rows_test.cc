// What a compute node makes of the rows of orders, good and bad. No model is loaded.
#include "compute_node/step_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "kernels/modelled_kv_cache.h"

namespace lamina {
namespace step_rows_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr SequenceId kA{1}, kB{2}, kC{3};
constexpr NodeId kMemory{7}, kOther{8};

class StepRowsTest : public ::testing::Test {
 protected:
  StepRowsTest() {
    model_.config.vocab_size = 100;
    model_.config.max_positions = 50;
    order_.step = StepId{1};
  }

  static SessionLimits Limits() {
    SessionLimits limits;
    limits.max_model_len = 40;
    limits.max_num_batched_tokens = 6;
    return limits;
  }

  void Announce(SequenceId sequence, std::vector<TokenId> tokens) {
    NewSequence added;
    added.sequence = sequence;
    added.num_prompt_tokens = static_cast<int32_t>(tokens.size());
    added.tokens = std::move(tokens);
    order_.new_sequences.push_back(std::move(added));
  }

  ComputeWork& Add(SequenceId sequence, int64_t first_position, std::vector<TokenId> tokens,
                   bool prefill) {
    ComputeWork work;
    work.sequence = sequence;
    work.first_position = first_position;
    work.route.push_back({.node = kMemory, .num_tokens = static_cast<int32_t>(tokens.size())});
    work.tokens = std::move(tokens);
    work.prefill = prefill;
    work.sample = true;
    order_.work.push_back(std::move(work));
    return order_.work.back();
  }

  // The rows of the order so far, which is then forgotten.
  StepRows Rows(KvCache* own_kv = nullptr) {
    failed_.clear();
    ComputeOrder order = std::exchange(order_, {});
    sequences_.Update(order);
    return sequences_.RowsOf(order, own_kv, failed_);
  }

  void ExpectFailed(SequenceId sequence, const std::string& why, FailureCause cause) {
    const auto failed = std::ranges::find(failed_, sequence, &FailedSequence::sequence);
    ASSERT_NE(failed, failed_.end()) << why;
    EXPECT_THAT(failed->why.message(), HasSubstr(why));
    EXPECT_EQ(failed->cause, cause) << why;
  }

  void ExpectRefused(SequenceId sequence, const std::string& why, FailureCause cause) {
    const StepRows rows = Rows();
    EXPECT_THAT(rows.tokens, IsEmpty());
    ExpectFailed(sequence, why, cause);
  }

  LoadedModel model_;
  KnownSequences sequences_{model_, Limits()};
  ComputeOrder order_;
  std::vector<FailedSequence> failed_;
};

TEST_F(StepRowsTest, DecodeRowsComeFirstAndSayWhereTheirTokensAre) {
  Announce(kA, {5, 6, 7});
  Announce(kB, {8, 9});
  Add(kA, 2, {7}, false).route.push_back({.node = kOther, .num_tokens = 0});
  Add(kB, 0, {8, 9}, true);
  const StepRows rows = Rows();
  EXPECT_THAT(failed_, IsEmpty());
  EXPECT_THAT(rows.tokens, ElementsAre(7, 8, 9));
  EXPECT_THAT(rows.positions, ElementsAre(2, 0, 1));
  EXPECT_THAT(rows.sampled, ElementsAre(0, 2));
  EXPECT_EQ(rows.first_prefill, 1u);
  EXPECT_EQ(rows.sequence_of(2), kB);
  EXPECT_THAT(rows.attention[0].also_on, ElementsAre(kOther));
  EXPECT_FALSE(rows.attention[0].prefill);
  EXPECT_TRUE(rows.attention[1].prefill);
  EXPECT_EQ(rows.attention[2].node, kMemory);
  EXPECT_EQ(rows.attention[2].position, 1);
}

// A row says how likely the token behind it is, if that is one of the prompt.
TEST_F(StepRowsTest, RowsOfAPromptWhoseLogprobsAreAskedForAreScored) {
  Announce(kA, {5, 6, 7});
  Announce(kB, {8, 9, 10, 11});
  order_.new_sequences.back().sampling.num_prompt_logprobs = 2;
  order_.new_sequences.back().num_prompt_tokens = 3;  // one was generated before it started again
  Add(kA, 2, {7}, false);
  Add(kB, 0, {8, 9}, true).sample = false;
  StepRows rows = Rows();
  EXPECT_THAT(rows.sampled, ElementsAre(0));
  EXPECT_THAT(rows.scored, ElementsAre(1, 2));
  EXPECT_THAT(rows.kept, ElementsAre(0, 1, 2));
  EXPECT_EQ(rows.PlaceOf(2), 2u);
  Add(kB, 1, {9, 10, 11}, true);
  rows = Rows();
  EXPECT_THAT(rows.scored, ElementsAre(0)) << "behind the second one comes the answer";
  EXPECT_THAT(rows.sampled, ElementsAre(2));
  EXPECT_THAT(rows.kept, ElementsAre(0, 2));
  EXPECT_EQ(rows.PlaceOf(2), 1u);
  Add(kB, 0, {8}, true);
  rows = Rows();
  EXPECT_THAT(rows.scored, IsEmpty()) << "a row is for one of the two";
  EXPECT_THAT(rows.kept, ElementsAre(0));
}

TEST_F(StepRowsTest, TheLastRowOfAPromptThatIsEmbeddedChoosesNoToken) {
  Announce(kA, {5, 6, 7});
  Announce(kB, {8, 9, 10});
  order_.new_sequences.back().sampling.embeds = true;
  Add(kA, 2, {7}, false);
  Add(kB, 0, {8, 9}, true).sample = false;
  StepRows rows = Rows();
  EXPECT_THAT(rows.embedded, IsEmpty()) << "its last token comes later";
  Add(kA, 2, {7}, false);
  Add(kB, 1, {9, 10}, true);
  rows = Rows();
  EXPECT_THAT(rows.sampled, ElementsAre(0));
  EXPECT_THAT(rows.embedded, ElementsAre(2));
  EXPECT_THAT(rows.kept, ElementsAre(0, 2));
}

TEST_F(StepRowsTest, ATokenThatWasSampledElsewhereIsLearnt) {
  Announce(kA, {5, 6});
  Rows();
  Add(kA, 2, {77}, false);
  EXPECT_THAT(Rows().tokens, ElementsAre(77));
  ASSERT_NE(sequences_.Find(kA), nullptr);
  EXPECT_THAT(sequences_.Find(kA)->tokens, ElementsAre(5, 6, 77));
  EXPECT_EQ(sequences_.Find(kA)->num_prompt, 2u);
  order_.released = {kA};
  Rows();
  EXPECT_EQ(sequences_.Find(kA), nullptr);
}

// Starting it again mends that: it is announced anew.
TEST_F(StepRowsTest, WhatContradictsWhatIsKnownIsRefused) {
  Announce(kA, {5, 6, 7});
  Rows();
  Add(kB, 0, {1}, true);
  ExpectRefused(kB, "was not announced", FailureCause::kKvLost);
  Add(kA, 2, {9}, false);
  ExpectRefused(kA, "tokens are not the sequence's", FailureCause::kKvLost);
  Add(kA, 2, {7, 7}, true);
  ExpectRefused(kA, "do not fit a sequence of 3 tokens", FailureCause::kKvLost);
}

TEST_F(StepRowsTest, WhatContradictsItselfIsRefused) {
  Announce(kA, {5, 6, 7});
  Rows();
  Add(kA, -1, {5}, true);
  ExpectRefused(kA, "do not fit", FailureCause::kRequest);
  Add(kA, 0, {}, true);
  ExpectRefused(kA, "do not fit", FailureCause::kRequest);
  Add(kA, 40, {5}, true);
  ExpectRefused(kA, "do not fit a sequence of 40 tokens", FailureCause::kRequest);
  Add(kA, 0, {5}, true).route.clear();
  ExpectRefused(kA, "no place for some tokens", FailureCause::kRequest);
  Announce(kC, {100});
  Add(kC, 0, {100}, true);
  ExpectRefused(kC, "outside the vocabulary", FailureCause::kRequest);
}

TEST_F(StepRowsTest, OneSequenceThatIsRefusedLeavesTheOthers) {
  Announce(kA, {1, 2, 3, 4, 5});
  Announce(kB, {1, 2});
  Announce(kC, {6});
  Add(kA, 0, {1, 2, 3, 4, 5}, true);
  Add(kB, 0, {1, 2}, true);  // seven rows
  Add(kC, 0, {6}, false);    // behind a prefill
  const StepRows rows = Rows();
  EXPECT_EQ(rows.size(), 5u);
  ExpectFailed(kB, "more rows than max_num_batched_tokens", FailureCause::kRequest);
  ExpectFailed(kC, "a decode row behind a prefill row", FailureCause::kRequest);
}

TEST_F(StepRowsTest, SharedAndMadeUpTokensAreEnteredWhereThisNodeHasTheKv) {
  ModelledKvCache own_kv(32);
  Announce(kA, {1, 2, 3});
  ComputeWork& shares = Add(kA, 2, {3}, true);
  shares.route[0].slots = {9};
  shares.route[0].shared = {4, 5};
  const StepRows rows = Rows(&own_kv);
  EXPECT_THAT(failed_, IsEmpty());
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows.attention[0].slot, 9u);
  EXPECT_EQ(own_kv.used_tokens(), 2) << "the tokens that are shared";

  order_.dummy_prefill = true;
  Add(kB, 0, {1, 2, 3}, true).route[0].slots = {10, 11, 12};
  EXPECT_EQ(Rows(&own_kv).size(), 0u);
  EXPECT_EQ(own_kv.used_tokens(), 5);

  Add(kA, 2, {3}, true).route[0].shared = {4};
  EXPECT_EQ(Rows(&own_kv).size(), 0u);
  ExpectFailed(kA, "not those of the tokens before", FailureCause::kRequest);

  order_.step = StepId{2};
  Add(kA, 2, {3}, true).route[0].shared = {4, 5};  // it has them already
  EXPECT_EQ(Rows(&own_kv).size(), 0u);
  ExpectFailed(kA, "has 2 tokens here", FailureCause::kKvLost);
}

}  // namespace step_rows_test
}  // namespace lamina
