#include "bench/recovery/stream_log.h"

#include <utility>

namespace lamina {

void StreamLog::Begin(size_t stream, TimePoint now) {
  MutexLock lock(mutex_);
  streams_[stream].requests.emplace_back().submitted = now;
}

void StreamLog::Take(size_t stream, const TokenEvent& event) {
  MutexLock lock(mutex_);
  StreamRequest& request = streams_[stream].requests.back();
  const TimePoint now = Clock::now();
  if (event.token) {
    request.tokens.push_back(*event.token);
    request.times.push_back(now);
    last_token_ = now;
  }
  // One that is aborted has not ended: the run has.
  if (!event.finish || event.finish == FinishReason::kAbort) return;
  request.ended = now;
  if (event.finish == FinishReason::kError) request.error = event.error.ToString();
  ended_.push_back(stream);
  changed_.NotifyAll();
}

void StreamLog::Refuse(size_t stream, const std::string& why, TimePoint now) {
  MutexLock lock(mutex_);
  StreamRequest& request = streams_[stream].requests.back();
  request.ended = now;
  request.error = why;
}

void StreamLog::Finish(size_t stream, TimePoint now) {
  MutexLock lock(mutex_);
  streams_[stream].done = now;
}

std::vector<size_t> StreamLog::AwaitEnded(TimePoint latest) {
  MutexLock lock(mutex_);
  while (ended_.empty() && Clock::now() < latest) changed_.WaitUntil(lock, latest);
  return std::exchange(ended_, {});
}

TimePoint StreamLog::last_token() {
  MutexLock lock(mutex_);
  return last_token_;
}

std::vector<StreamRecord> StreamLog::TakeStreams() {
  MutexLock lock(mutex_);
  return std::move(streams_);
}

}  // namespace lamina
