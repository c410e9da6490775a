#include "base/worker_team.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace lamina {
namespace {

// Number of polls before a thread offers its core to others, about 10 us: enough to bridge the gaps
// between the operators of a slice.
constexpr int kSpins = 2000;

// After that it keeps polling for so long, and yields the core each time: a wake-up takes 50 us,
// and the next slice, or the next step of a small model, mostly begins sooner than this ends.
constexpr auto kYieldsFor = std::chrono::microseconds(300);

// A yield that takes longer went to a thread that computes, for which this one makes room.
constexpr auto kTaken = std::chrono::microseconds(50);

std::vector<int> AllowedCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    for (int i = 0; i < CPU_SETSIZE; ++i) {
      if (CPU_ISSET(i, &set)) cores.push_back(i);
    }
  }
  if (cores.empty()) cores.push_back(0);  // sched_getaffinity failed
  return cores;
}

void PinThisThread(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

template <typename T>
void WaitWhileEqual(std::atomic<T>& value, T old) {
  for (int i = 0; i < kSpins; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    __builtin_ia32_pause();
  }
  // Not Clock: a thread that waits does so in real time, also where a test has replaced that.
  using RealClock = std::chrono::steady_clock;
  RealClock::time_point now = RealClock::now();
  for (const auto end = now + kYieldsFor; now < end;) {
    if (value.load(std::memory_order_acquire) != old) return;
    sched_yield();
    const auto then = std::exchange(now, RealClock::now());
    if (now - then > kTaken) break;
  }
  while (value.load(std::memory_order_acquire) == old) value.wait(old, std::memory_order_acquire);
}

}  // namespace

int NumAllowedCores() { return static_cast<int>(AllowedCores().size()); }

WorkerTeam::WorkerTeam(int num_workers, bool pin) : owner_core_(pin ? AllowedCores().front() : -1) {
  const std::vector<int> cores = AllowedCores();
  if (num_workers <= 0) num_workers = static_cast<int>(cores.size());
  for (int worker = 1; worker < num_workers; ++worker) {
    threads_.emplace_back([this, worker, pin, cores] {
      if (pin) PinThisThread(cores[static_cast<size_t>(worker) % cores.size()]);
      WorkerLoop(worker);
    });
  }
}

void WorkerTeam::PinOwner() {
  if (owner_core_ >= 0) PinThisThread(owner_core_);
}

WorkerTeam::~WorkerTeam() {
  // Workers read stopping_ behind generation_, whose release publishes it. The same holds for body_
  // and running_ in Run.
  stopping_.store(true, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void WorkerTeam::Run(const std::function<void(int)>& body) {
  if (threads_.empty()) {
    body(0);
    return;
  }
  body_ = &body;
  running_.store(static_cast<int>(threads_.size()), std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  body(0);
  // running_ changes with every worker that finishes; only 0 is of interest.
  for (int left = running_.load(std::memory_order_acquire); left != 0;
       left = running_.load(std::memory_order_acquire)) {
    WaitWhileEqual(running_, left);
  }
}

void WorkerTeam::ParallelFor(int64_t count, int64_t grain,
                             const std::function<void(int64_t, int64_t)>& body) {
  if (count <= 0) return;
  const int64_t grains = (count + grain - 1) / grain;
  const int64_t workers = std::min<int64_t>(num_workers(), grains);
  if (workers == 1) {
    body(0, count);
    return;
  }
  Run([&](int worker) {
    if (worker >= workers) return;  // there are fewer grains than workers
    // Whole grains, as evenly as they go; only the last range may end with a part of one.
    const int64_t begin = grains * worker / workers * grain;
    const int64_t end = std::min(count, grains * (worker + 1) / workers * grain);
    if (begin < end) body(begin, end);
  });
}

void WorkerTeam::WorkerLoop(int worker) {
  uint64_t seen = 0;
  while (true) {
    WaitWhileEqual(generation_, seen);
    // Run waits for all workers, so the generation is never more than one ahead.
    ++seen;
    if (stopping_.load(std::memory_order_relaxed)) return;
    (*body_)(worker);
    if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) running_.notify_one();
  }
}

}  // namespace lamina
