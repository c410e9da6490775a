// Which pipeline is chosen, on machines whose times are known; and how sequences change their
// batches.
#include "scheduler/pipeline.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "scheduler/scheduler.h"

namespace lamina {
namespace {

// Slices take as long as reading the weights up to `knee` rows and grow from there; attention grows
// with every row.
struct Machine {
  double weights = 20e-3, per_row = 0.05e-3, attention_per_row = 0.4e-3, wires = 1e-3;

  StepCost Cost(double rows) const {
    return {rows, weights + per_row * rows, attention_per_row * rows, wires, 0};
  }

  // Of a step of one of the batches.
  StepCost Cost(int num_rows, const Pipeline& p, int num_compute) const {
    StepCost cost = Cost(std::ceil(static_cast<double>(num_rows) / p.num_batches));
    cost.round = Time(num_rows, p, num_compute);
    return cost;
  }

  // By brute force over what a step of each of n batches takes.
  double Time(int num_rows, const Pipeline& p, int num_compute) const {
    const StepCost one = Cost(std::ceil(static_cast<double>(num_rows) / p.num_batches));
    std::vector<double> busy(static_cast<size_t>(num_compute));
    for (int batch = 0; batch < p.num_batches; ++batch) {
      for (int node = 0; node < num_compute; ++node) {
        if (p.rotates) busy[static_cast<size_t>(node)] += one.slices / num_compute;
        if (!p.rotates && batch % num_compute == node)
          busy[static_cast<size_t>(node)] += one.slices;
      }
    }
    double time = std::max(one.slices + one.attention + wires, one.attention * p.num_batches);
    for (const double node : busy) time = std::max(time, node);
    return time;
  }
};

TEST(PipelineChooser, KeepsWhatItHasBeforeItKnowsAnything) {
  const PipelineChooser chooser(2, 4);
  EXPECT_EQ(chooser.Choose(100, {3, true}), (Pipeline{3, true}));
}

// The pipeline that is in use after `steps` of so many rows, and how often it changed.
template <typename Cost>
std::pair<Pipeline, int> Settle(PipelineChooser& chooser, Pipeline now, int num_rows, int steps,
                                Cost cost) {
  int num_switches = 0;
  for (int step = 0; step < steps; ++step) {
    chooser.Observe(cost(num_rows, now), now);
    const Pipeline next = chooser.Choose(num_rows, now);
    if (next != now) ++num_switches;
    now = next;
  }
  return {now, num_switches};
}

TEST(PipelineChooser, FewRowsAreNotDividedAndManyAre) {
  const Machine machine;
  const auto cost = [&](int rows, const Pipeline& p) { return machine.Cost(rows, p, 1); };
  PipelineChooser chooser(1, 2);
  Pipeline now{2, false};
  for (const int rows : {8, 200, 3, 150}) {
    const auto [settled, num_switches] = Settle(chooser, now, rows, 100, cost);
    EXPECT_EQ(settled, (Pipeline{rows < 50 ? 1 : 2, false})) << rows;
    EXPECT_EQ(num_switches, 1) << rows << " rows: it does not swing";
    now = settled;
  }
}

double BestTime(const Machine& machine, int num_rows, int max_batches, int num_compute) {
  double best = 1e9;
  for (int n = 1; n <= max_batches; ++n) {
    for (const bool rotates : {false, true})
      best = std::min(best, machine.Time(num_rows, {n, rotates}, num_compute));
  }
  return best;
}

Machine RandomMachine(std::mt19937_64& random) {
  std::uniform_real_distribution<double> log10(-4, -1);
  const auto draw = [&] { return std::pow(10, log10(random)); };
  return Machine{draw(), 0.01 * draw(), 0.01 * draw(), 0.1 * draw()};
}

// As a closed loop has them. What other sizes take is known only once they were tried.
TEST(PipelineChooser, FindsTheBestThoughAllStepsHaveTheSameRows) {
  std::mt19937_64 random(2);
  for (int trial = 0; trial < 200; ++trial) {
    const Machine machine = RandomMachine(random);
    const int num_compute = 1 + static_cast<int>(random() % 3), max_batches = 2 * num_compute,
              rows = 1 << random() % 10;
    const auto cost = [&](int num_rows, const Pipeline& p) {
      return machine.Cost(num_rows, p, num_compute);
    };
    PipelineChooser chooser(num_compute, max_batches);
    const Pipeline settled = Settle(chooser, {num_compute, false}, rows, 200, cost).first;
    EXPECT_LE(machine.Time(rows, settled, num_compute),
              1.09 * BestTime(machine, rows, max_batches, num_compute))
        << "trial " << trial << ", " << rows << " rows, " << num_compute << " nodes";
  }
}

TEST(PipelineChooser, SettlesOnTheBest) {
  std::mt19937_64 random(1);
  int num_misses = 0;
  for (int trial = 0; trial < 200; ++trial) {
    const Machine machine = RandomMachine(random);
    const int num_compute = 1 + static_cast<int>(random() % 3),
              max_batches = num_compute + 1 + static_cast<int>(random() % 3);
    const auto cost = [&](int rows, const Pipeline& p) {
      return machine.Cost(rows, p, num_compute);
    };
    PipelineChooser chooser(num_compute, max_batches);
    Pipeline now{max_batches, num_compute > 1};
    for (const int rows : {7, 256, 32, 1, 100}) {
      now = Settle(chooser, now, rows, 500, cost).first;
      const double best = BestTime(machine, rows, max_batches, num_compute);
      // Slopes are only guessed while all steps have had the same rows.
      EXPECT_LE(machine.Time(rows, now, num_compute), 1.25 * best)
          << "trial " << trial << ", " << rows << " rows";
      if (machine.Time(rows, now, num_compute) > 1.09 * best) ++num_misses;
    }
  }
  EXPECT_LE(num_misses, 10) << "of 1000";
}

// Nodes that share one core gain nothing from two batches, whatever their times promise.
TEST(PipelineChooser, GoesBackFromWhatDidNotKeepItsPromise) {
  const Machine machine;
  const auto cost = [&](int rows, const Pipeline& p) {
    StepCost c = machine.Cost(rows, p, 1);
    c.round = (c.slices + c.attention) * p.num_batches;
    if (p.num_batches > 1) c.slices *= 2, c.attention *= 2, c.round *= 1.1;
    return c;
  };
  PipelineChooser chooser(1, 2);
  const auto [settled, num_switches] = Settle(chooser, {1, false}, 100, 1500, cost);
  EXPECT_EQ(settled, (Pipeline{1, false}));
  EXPECT_EQ(num_switches, 2) << "there and back";
}

TEST(PipelineChooser, OneStepThatHungDoesNotChangeTheChoice) {
  const Machine machine;
  const auto cost = [&](int rows, const Pipeline& p) { return machine.Cost(rows, p, 1); };
  PipelineChooser chooser(1, 2);
  const Pipeline one = Settle(chooser, {1, false}, 16, 200, cost).first;
  ASSERT_EQ(one, (Pipeline{1, false}));
  for (const auto hung : {&StepCost::attention, &StepCost::slices}) {
    StepCost late = cost(16, one);
    late.*hung += 2;
    late.round += 2;
    chooser.Observe(late, one);
    EXPECT_EQ(chooser.Choose(16, one), one);
    EXPECT_EQ(Settle(chooser, one, 16, 200, cost), std::pair(one, 0));
  }
}

TEST(PipelineChooser, StepsThatStayLongerDoChangeTheChoice) {
  Machine machine;
  const auto cost = [&](int rows, const Pipeline& p) { return machine.Cost(rows, p, 1); };
  PipelineChooser chooser(1, 2);
  ASSERT_EQ(Settle(chooser, {1, false}, 16, 500, cost).first, (Pipeline{1, false}));
  machine.attention_per_row *= 20;  // contexts grew, or a memory node is gone
  EXPECT_EQ(Settle(chooser, {1, false}, 16, 500, cost).first, (Pipeline{2, false}));
}

TEST(SchedulerPipeline, BatchesBecomeEven) {
  SchedulerOptions options;
  options.max_num_seqs = 12;
  options.num_batches = 4;
  options.max_model_len = 200;
  Scheduler scheduler(options, MakeFifoQueue(), MakeLeastLoadedPlacement());
  scheduler.AddNode({NodeId{1}, 4000});
  for (uint64_t id = 1; id <= 12; ++id)
    ASSERT_TRUE(scheduler.Add({SequenceId{id}, {1, 2, 3}, 150}).ok());
  const auto rows_after = [&](const Pipeline& pipeline) {
    scheduler.SetPipeline(pipeline);
    std::vector<size_t> rows;
    for (int round = 0; round < 5; ++round) {
      rows.clear();
      for (int batch = 0; batch < options.num_batches; ++batch) {
        const StepPlan plan = scheduler.NextStep(batch);
        rows.push_back(plan.work.size());
        std::vector<Scheduler::Sampled> sampled;
        for (const Work& work : plan.work) sampled.push_back({work.sequence, 1});
        EXPECT_TRUE(plan.work.empty() || plan.rotates == pipeline.rotates);
        scheduler.CompleteStep(sampled, batch);
      }
    }
    return rows;
  };
  EXPECT_EQ(rows_after({4, false}), (std::vector<size_t>{3, 3, 3, 3}));
  EXPECT_EQ(rows_after({1, true}), (std::vector<size_t>{12, 0, 0, 0}));
  EXPECT_EQ(rows_after({3, false}), (std::vector<size_t>{4, 4, 4, 0}));
  EXPECT_EQ(rows_after({2, true}), (std::vector<size_t>{6, 6, 0, 0}));
}

// Batches under random arrivals, ends and changes of the pipeline: nobody is lost, nobody is in two
// steps, half a prompt stays where it is.
TEST(SchedulerPipeline, SequencesMoveBetweenBatches) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    SchedulerOptions options;
    options.max_num_seqs = 24;
    options.num_batches = 4;
    options.max_num_batched_tokens = 32;
    options.max_model_len = 200;
    Scheduler scheduler(options, MakeFifoQueue(), MakeLeastLoadedPlacement());
    scheduler.AddNode({NodeId{1}, 400});
    scheduler.AddNode({NodeId{2}, 300});
    std::map<int, StepPlan> in_flight;
    std::map<uint64_t, std::vector<TokenId>> tokens;  // of each sequence so far
    std::map<uint64_t, bool> prefilled_rotating;      // partly prefilled: how
    uint64_t last = 0;
    Pipeline pipeline{4, false};
    for (int round = 0; round < 600; ++round) {
      if (random() % 40 == 0) {
        pipeline = {1 + static_cast<int>(random() % 4), random() % 2 == 0};
        scheduler.SetPipeline(pipeline);
      }
      if (random() % 4 == 0 && tokens.size() < 40) {
        SequenceSpec spec{SequenceId{++last}, std::vector<TokenId>(1 + random() % 60, 7),
                          static_cast<int64_t>(1 + random() % 40)};
        tokens[last] = spec.prompt;
        ASSERT_TRUE(scheduler.Add(std::move(spec)).ok());
      }
      const int batch = static_cast<int>(random() % 4);
      if (!in_flight.contains(batch)) {
        StepPlan plan = scheduler.NextStep(batch);
        if (plan.work.empty()) continue;
        for (const Work& work : plan.work) {
          for (const auto& [other, flying] : in_flight) {
            for (const Work& theirs : flying.work)
              ASSERT_NE(theirs.sequence, work.sequence)
                  << "in batches " << batch << " and " << other;
          }
          ASSERT_EQ(work.first_position + static_cast<int64_t>(work.tokens.size()) <=
                        static_cast<int64_t>(tokens[work.sequence.value].size()),
                    true);
          if (!work.prefill) continue;
          const bool starts = work.first_position == 0;
          ASSERT_TRUE(starts || prefilled_rotating[work.sequence.value] == plan.rotates)
              << "half a prompt each way";
          prefilled_rotating[work.sequence.value] = plan.rotates;
        }
        in_flight[batch] = std::move(plan);
        continue;
      }
      std::vector<Scheduler::Sampled> sampled;
      std::vector<SequenceId> ended;
      for (const Work& work : in_flight[batch].work) {
        if (!work.sample || !tokens.contains(work.sequence.value)) continue;
        sampled.push_back({work.sequence, static_cast<TokenId>(random() % 100)});
        tokens[work.sequence.value].push_back(sampled.back().token);
        if (random() % 30 == 0) ended.push_back(work.sequence);
      }
      scheduler.CompleteStep(sampled, batch);
      in_flight.erase(batch);
      for (const Scheduler::Sampled& s : sampled) {
        const auto all = scheduler.Tokens(s.sequence);
        ASSERT_EQ(std::vector<TokenId>(all.begin(), all.end()), tokens[s.sequence.value]);
      }
      for (const SequenceId id : ended) {
        scheduler.Finish(id);
        tokens.erase(id.value);
      }
    }
    // Quiet: two rounds of steps without arrivals, and the batches are even.
    for (const auto& [batch, plan] : std::exchange(in_flight, {}))
      scheduler.CompleteStep({}, batch);
    scheduler.SetPipeline({3, false});
    std::map<int, size_t> rows;
    for (int round = 0; round < 40; ++round) {
      for (int batch = 0; batch < 4; ++batch) {
        const StepPlan plan = scheduler.NextStep(batch);
        rows[batch] = plan.work.size();
        std::vector<Scheduler::Sampled> sampled;
        for (const Work& work : plan.work) {
          if (work.sample) sampled.push_back({work.sequence, 1});
        }
        scheduler.CompleteStep(sampled, batch);
      }
    }
    EXPECT_EQ(rows[3], 0u) << "a batch too many";
  }
}

}  // namespace
}  // namespace lamina
