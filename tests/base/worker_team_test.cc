#include "base/worker_team.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <set>
#include <thread>
#include <vector>

namespace lamina {
namespace {

TEST(WorkerTeam, RunsTheBodyOnceOnEveryWorker) {
  for (int workers = 1; workers <= 6; ++workers) {
    WorkerTeam team(workers);
    ASSERT_EQ(team.num_workers(), workers);
    std::vector<std::atomic<int>> calls(static_cast<size_t>(workers));
    for (int round = 0; round < 200; ++round) {
      team.Run([&](int worker) {
        calls[static_cast<size_t>(worker)].fetch_add(1, std::memory_order_relaxed);
      });
    }
    for (const std::atomic<int>& n : calls) EXPECT_EQ(n.load(), 200);
  }
}

TEST(WorkerTeam, WorkersAreDifferentThreadsAndTheOwnerIsWorkerZero) {
  WorkerTeam team(3);
  std::vector<std::thread::id> ids(3);
  team.Run([&](int worker) { ids[static_cast<size_t>(worker)] = std::this_thread::get_id(); });
  EXPECT_EQ(ids[0], std::this_thread::get_id());
  EXPECT_EQ(std::set<std::thread::id>(ids.begin(), ids.end()).size(), 3u);
}

// What a worker wrote is visible to the owner after Run, and what the owner wrote before to the
// workers, without atomics in the body.
TEST(WorkerTeam, RunOrdersMemory) {
  WorkerTeam team(4);
  std::vector<int64_t> values(4, 0);
  int64_t base = 0;
  for (int round = 0; round < 2000; ++round) {
    ++base;
    team.Run([&](int worker) { values[static_cast<size_t>(worker)] += base * worker; });
  }
  for (int64_t worker = 0; worker < 4; ++worker)
    EXPECT_EQ(values[static_cast<size_t>(worker)], worker * base * (base + 1) / 2);
}

TEST(WorkerTeam, ZeroMeansOnePerCore) {
  WorkerTeam team(0);
  EXPECT_GE(team.num_workers(), 1);
  EXPECT_LE(team.num_workers(),
            static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
}

TEST(WorkerTeam, PinnedTeamsWorkWithMoreWorkersThanCores) {
  std::thread owner([] {  // pinning stays with the thread: not the test's own
    WorkerTeam team(5, true);
    team.PinOwner();
    EXPECT_EQ(NumAllowedCores(), 1);
    std::atomic<int> sum{0};
    team.Run([&](int worker) { sum += worker; });
    EXPECT_EQ(sum.load(), 10);
  });
  owner.join();
}

TEST(WorkerTeam, ParallelForCoversEachIndexOnceInAlignedRanges) {
  for (int workers : {1, 2, 3, 5}) {
    WorkerTeam team(workers);
    for (int64_t count : {0, 1, 2, 7, 16, 63, 64, 65, 1000}) {
      for (int64_t grain : {1, 4, 16, 100}) {
        std::vector<std::atomic<int>> hits(static_cast<size_t>(count));
        std::atomic<int> ranges{0}, misaligned{0};
        team.ParallelFor(count, grain, [&](int64_t begin, int64_t end) {
          ++ranges;
          misaligned += begin % grain != 0 || (end % grain != 0 && end != count) || begin >= end;
          for (int64_t i = begin; i < end; ++i) ++hits[static_cast<size_t>(i)];
        });
        for (const std::atomic<int>& n : hits)
          ASSERT_EQ(n.load(), 1) << workers << " workers, count " << count << ", grain " << grain;
        EXPECT_LE(ranges.load(), workers);
        EXPECT_EQ(misaligned.load(), 0);
      }
    }
  }
}

TEST(WorkerTeam, ParallelForUsesTheWorkers) {
  WorkerTeam team(3);
  std::atomic<int> ranges{0};
  team.ParallelFor(300, 1, [&](int64_t begin, int64_t end) {
    EXPECT_EQ(end - begin, 100);
    ++ranges;
  });
  EXPECT_EQ(ranges.load(), 3);
}

TEST(WorkerTeam, TeamsComeAndGo) {
  for (int i = 0; i < 50; ++i) {
    WorkerTeam idle(3);  // never used
    WorkerTeam team(2);
    std::atomic<int> calls{0};
    team.Run([&](int) { ++calls; });
    ASSERT_EQ(calls.load(), 2);
  }
}

}  // namespace
}  // namespace lamina
