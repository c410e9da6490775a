#include "api/worker_pool.h"

#include <utility>

#include "base/mutex.h"
#include "text/time_budget.h"

namespace lamina {

WorkerPool::WorkerPool(int num_threads) {
  for (int i = 0; i < num_threads; ++i) threads_.emplace_back([this] { Run(); });
}

void WorkerPool::Stop() {
  {
    MutexLock lock(mutex_);
    quit_ = true;
    queue_.clear();
  }
  stop_.request_stop();
  changed_.NotifyAll();
}

WorkerPool::~WorkerPool() {
  Stop();
  for (std::thread& thread : threads_) thread.join();
}

void WorkerPool::Post(std::function<void()> work) {
  {
    MutexLock lock(mutex_);
    if (quit_) return;
    queue_.push_back(std::move(work));
  }
  changed_.NotifyOne();
}

void WorkerPool::Run() {
  const StopScope scope(stop_.get_token());
  MutexLock lock(mutex_);
  while (true) {
    while (!quit_ && queue_.empty()) changed_.Wait(lock);
    if (quit_) return;
    {
      const std::function<void()> work = std::move(queue_.front());
      queue_.pop_front();
      lock.Unlock();
      work();
    }
    lock.Lock();
  }
}

}  // namespace lamina
