// The first in, first out order of Pie: its Figure 4, and that no byte is lost.
#include "tiers/fifo_ring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "tests/support/crowd.h"
#include "tests/support/sanitized.h"
#include "tiers/modelled_ring.h"

namespace lamina {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A way on which a copy takes two seconds, and that writes down what goes over it when.
class LoggedWay final : public CopyEngine {
 public:
  LoggedWay(std::string name, std::shared_ptr<TimePoint> now, std::vector<std::string>* log)
      : name_(std::move(name)), now_(std::move(now)), log_(log) {}

  void SetRuns(const BlockRuns&) override {}
  double seconds_per_byte() const override { return 0; }
  void Start(int block, std::byte*) override { Add(block); }
  void StartBack(int block, const std::byte*) override { Add(block); }
  bool OldestIsDone() override { return ends_.front() <= *now_; }
  Status FinishOldest() override {
    *now_ = std::max(*now_, ends_.front());
    ends_.pop_front();
    return OkStatus();
  }

 private:
  void Add(int block) {
    const auto at = std::chrono::duration_cast<seconds>(now_->time_since_epoch()).count();
    // Layers are counted from 1, as in the figure.
    log_->push_back("layer " + std::to_string(at % 9 + 1) + ": " + name_ + " " +
                    std::to_string(block + 1));
    ends_.push_back(std::max(*now_, ends_.empty() ? TimePoint{} : ends_.back()) + seconds(2));
  }

  const std::string name_;
  const std::shared_ptr<TimePoint> now_;
  std::vector<std::string>* const log_;
  std::deque<TimePoint> ends_;
};

struct Played {
  std::vector<std::string> log;      // of the first round
  int64_t waits = 0;                 // after the first rounds
  std::map<int, int> times_outside;  // how often a layer was away for so many layers' times
};

// Nine layers, each computed in a second.
Played Play(int num_slots) {
  constexpr int kLayers = 9;
  Played played;
  std::vector<std::string> log;
  const auto now = std::make_shared<TimePoint>();
  const auto ring = FifoRing::Create({kLayers, {4096}, num_slots, false, /*holds_bytes=*/false},
                                     std::make_unique<LoggedWay>("in", now, &log),
                                     std::make_unique<LoggedWay>("out", now, &log));
  EXPECT_TRUE(ring.ok()) << ring.status();
  std::vector<int> away(kLayers);
  int64_t waits = 0;
  for (int at = 0; at < 40 * kLayers; ++at) {
    EXPECT_TRUE((*ring)->Enter(at % kLayers).ok());
    for (int layer = 0; layer < kLayers; ++layer) {
      int& since = away[static_cast<size_t>(layer)];
      if (!(*ring)->IsInside(layer)) {
        ++since;
      } else if (since > 0) {
        if (at > 4 * kLayers) ++played.times_outside[since];
        since = 0;
      }
    }
    *now += seconds(1);
    (*ring)->Leave(at % kLayers, true);
    if (at == kLayers - 1) played.log = log;
    if (at == 4 * kLayers) waits = (*ring)->stats().num_waits;
  }
  played.waits = (*ring)->stats().num_waits - waits;
  return played;
}

TEST(FifoRing, TheScheduleIsThatOfFigure4) {
  const Played seven = Play(7);
  EXPECT_THAT(seven.log,
              ElementsAre("layer 2: out 1", "layer 4: in 8", "layer 4: out 3", "layer 6: in 9",
                          "layer 6: out 5", "layer 8: in 1", "layer 8: out 7"));
  EXPECT_EQ(seven.waits, 0);
  EXPECT_THAT(seven.times_outside, ElementsAre(::testing::Pair(8, ::testing::Gt(100))))
      << "each layer spends eight layers' times outside, and no other time";
  EXPECT_GT(Play(6).waits, 100) << "with six places somebody waits";
}

// Nine layers in five slots, where somebody has to wait in every round; then there are seven.
TEST(FifoRing, WhenThereAreMoreSlotsNobodyWaitsAnyMore) {
  constexpr int kLayers = 9;
  const auto now = std::make_shared<TimePoint>();
  const auto ring = MakeModelledFifoRing(kLayers, 2, 5, 1, 1, now, std::vector<int64_t>(10, 2));
  ASSERT_TRUE(ring.ok()) << ring.status();
  const auto waits_of_rounds = [&](int rounds) {
    const int64_t before = (*ring)->stats().num_waits;
    for (int at = 0; at < rounds * kLayers; ++at) {
      EXPECT_TRUE((*ring)->Enter(at % kLayers).ok());
      *now += seconds(1);
      (*ring)->Leave(at % kLayers, true);
    }
    return (*ring)->stats().num_waits - before;
  };
  EXPECT_GT(waits_of_rounds(20), 40);
  ASSERT_TRUE((*ring)->SetSlots(7).ok());
  waits_of_rounds(3);
  EXPECT_EQ(waits_of_rounds(20), 0);
  EXPECT_EQ((*ring)->stats().num_out_of_order, 0);
}

TEST(FifoRing, RefusesWhatIsNoRing) {
  const auto now = std::make_shared<TimePoint>();
  EXPECT_THAT(MakeModelledFifoRing(4, 4096, 5, 1, 1, now).status().message(),
              HasSubstr("4 blocks in 5 slots"));
  EXPECT_FALSE(MakeModelledFifoRing(4, 4096, 1, 1, 1, now).ok());
  const auto ring = MakeModelledFifoRing(4, 4096, 4, 1, 1, now);
  ASSERT_TRUE(ring.ok()) << ring.status();
  EXPECT_FALSE((*ring)->SetSlots(1).ok());
  EXPECT_FALSE((*ring)->SetSlots(5).ok());
  EXPECT_EQ((*ring)->slots_in_effect(), 4);
}

// A way whose copies are made when they are begun, when somebody waits for them, or by chance.
class PlayedWay final : public CopyEngine {
 public:
  using Outside = std::vector<std::vector<std::byte>>;
  PlayedWay(int early_in_ten, Outside* outside) : early_(early_in_ten), outside_(outside) {}

  void SetRuns(const BlockRuns& runs) override { runs_ = runs; }
  double seconds_per_byte() const override { return 0; }
  void Start(int block, std::byte* to) override { Add({block, to, nullptr, runs_}); }
  void StartBack(int block, const std::byte* from) override { Add({block, nullptr, from, runs_}); }
  bool OldestIsDone() override {
    if (Chance()) Make(begun_.front());
    return begun_.front().made;
  }
  Status FinishOldest() override {
    Make(begun_.front());
    begun_.pop_front();
    return fails ? InternalError("the disk is broken") : OkStatus();
  }

  bool fails = false;

 private:
  struct Copy {
    int block;
    std::byte* to;
    const std::byte* from;
    BlockRuns runs = {};
    bool made = false;
  };
  bool Chance() { return static_cast<int>(random_() % 10) < early_; }
  void Add(const Copy& copy) {
    begun_.push_back(copy);
    EXPECT_EQ(begun_.size(), 1u) << "one at a time";
    if (Chance()) Make(begun_.front());
  }
  void Make(Copy& copy) {
    if (std::exchange(copy.made, true)) return;
    std::vector<std::byte>& lies = (*outside_)[static_cast<size_t>(copy.block)];
    const BlockRuns& runs = copy.runs;
    if (runs.run_bytes == 0) {
      if (copy.from == nullptr)
        std::ranges::copy(lies, copy.to);
      else
        std::copy_n(copy.from, lies.size(), lies.begin());
    }
    for (int64_t run = 0; runs.run_bytes > 0 && run < runs.num_runs; ++run) {
      const int64_t at = run * runs.stride;
      if (copy.from == nullptr)
        std::copy_n(lies.begin() + at, runs.run_bytes, copy.to + at);
      else
        std::copy_n(copy.from + at, runs.run_bytes, lies.begin() + at);
    }
  }

  const int early_;
  Outside* const outside_;
  BlockRuns runs_;
  std::deque<Copy> begun_;
  std::mt19937 random_{5};
};

TEST(FifoRing, WhatIsWrittenIsThereWhenItComesAgain) {
  constexpr int kBlocks = 8;
  constexpr int64_t kBytes = 8192;
  for (const int early : {0, 3, 10}) {
    for (int slots = 2; slots < kBlocks; ++slots) {
      PlayedWay::Outside outside(kBlocks, std::vector<std::byte>(kBytes));
      const auto ring = FifoRing::Create({kBlocks, {kBytes}, slots, /*poison=*/true},
                                         std::make_unique<PlayedWay>(early, &outside),
                                         std::make_unique<PlayedWay>(early, &outside));
      ASSERT_TRUE(ring.ok()) << ring.status();
      std::vector<std::byte> value(kBlocks);
      std::mt19937 random(2);
      for (int i = 0; i < 2000; ++i) {
        const int block = random() % 30 == 0 ? static_cast<int>(random() % kBlocks) : i % kBlocks;
        const Result<std::byte*> bytes = (*ring)->Enter(block);
        ASSERT_TRUE(bytes.ok()) << bytes.status();
        std::byte& expected = value[static_cast<size_t>(block)];
        for (int64_t at = 0; at < kBytes; at += 97) ASSERT_EQ((*bytes)[at], expected) << i;
        expected = std::byte(random() % 256);
        std::memset(*bytes, static_cast<int>(expected), kBytes);
        (*ring)->Leave(block, true);
      }
    }
  }
}

// Blocks of four runs, of which more or less is of use, in more or fewer slots, as memory allows.
TEST(FifoRing, SlotsAndRunsChangeWhileBlocksAreUsed) {
  constexpr int kBlocks = 8, kRuns = 4;
  constexpr int64_t kPage = 4096, kPagesOfSlots = 16;  // of a run, over all slots
  const auto run_bytes = [](int slots) { return kPagesOfSlots / slots * kPage; };
  const BlockRuns largest{run_bytes(2), kRuns, run_bytes(2)};
  for (const int early : {0, 3, 10}) {
    PlayedWay::Outside outside(kBlocks,
                               std::vector<std::byte>(static_cast<size_t>(largest.span())));
    FifoRingOptions options{kBlocks, largest, kBlocks, /*poison=*/true};
    for (int slots = 0; slots <= kBlocks; ++slots)
      options.run_bytes.push_back(run_bytes(std::max(slots, 2)));
    const auto ring = FifoRing::Create(options, std::make_unique<PlayedWay>(early, &outside),
                                       std::make_unique<PlayedWay>(early, &outside));
    ASSERT_TRUE(ring.ok()) << ring.status();
    std::vector<std::byte> value(kBlocks);
    std::mt19937 random(3);
    int wanted = kBlocks, num_changes = 0;
    std::vector<int64_t> written(kBlocks, run_bytes(kBlocks));  // of each run
    for (int i = 0; i < 4000; ++i) {
      if (random() % 40 == 0) {
        wanted = 2 + static_cast<int>(random() % (kBlocks - 1));
        ASSERT_TRUE((*ring)->SetSlots(wanted).ok());
        if ((*ring)->slots_in_effect() != wanted) ++num_changes;
      }
      const int64_t in_use = run_bytes((*ring)->slots_in_effect());
      for (int64_t& each : written) each = std::min(each, in_use);  // what is behind is lost
      const int block = random() % 30 == 0 ? static_cast<int>(random() % kBlocks) : i % kBlocks;
      const Result<std::byte*> bytes = (*ring)->Enter(block);
      ASSERT_TRUE(bytes.ok()) << bytes.status();
      std::byte& expected = value[static_cast<size_t>(block)];
      const int64_t in_effect = run_bytes((*ring)->slots_in_effect());
      for (int64_t run = 0; run < kRuns; ++run) {
        for (int64_t at = 0; at < written[static_cast<size_t>(block)]; at += 97)
          ASSERT_EQ((*bytes)[run * largest.stride + at], expected) << i << " run " << run;
      }
      expected = std::byte(random() % 256);
      for (int64_t run = 0; run < kRuns; ++run)
        std::memset(*bytes + run * largest.stride, static_cast<int>(expected),
                    static_cast<size_t>(in_effect));
      written[static_cast<size_t>(block)] = in_effect;
      (*ring)->Leave(block, true);
    }
    EXPECT_GT(num_changes, 10) << early;
  }
}

TEST(FifoRing, ItsMemoryIsTheSameWithManySlotsAndWithFew) {
  if (testing::kSanitized) GTEST_SKIP() << "a sanitizer has memory of its own for each byte";
  constexpr int kBlocks = 8;
  constexpr int64_t kRunBytes = int64_t{1} << 20;  // with 8 slots
  const BlockRuns largest{4 * kRunBytes, 2, 4 * kRunBytes};
  FifoRingOptions options{kBlocks, largest, kBlocks};
  for (int slots = 0; slots <= kBlocks; ++slots)
    options.run_bytes.push_back(kRunBytes * kBlocks / std::max(slots, 2) / 4096 * 4096);
  const auto copier = [] {
    return std::make_unique<ModelledCopier>(std::vector<int64_t>(kBlocks, 1), 1e12);
  };
  const auto ring = FifoRing::Create(options, copier(), copier());
  ASSERT_TRUE(ring.ok()) << ring.status();
  const auto before = static_cast<double>(testing::ResidentBytes(getpid()));
  // Blocks are written as far as they are of use.
  const auto taken = [&](int slots) {
    EXPECT_TRUE((*ring)->SetSlots(slots).ok());
    for (int i = 0; i < 100 * kBlocks; ++i) {
      std::byte* const bytes = *(*ring)->Enter(i % kBlocks);
      const int64_t run_bytes = options.run_bytes[static_cast<size_t>((*ring)->slots_in_effect())];
      for (int64_t run = 0; run < 2 && i % 7 == 0; ++run)
        std::memset(bytes + run * largest.stride, 1, static_cast<size_t>(run_bytes));
      (*ring)->Leave(i % kBlocks, true);
    }
    EXPECT_EQ((*ring)->slots_in_effect(), slots);
    return static_cast<double>(testing::ResidentBytes(getpid())) - before;
  };
  for (const int slots : {8, 4, 2, 3, 8}) EXPECT_NEAR(taken(slots), 16.8e6, 2e6) << slots;
}

TEST(FifoRing, RefusesMoreThanTheMachineHas) {
  PlayedWay::Outside outside;
  const auto ring =
      FifoRing::Create({4, {int64_t{1} << 50}, 3}, std::make_unique<PlayedWay>(0, &outside),
                       std::make_unique<PlayedWay>(0, &outside));
  EXPECT_EQ(ring.status().code(), StatusCode::kOutOfSpace) << ring.status();
}

TEST(FifoRing, ABlockThatIsUsedStays) {
  PlayedWay::Outside outside(6, std::vector<std::byte>(4096));
  const auto ring = FifoRing::Create({6, {4096}, 2}, std::make_unique<PlayedWay>(10, &outside),
                                     std::make_unique<PlayedWay>(10, &outside));
  ASSERT_TRUE(ring.ok()) << ring.status();
  std::byte* const bytes = *(*ring)->Enter(0);
  std::memset(bytes, 42, 4096);
  for (const int block : {1, 2, 3, 4}) {
    ASSERT_TRUE((*ring)->Enter(block).ok()) << block;
    (*ring)->Leave(block, true);
  }
  EXPECT_EQ(bytes[4095], std::byte{42});
  ASSERT_TRUE((*ring)->Enter(5).ok());
  EXPECT_EQ((*ring)->Enter(1).status().code(), StatusCode::kOutOfSpace) << "both are in use";
}

TEST(FifoRing, ACopyThatFailsIsAnError) {
  PlayedWay::Outside outside(6, std::vector<std::byte>(4096));
  auto out = std::make_unique<PlayedWay>(0, &outside);
  PlayedWay* const way = out.get();
  const auto ring =
      FifoRing::Create({6, {4096}, 2}, std::make_unique<PlayedWay>(10, &outside), std::move(out));
  ASSERT_TRUE(ring.ok()) << ring.status();
  way->fails = true;
  Status status;
  for (int block = 0; block < 6 && status.ok(); ++block) {
    status = (*ring)->Enter(block).status();
    if (status.ok()) (*ring)->Leave(block, true);
  }
  EXPECT_EQ(status.message(), "the disk is broken");
}

}  // namespace
}  // namespace lamina
