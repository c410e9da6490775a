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

  // As Stop, and waits for what runs, which its TimeBudgets end.
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // What runs is to end soon, and what has not begun, or is posted later, is dropped; does
  // not wait.
  void Stop();

  // Calls `work` on some thread, in the order of the calls. It must not throw.
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
