// Ranks that all live in this process add up their parts over paths that may fail.
#include "compute_node/all_reduce.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/faulty_fabric.h"
#include "tests/support/join_all.h"
#include "tests/support/plain_slices.h"
#include "tests/support/tiny_checkpoint.h"

namespace lamina {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr int kRanks = 3;
constexpr size_t kRows = 2;
constexpr int kBatches = 2;

struct Rank {
  std::unique_ptr<LoadedModel> model;
  std::unique_ptr<ContextExchange> exchange;
  std::vector<AllReduce> sums;      // by batch
  std::vector<PlainSlices> slices;  // by batch
};

class AllReduceTest : public ::testing::Test {
 protected:
  static TinyCheckpointOptions Shape() {
    TinyCheckpointOptions options;
    options.num_heads = 6;
    options.num_kv_heads = 3;
    return options;
  }

  // `of_rank_1`: what happens to what rank 1 sends.
  void Join(const FaultPlan& of_rank_1 = {}, DType wire_dtype = DType::kF32,
            Clock::duration patience = seconds(5)) {
    std::vector<ComputeNodeAddress> nodes;
    std::vector<std::shared_ptr<Ladder>> ladders;
    for (int i = 0; i < kRanks; ++i) {
      std::vector<std::unique_ptr<Fabric>> fabrics;
      fabrics.push_back(std::make_unique<FaultyFabric>(*OpenFabric("loopback"),
                                                       i == 1 ? of_rank_1 : FaultPlan{}));
      ladders.push_back(std::make_shared<Ladder>(std::move(fabrics)));
      ASSERT_TRUE(ladders.back()->Listen("127.0.0.1").ok());
      nodes.push_back({NodeId{static_cast<uint32_t>(11 + i)}, "c" + std::to_string(i),
                       ladders.back()->offers()});
    }
    std::vector<Result<JoiningExchange>> joining;
    for (int i = 0; i < kRanks; ++i) {
      Rank& rank = ranks_[static_cast<size_t>(i)];
      rank.model = *LoadedModel::Describe(checkpoint_.dir(), {1, 0, kRanks, i});
      ContextExchangeOptions options;
      options.epoch = 7;
      options.session_token = std::string(kSessionTokenBytes, 't');
      options.payload_checksum = Switch::kOn;
      options.self = NodeId{static_cast<uint32_t>(11 + i)};
      options.num_batches = kBatches;
      options.payload_bytes = 100;
      options.sum_bytes = MaxPartialSumBytes(rank.model->sliced, wire_dtype, kRows);
      options.peer_timeout = seconds(2);
      joining.push_back(ContextExchange::StartJoin(options, ladders[static_cast<size_t>(i)], nodes,
                                                   Deadline::After(seconds(10))));
    }
    std::vector<Result<std::unique_ptr<ContextExchange>>> joined = JoinAll(std::move(joining));
    for (int i = 0; i < kRanks; ++i) {
      Rank& rank = ranks_[static_cast<size_t>(i)];
      ASSERT_TRUE(joined[static_cast<size_t>(i)].ok()) << joined[static_cast<size_t>(i)].status();
      rank.exchange = *std::move(joined[static_cast<size_t>(i)]);
      for (uint32_t batch = 0; batch < kBatches; ++batch) {
        rank.sums.emplace_back(*rank.exchange, device_, *rank.model,
                               AllReduceOptions{wire_dtype, batch, patience});
        rank.slices.emplace_back(rank.model->sliced, kRows);
      }
    }
    for (const Op& op : ranks_[0].model->sliced.graph.ops) {
      if (op.kind == OpKind::kAllReduce) ops_.push_back(op);
    }
    width_ = static_cast<size_t>(
        ranks_[0].model->sliced.graph.values[static_cast<size_t>(ops_[0].output)].width);
  }

  // Parts whose sum depends on the order in which they are added, and on every rank, batch and sum.
  static float PartOf(int rank, int batch, size_t sum, size_t i) {
    const float own = 0.37f * static_cast<float>(i + 1) + 11.1f * static_cast<float>(sum) +
                      100.3f * static_cast<float>(batch);
    return rank == 0 ? own : rank == 1 ? 1e7f - own : -1e7f;
  }

  void Start(int rank, int batch, size_t sum, uint64_t step = 3) {
    Rank& of = ranks_[static_cast<size_t>(rank)];
    for (size_t i = 0; i < kRows * width_; ++i)
      of.slices[static_cast<size_t>(batch)].value(ops_[sum].inputs[0])[i] =
          PartOf(rank, batch, sum, i);
    of.sums[static_cast<size_t>(batch)].Start(StepId{step}, ops_[sum], kRows,
                                              of.slices[static_cast<size_t>(batch)]);
    EXPECT_TRUE(of.sums[static_cast<size_t>(batch)].under_way());
  }

  // Until the rank has all parts or another rank is lost.
  bool Await(int rank, int batch) {
    Rank& of = ranks_[static_cast<size_t>(rank)];
    for (const Deadline deadline = Deadline::After(seconds(10));
         !deadline.Passed() && !of.exchange->lost(); of.exchange->Poll()) {
      if (of.sums[static_cast<size_t>(batch)].Ready()) return true;
    }
    return false;
  }

  void ExpectSum(int rank, int batch, size_t sum) {
    ASSERT_TRUE(Await(rank, batch));
    Rank& of = ranks_[static_cast<size_t>(rank)];
    std::vector<StepResult> told;
    ASSERT_TRUE(
        of.sums[static_cast<size_t>(batch)].Finish(of.slices[static_cast<size_t>(batch)], told));
    EXPECT_TRUE(told.empty());
    for (size_t i = 0; i < kRows * width_; ++i) {
      const float expected =
          (PartOf(0, batch, sum, i) + PartOf(1, batch, sum, i)) + PartOf(2, batch, sum, i);
      ASSERT_EQ(of.slices[static_cast<size_t>(batch)].value(ops_[sum].output)[i], expected)
          << "rank " << rank << " element " << i;
    }
  }

  WorkerTeam team_{1};
  CpuDevice device_{team_};
  const TinyCheckpoint checkpoint_{Shape()};
  std::array<Rank, kRanks> ranks_;
  std::vector<Op> ops_;
  size_t width_ = 0;
};

TEST_F(AllReduceTest, AllRanksAddInTheSameOrderWhicheverBatchIsFirst) {
  Join();
  for (uint64_t step = 1; step <= 3; ++step) {
    for (size_t sum = 0; sum + 1 < ops_.size(); ++sum) {
      for (int rank = 0; rank < kRanks; ++rank) {
        for (int i = 0; i < kBatches; ++i) Start(rank, (rank + i) % kBatches, sum, step);
      }
      for (int rank = 0; rank < kRanks; ++rank) {
        for (int i = 0; i < kBatches; ++i) ExpectSum(rank, (rank + i + 1) % kBatches, sum);
      }
    }
  }
}

TEST_F(AllReduceTest, ARankMayBeOneSumAhead) {
  Join();
  for (int rank = 0; rank < kRanks; ++rank) Start(rank, 0, 0);
  ExpectSum(0, 0, 0);
  Start(0, 0, 1);  // the others have not taken its part of sum 0 yet
  ExpectSum(1, 0, 0);
  Start(1, 0, 1);
  ExpectSum(2, 0, 0);
  Start(2, 0, 1);
  for (int rank = 0; rank < kRanks; ++rank) ExpectSum(rank, 0, 1);
}

TEST_F(AllReduceTest, PartsThatFindNoRoomAreSentLater) {
  bool full = false;
  FaultPlan plan;
  plan.full = [&] { return full; };
  Join(plan);
  for (size_t sum = 0; sum + 1 < ops_.size(); ++sum) {
    full = true;
    for (int rank = 0; rank < kRanks; ++rank) Start(rank, 0, sum);
    for (int i = 0; i < 10; ++i) {
      for (const Rank& rank : ranks_) rank.exchange->Poll();
    }
    EXPECT_FALSE(ranks_[0].sums[0].Ready());
    full = false;
    ranks_[1].exchange->Poll();
    for (int rank = 0; rank < kRanks; ++rank) ExpectSum(rank, 0, sum);
  }
}

TEST_F(AllReduceTest, NotificationsThatComeTwiceAreDropped) {
  FaultPlan plan;
  plan.duplicate_notification = 1;
  Join(plan);
  for (size_t sum = 0; sum + 1 < ops_.size(); ++sum) {
    for (int rank = 0; rank < kRanks; ++rank) Start(rank, 0, sum);
    for (int rank = 0; rank < kRanks; ++rank) ExpectSum(rank, 0, sum);
  }
  EXPECT_GT(ranks_[0].exchange->TakeStale(), 0);
}

TEST_F(AllReduceTest, OwnPartsAreRoundedAsTheOthersGetThem) {
  Join({}, DType::kBF16);
  for (int rank = 0; rank < kRanks; ++rank) {
    Rank& of = ranks_[static_cast<size_t>(rank)];
    for (size_t i = 0; i < kRows * width_; ++i)
      of.slices[0].value(ops_[0].inputs[0])[i] = 1.001f + static_cast<float>(rank);
    of.sums[0].Start(StepId{3}, ops_[0], kRows, of.slices[0]);
  }
  for (int rank = 0; rank < kRanks; ++rank) {
    ASSERT_TRUE(Await(rank, 0));
    Rank& of = ranks_[static_cast<size_t>(rank)];
    std::vector<StepResult> told;
    ASSERT_TRUE(of.sums[0].Finish(of.slices[0], told));
    EXPECT_EQ(of.slices[0].value(ops_[0].output)[0], 1.0f + 2.0f + 3.0f) << "rank " << rank;
  }
}

TEST_F(AllReduceTest, TheLastSumIsRank0sAndBringsWhatTheOthersKnow) {
  Join();
  const size_t last = ops_.size() - 1;
  EXPECT_FALSE(ranks_[0].sums[0].EndsHere(ops_[last]));
  for (int rank = 1; rank < kRanks; ++rank) {
    Rank& of = ranks_[static_cast<size_t>(rank)];
    EXPECT_TRUE(of.sums[0].EndsHere(ops_[last]));
    EXPECT_FALSE(of.sums[0].EndsHere(ops_[last - 1]));
    for (size_t i = 0; i < kRows * width_; ++i)
      of.slices[0].value(ops_[last].inputs[0])[i] = PartOf(rank, 0, last, i);
    StepResult so_far;
    so_far.bytes_to_memory = rank;
    EXPECT_TRUE(of.sums[0].HandOver(StepId{3}, ops_[last], kRows, of.slices[0], so_far));
    EXPECT_FALSE(of.sums[0].under_way());
  }
  Start(0, 0, last);
  ASSERT_TRUE(Await(0, 0));
  std::vector<StepResult> told;
  ASSERT_TRUE(ranks_[0].sums[0].Finish(ranks_[0].slices[0], told));
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[0].bytes_to_memory, 1);
  EXPECT_EQ(told[1].bytes_to_memory, 2);
  EXPECT_EQ(ranks_[0].slices[0].value(ops_[last].output)[0],
            (PartOf(0, 0, last, 0) + PartOf(1, 0, last, 0)) + PartOf(2, 0, last, 0));
  for (int rank = 1; rank < kRanks; ++rank) {
    ranks_[static_cast<size_t>(rank)].exchange->Poll();
    EXPECT_FALSE(
        ranks_[static_cast<size_t>(rank)].exchange->arrived(0, MessageKind::kPartialSum, 0));
  }
}

TEST_F(AllReduceTest, ARankWhosePartDoesNotComeIsLost) {
  FaultPlan plan;
  plan.drop_notification = 1;
  Join(plan, DType::kF32, milliseconds(50));
  for (int rank = 0; rank < kRanks; ++rank) Start(rank, 1, 0, 9);
  EXPECT_FALSE(Await(0, 1));
  ASSERT_TRUE(ranks_[0].exchange->lost());
  EXPECT_EQ(ranks_[0].exchange->lost()->node, NodeId{12});
  EXPECT_THAT(ranks_[0].exchange->lost()->message,
              HasSubstr("c1: step 9: its part of layers.0.self_attn.o_proj.all_reduce did not come "
                        "within 50 ms"));
}

TEST_F(AllReduceTest, ARankThatIsGoneIsLost) {
  Join();
  for (int rank = 0; rank < 2; ++rank) Start(rank, 0, 0);
  ranks_[2].sums.clear();
  ranks_[2].exchange.reset();
  EXPECT_FALSE(Await(0, 0));
  ASSERT_TRUE(ranks_[0].exchange->lost());
  EXPECT_THAT(ranks_[0].exchange->lost()->message, HasSubstr("c2"));
}

TEST_F(AllReduceTest, APartOfAnotherStepOrSumIsAnError) {
  for (const auto& [step, sum] :
       {std::pair(uint64_t{4}, size_t{0}), std::pair(uint64_t{3}, size_t{1})}) {
    ops_.clear();
    ranks_ = {};
    Join();
    Start(0, 0, 0, 3);
    Start(1, 0, sum, step);
    Start(2, 0, 0, 3);
    ASSERT_TRUE(Await(0, 0));
    std::vector<StepResult> told;
    EXPECT_FALSE(ranks_[0].sums[0].Finish(ranks_[0].slices[0], told));
    EXPECT_THAT(ranks_[0].exchange->lost()->message, HasSubstr("c1: sent a partial sum of step"));
  }
}

TEST_F(AllReduceTest, CorruptPartsAreAnError) {
  FaultPlan plan;
  plan.corrupt_payload = 1;
  Join(plan);
  for (int rank = 0; rank < kRanks; ++rank) Start(rank, 0, 0);
  ASSERT_TRUE(Await(0, 0));
  std::vector<StepResult> told;
  EXPECT_FALSE(ranks_[0].sums[0].Finish(ranks_[0].slices[0], told));
  EXPECT_THAT(ranks_[0].exchange->lost()->message, HasSubstr("c1"));
}

}  // namespace
}  // namespace lamina
