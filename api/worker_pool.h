// Threads for work that must not keep the server's thread from its connections.
#pragma once

#include <deque>
#include <functional>
#include <stop_token>
#include <thread>
#include <vector>

#include "base/mutex.h"

namespace lamina {

// Thread: Post and Stop from any; the rest from the owner.
class WorkerPool {
 public:
  explicit WorkerPool(int num_threads);

  // Does what Stop does and waits for the work that runs, which ends at its next look at a
  // TimeBudget.
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // Tells the work that runs to end soon (StopScope) and drops what has not begun and what is
  // posted later. Does not wait.
  void Stop();

  // Has one of the threads call `work`, which must not throw. Work is begun in the order in which
  // it was posted.
  void Post(std::function<void()> work);

 private:
  void Run();

  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> queue_ GUARDED_BY(mutex_);
  bool quit_ GUARDED_BY(mutex_) = false;
  std::stop_source stop_;  // of what runs
  std::vector<std::thread> threads_;
};

}  // namespace lamina
