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

// The number of cores in this thread's affinity mask, at least 1.
int NumAllowedCores();

// Divides work statically. A body must compute every index independently of the others; then it
// does not matter for the result which worker gets which index.
//
// Thread: one owner calls Run and ParallelFor; the body runs on all workers at once, the owner
// being worker 0.
class WorkerTeam {
 public:
  // `num_workers` counts the owner; 0 means one per core that this thread may run on. With `pin`,
  // worker i stays on the i-th of these cores (modulo their number, if there are more workers); the
  // owner does so only after it has called PinOwner.
  explicit WorkerTeam(int num_workers, bool pin = false);
  ~WorkerTeam();
  WorkerTeam(const WorkerTeam&) = delete;
  WorkerTeam& operator=(const WorkerTeam&) = delete;

  int num_workers() const { return static_cast<int>(threads_.size()) + 1; }

  // Pins the calling thread, which must be the owner, to its core, if the team pins. Threads that
  // it starts later inherit that.
  void PinOwner();

  // Calls body(worker) once on every worker; returns when all have returned. `body` must not throw.
  void Run(const std::function<void(int worker)>& body);

  // Calls body(begin, end) over a division of [0, count) into at most num_workers() ranges whose
  // bounds are multiples of `grain`.
  void ParallelFor(int64_t count, int64_t grain,
                   const std::function<void(int64_t begin, int64_t end)>& body);

 private:
  void WorkerLoop(int worker);

  const int owner_core_;  // -1 if the team does not pin
  std::vector<std::thread> threads_;
  const std::function<void(int)>* body_ = nullptr;  // of the present Run; published by generation_
  std::atomic<uint64_t> generation_{0};             // grows with every Run, and to stop
  std::atomic<int> running_{0};                     // threads that have not finished the body
  std::atomic<bool> stopping_{false};
};

}  // namespace lamina
