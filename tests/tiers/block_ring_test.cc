// Blocks that take turns, over an engine that copies as early or as late as copies may come.
#include "tiers/block_ring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <random>

namespace lamina {
namespace block_ring_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::byte ByteOf(int block) { return std::byte(block + 1); }

// What was done, in its order: "start 3", "wait 3".
using Log = std::vector<std::string>;

class PlayedEngine final : public CopyEngine {
 public:
  // When bytes come: as soon as the copy is begun, when somebody waits for it, or by chance.
  enum class Comes { kEarly, kLate, kByChance };

  PlayedEngine(std::vector<int64_t> block_bytes, Comes comes, Log* log) : comes_(comes), log_(log) {
    for (size_t i = 0; i < block_bytes.size(); ++i)
      outside.emplace_back(static_cast<size_t>(block_bytes[i]), ByteOf(static_cast<int>(i)));
  }

  void SetRuns(const BlockRuns&) override { FAIL() << "blocks are copied whole"; }
  double seconds_per_byte() const override { return 0; }
  void Start(int block, std::byte* to) override {
    log_->push_back("start " + std::to_string(block));
    Add({block, to, nullptr, false});
  }
  void StartBack(int block, const std::byte* from) override {
    log_->push_back("back " + std::to_string(block));
    Add({block, nullptr, from, false});
  }
  bool OldestIsDone() override { return begun_.front().made; }
  Status FinishOldest() override {
    EXPECT_FALSE(begun_.empty());
    Make(begun_.front());
    const Copy copy = begun_.front();
    begun_.pop_front();
    log_->push_back("wait " + std::to_string(copy.block));
    return copy.block == fails ? InternalError("the disk is broken") : OkStatus();
  }

  int fails = -1;
  std::vector<std::vector<std::byte>> outside;  // [block] what lies there

 private:
  struct Copy {
    int block;
    std::byte* to;
    const std::byte* from;  // null: to `to`
    bool made;
  };
  // Copies are made in their order: with one that is early, all before it.
  void Add(const Copy& copy) {
    begun_.push_back(copy);
    if (comes_ == Comes::kEarly || (comes_ == Comes::kByChance && random_() % 2)) {
      for (Copy& each : begun_) Make(each);
    }
  }
  void Make(Copy& copy) {
    if (std::exchange(copy.made, true)) return;
    std::vector<std::byte>& lies = outside[static_cast<size_t>(copy.block)];
    if (copy.from == nullptr)
      std::ranges::copy(lies, copy.to);
    else
      std::copy_n(copy.from, lies.size(), lies.begin());
  }
  const Comes comes_;
  Log* const log_;
  std::deque<Copy> begun_;
  std::mt19937 random_{7};
};

std::vector<int64_t> Sizes(int num_blocks) {
  std::vector<int64_t> sizes;
  for (int i = 0; i < num_blocks; ++i) sizes.push_back(4096 * (1 + i % 3) - 96);
  return sizes;
}

std::vector<bool> OutsideByInterval(int num_blocks, int interval) {
  std::vector<bool> outside(static_cast<size_t>(num_blocks));
  for (int block = interval - 1; interval > 0 && block < num_blocks; block += interval)
    outside[static_cast<size_t>(block)] = true;
  return outside;
}

struct Ring {
  Ring(int num_blocks, int interval, int num_buffers,
       PlayedEngine::Comes comes = PlayedEngine::Comes::kLate)
      : sizes(Sizes(num_blocks)) {
    auto played = std::make_unique<PlayedEngine>(sizes, comes, &log);
    engine = played.get();
    ring = BlockRing::Create({sizes, OutsideByInterval(num_blocks, interval), num_buffers,
                              /*poison=*/true},
                             std::move(played));
  }

  // Enters the block and looks whether all of its bytes are there.
  void Enter(int block) {
    const Result<std::byte*> bytes = (*ring)->Enter(block);
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    ExpectHere(block, *bytes);
  }
  void ExpectHere(int block, const std::byte* bytes) const {
    const int64_t size = sizes[static_cast<size_t>(block)];
    for (int64_t i = 0; i < size; i += 97) ASSERT_EQ(bytes[i], ByteOf(block)) << block << " " << i;
    ASSERT_EQ(bytes[size - 1], ByteOf(block)) << block;
  }
  void Visit(int block) {
    ASSERT_NO_FATAL_FAILURE(Enter(block));
    (*ring)->Leave(block);
  }
  // One round, and how many copies were begun meanwhile.
  int Round() {
    TakeLog();
    for (int block = 0; block < static_cast<int>(sizes.size()); ++block) {
      Visit(block);
      if (::testing::Test::HasFatalFailure()) return -1;
    }
    return static_cast<int>(std::ranges::count_if(
        log, [](const std::string& line) { return line.starts_with("start"); }));
  }
  void SetInterval(int interval) {
    (*ring)->SetOutside(OutsideByInterval(static_cast<int>(sizes.size()), interval));
  }
  int64_t BytesOf(int interval, int num_buffers) const {
    const std::vector<bool> outside = OutsideByInterval(static_cast<int>(sizes.size()), interval);
    int64_t stay = 0, largest = 0;
    for (size_t i = 0; i < sizes.size(); ++i) {
      const int64_t pages = (sizes[i] + 4095) / 4096 * 4096;
      if (outside[i])
        largest = std::max(largest, pages);
      else
        stay += pages;
    }
    return stay + num_buffers * largest;
  }
  Log TakeLog() { return std::exchange(log, {}); }

  std::vector<int64_t> sizes;
  Log log;
  PlayedEngine* engine = nullptr;
  Result<std::unique_ptr<BlockRing>> ring = InternalError("");
};

TEST(BlockRing, EveryBlockIsWholeForEveryIntervalAndNumberOfBuffers) {
  for (const auto comes :
       {PlayedEngine::Comes::kEarly, PlayedEngine::Comes::kLate, PlayedEngine::Comes::kByChance}) {
    for (int num_blocks = 2; num_blocks <= 12; ++num_blocks) {
      for (int interval = 1; interval <= num_blocks; ++interval) {
        for (int buffers = 1; buffers < num_blocks / interval; ++buffers) {
          Ring ring(num_blocks, interval, buffers, comes);
          ASSERT_TRUE(ring.ring.ok()) << ring.ring.status();
          for (int round = 0; round < 4; ++round) {
            for (int block = 0; block < num_blocks; ++block)
              ASSERT_NO_FATAL_FAILURE(ring.Visit(block)) << interval << " " << buffers;
          }
          const RingStats& stats = (*ring.ring)->stats();
          EXPECT_EQ(stats.num_entered, 4 * (num_blocks / interval));
          EXPECT_EQ(stats.num_out_of_order, 0);
        }
      }
    }
  }
}

// Select-N, section 4.3: the copy of the last block of an interval begins with the interval's
// first one, which is when the block outside before it is left.
TEST(BlockRing, WithOneBufferTheScheduleIsThatOfSelectN) {
  Ring ring(6, 3, 1);
  EXPECT_THAT(ring.TakeLog(), ElementsAre("start 0", "wait 0", "start 1", "wait 1", "start 3",
                                          "wait 3", "start 4", "wait 4", "start 2"))
      << "those that stay, and the first that lies outside";
  for (const int block : {0, 1}) ring.Visit(block);
  EXPECT_THAT(ring.TakeLog(), ElementsAre());
  ring.Visit(2);
  EXPECT_THAT(ring.TakeLog(), ElementsAre("wait 2", "start 5"));
  for (const int block : {3, 4, 5}) ring.Visit(block);
  EXPECT_THAT(ring.TakeLog(), ElementsAre("wait 5", "start 2"));
}

// DeepSpeed: while one block is used the next one comes.
TEST(BlockRing, WithIntervalOneAndTwoBuffersTheNextComesMeanwhile) {
  Ring ring(4, 1, 2);
  EXPECT_THAT(ring.TakeLog(), ElementsAre("start 0", "start 1"));
  ring.Visit(0);
  EXPECT_THAT(ring.TakeLog(), ElementsAre("wait 0", "start 2"));
  ring.Visit(1);
  EXPECT_THAT(ring.TakeLog(), ElementsAre("wait 1", "start 3"));
}

TEST(BlockRing, MemoryIsThatOfWhatStaysAndOfTheBuffers) {
  Ring ring(6, 2, 2);  // 1, 3 and 5 lie outside, of which 5 is the largest
  int64_t stay = 0;
  for (const int block : {0, 2, 4})
    stay += (ring.sizes[static_cast<size_t>(block)] + 4095) / 4096 * 4096;
  EXPECT_EQ((*ring.ring)->memory_bytes(), stay + 2 * 3 * 4096);
}

TEST(BlockRing, ABlockIsThereUntilAllWhoEnteredItHaveLeft) {
  Ring ring(6, 1, 2);
  for (int i = 0; i < 3; ++i) (*ring.ring)->AddVisitor();
  ring.Enter(0);
  ring.Enter(0);
  (*ring.ring)->Leave(0);
  const std::byte* const bytes = *(*ring.ring)->Enter(0);
  ring.Visit(1);
  ring.Visit(2);
  ring.ExpectHere(0, bytes);
  (*ring.ring)->Leave(0);
  (*ring.ring)->Leave(0);
  ring.Visit(3);
}

TEST(BlockRing, OtherOrdersAreServedToo) {
  Ring ring(8, 2, 2, PlayedEngine::Comes::kByChance);
  std::mt19937 random(1);
  for (int i = 0; i < 500; ++i)
    ASSERT_NO_FATAL_FAILURE(ring.Visit(static_cast<int>(random() % 8))) << i;
  EXPECT_GT((*ring.ring)->stats().num_out_of_order, 50);
  // A step that was given up, and the next one.
  for (const int block : {0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6, 7})
    ASSERT_NO_FATAL_FAILURE(ring.Visit(block));
}

TEST(BlockRing, SeveralVisitorsAtATime) {
  constexpr int kVisitors = 3, kBlocks = 9;
  Ring ring(kBlocks, 2, 1, PlayedEngine::Comes::kByChance);
  for (int i = 0; i < kVisitors; ++i) (*ring.ring)->AddVisitor();
  std::mt19937 random(3);
  std::array<int, kVisitors> at{};
  std::array<const std::byte*, kVisitors> bytes{};
  for (int i = 0; i < 3000; ++i) {
    const size_t visitor = random() % kVisitors;
    if (bytes[visitor] == nullptr) {
      const Result<std::byte*> entered = (*ring.ring)->Enter(at[visitor]);
      ASSERT_TRUE(entered.ok()) << entered.status();
      bytes[visitor] = *entered;
    } else {
      ASSERT_NO_FATAL_FAILURE(ring.ExpectHere(at[visitor], bytes[visitor])) << i;
      (*ring.ring)->Leave(at[visitor]);
      bytes[visitor] = nullptr;
      at[visitor] = (at[visitor] + 1) % kBlocks;
    }
  }
}

TEST(BlockRing, MoreThanAllowedAtATimeIsAnError) {
  Ring ring(4, 1, 2);
  ring.Enter(0);
  ring.Enter(1);
  const Status status = (*ring.ring)->Enter(2).status();
  EXPECT_EQ(status.code(), StatusCode::kOutOfSpace);
  EXPECT_THAT(status.message(), HasSubstr("all 2 buffers are in use"));
  (*ring.ring)->Leave(0);
  ring.Visit(2);
}

TEST(BlockRing, ACopyThatFailsIsTheErrorOfWhoNeedsIt) {
  Ring ring(4, 2, 1);
  ring.engine->fails = 3;
  for (const int block : {0, 1, 2}) ring.Visit(block);
  EXPECT_EQ((*ring.ring)->Enter(3).status().message(), "the disk is broken");
  ring.engine->fails = -1;
  ring.Visit(3);
}

// What changes is seen in the next round: what is to stay is copied as before, and not again; what
// is not to stay goes when it has been used.
TEST(BlockRing, AnotherIntervalNeedsNoOtherCopiesThanItsRounds) {
  constexpr int kBlocks = 12, kBuffers = 2;
  Ring ring(kBlocks, 1, kBuffers);
  ring.Round();
  EXPECT_EQ(ring.Round(), kBlocks);
  ring.SetInterval(3);
  // Both buffers hold the first blocks, which stay; the other ones that stay come in this round.
  EXPECT_EQ(ring.Round(), kBlocks);
  EXPECT_EQ(ring.Round(), kBlocks / 3);
  EXPECT_EQ((*ring.ring)->memory_bytes(), ring.BytesOf(3, kBuffers));
  ring.SetInterval(0);
  ring.Round();
  EXPECT_EQ(ring.Round(), 0);
  EXPECT_EQ((*ring.ring)->memory_bytes(), ring.BytesOf(0, 0));
  ring.SetInterval(1);
  EXPECT_EQ(ring.Round(), kBuffers) << "nothing comes before others have gone";
  EXPECT_EQ(ring.Round(), kBlocks);
  EXPECT_EQ((*ring.ring)->memory_bytes(), ring.BytesOf(1, kBuffers));
  EXPECT_EQ((*ring.ring)->stats().num_out_of_order, 0);
}

TEST(BlockRing, IntervalsThatChangeAtAnyTimeLeaveEveryBlockWhole) {
  for (const auto comes :
       {PlayedEngine::Comes::kEarly, PlayedEngine::Comes::kLate, PlayedEngine::Comes::kByChance}) {
    constexpr int kVisitors = 3, kBlocks = 11;
    Ring ring(kBlocks, 4, 1, comes);
    for (int i = 0; i < kVisitors; ++i) (*ring.ring)->AddVisitor();
    std::mt19937 random(5);
    std::array<int, kVisitors> at{};
    std::array<const std::byte*, kVisitors> bytes{};
    for (int i = 0; i < 6000; ++i) {
      if (random() % 7 == 0) ring.SetInterval(static_cast<int>(random() % (kBlocks + 2)));
      const size_t visitor = random() % kVisitors;
      if (bytes[visitor] == nullptr) {
        const Result<std::byte*> entered = (*ring.ring)->Enter(at[visitor]);
        ASSERT_TRUE(entered.ok()) << entered.status();
        bytes[visitor] = *entered;
      } else {
        ASSERT_NO_FATAL_FAILURE(ring.ExpectHere(at[visitor], bytes[visitor])) << i;
        (*ring.ring)->Leave(at[visitor]);
        bytes[visitor] = nullptr;
        // Now and then a step is given up.
        at[visitor] = random() % 20 == 0 ? 0 : (at[visitor] + 1) % kBlocks;
      }
    }
    // What is left when nothing changes any more is what the interval says.
    for (const auto& left : {0, 1, 2}) {
      if (bytes[static_cast<size_t>(left)] != nullptr)
        (*ring.ring)->Leave(at[static_cast<size_t>(left)]);
    }
    for (const int interval : {1, 3, 0}) {
      ring.SetInterval(interval);
      ring.Round();
      ring.Round();
      const int outside = interval == 0 ? 0 : kBlocks / interval;
      EXPECT_EQ(ring.Round(), outside > kVisitors + 1 ? outside : 0) << interval;
    }
  }
}

// Blocks that are written to: what is read is what was written last, whatever lies outside when.
TEST(BlockRing, WhatIsWrittenToABlockIsThereWhenItComesAgain) {
  for (const auto comes :
       {PlayedEngine::Comes::kEarly, PlayedEngine::Comes::kLate, PlayedEngine::Comes::kByChance}) {
    for (const bool changes : {false, true}) {
      constexpr int kBlocks = 9;
      Ring ring(kBlocks, 2, 2, comes);
      std::vector<std::byte> value;
      for (int block = 0; block < kBlocks; ++block) value.push_back(ByteOf(block));
      std::mt19937 random(11);
      for (int i = 0; i < 3000; ++i) {
        if (changes && random() % 9 == 0) ring.SetInterval(static_cast<int>(random() % kBlocks));
        // In the order of a step, but now and then.
        const int block = random() % 30 == 0 ? static_cast<int>(random() % kBlocks) : i % kBlocks;
        const Result<std::byte*> bytes = (*ring.ring)->Enter(block);
        ASSERT_TRUE(bytes.ok()) << bytes.status();
        const auto size = static_cast<size_t>(ring.sizes[static_cast<size_t>(block)]);
        std::byte& expected = value[static_cast<size_t>(block)];
        for (size_t at = 0; at < size; at += 97) ASSERT_EQ((*bytes)[at], expected) << i;
        const bool writes = random() % 2 == 0;
        if (writes) {
          expected = std::byte(random() % 256);
          std::memset(*bytes, static_cast<int>(expected), size);
        }
        (*ring.ring)->Leave(block, writes);
      }
    }
  }
}

TEST(BlockRing, OnlyWhatWasWrittenGoesBack) {
  Ring ring(6, 2, 2);  // 1, 3 and 5 lie outside
  ring.Round();
  for (int block = 0; block < 6; ++block) {
    ASSERT_TRUE((*ring.ring)->Enter(block).ok());
    (*ring.ring)->Leave(block, block == 2 || block == 3);
  }
  EXPECT_EQ(std::ranges::count_if(ring.log, [](const auto& l) { return l.starts_with("back"); }),
            1);
  EXPECT_EQ((*ring.ring)->stats().bytes_copied_back, ring.sizes[3]);
}

TEST(BlockRing, ACopyBackThatFailsIsAnErrorForGood) {
  Ring ring(4, 2, 1);  // 1 and 3 lie outside
  ASSERT_TRUE((*ring.ring)->Enter(0).ok());
  (*ring.ring)->Leave(0);
  ASSERT_TRUE((*ring.ring)->Enter(1).ok());
  ring.engine->fails = 1;
  (*ring.ring)->Leave(1, true);
  ring.Visit(2);
  EXPECT_EQ((*ring.ring)->Enter(3).status().message(), "the disk is broken");
  ring.engine->fails = -1;
  EXPECT_EQ((*ring.ring)->Enter(3).status().message(), "the disk is broken");
}

}  // namespace block_ring_test
}  // namespace lamina
