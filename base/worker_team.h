// A fixed team of threads that runs one parallel loop at a time.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace lamina {

// Cores that this thread may run on: its affinity mask, at least 1.
int NumAllowedCores();

// Static work division only: which worker runs which index never changes a result, because every
// index is computed alone. Thread: one owner calls Run and ParallelFor; the body runs on all
// workers at once, the owner being worker 0.
class WorkerTeam {
 public:
  // `num_workers` counts the owner; 0 means one per available core. With `pin` worker i runs on the
  // i-th core that this thread may run on, and if there are fewer cores than workers some share
  // one; the owner does once it calls PinOwner.
  explicit WorkerTeam(int num_workers, bool pin = false);
  ~WorkerTeam();
  WorkerTeam(const WorkerTeam&) = delete;
  WorkerTeam& operator=(const WorkerTeam&) = delete;

  int num_workers() const { return static_cast<int>(threads_.size()) + 1; }

  // Of a team that pins: the owner, which calls this, stays on its core from here on. So do threads
  // that it starts later.
  void PinOwner();

  // Calls body(worker) once on every worker; returns when all have returned. `body` must not throw.
  void Run(const std::function<void(int worker)>& body);

  // Calls body(begin, end) over a division of [0, count) into at most num_workers() ranges whose
  // bounds are multiples of `grain`.
  void ParallelFor(int64_t count, int64_t grain,
                   const std::function<void(int64_t begin, int64_t end)>& body);

 private:
  void WorkerLoop(int worker);

  const int owner_core_;  // -1: the team does not pin
  std::vector<std::thread> threads_;
  const std::function<void(int)>* body_ = nullptr;  // published by generation_
  std::atomic<uint64_t> generation_{0};
  std::atomic<int> running_{0};
  std::atomic<bool> stopping_{false};
};

}  // namespace lamina
