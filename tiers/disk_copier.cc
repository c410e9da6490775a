#include "tiers/disk_copier.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/device_timeline.h"

namespace lamina {
namespace {

// Of a copy: large enough that a disk is as fast as it gets, small enough that a limited one is
// even.
constexpr int64_t kPieceBytes = int64_t{4} << 20;

}  // namespace

DiskCopier::DiskCopier(std::shared_ptr<const BlockFile> file, double bytes_per_s)
    : file_(std::move(file)), bytes_per_s_(bytes_per_s), thread_([this] { Run(); }) {}

DiskCopier::~DiskCopier() {
  {
    MutexLock lock(mutex_);
    stop_ = true;
  }
  changed_.NotifyAll();
  thread_.join();
}

void DiskCopier::Add(const Copy& copy) {
  {
    MutexLock lock(mutex_);
    begun_.push_back(copy);
  }
  changed_.NotifyAll();
}

bool DiskCopier::OldestIsDone() {
  MutexLock lock(mutex_);
  return !ended_.empty();
}

Status DiskCopier::FinishOldest() {
  MutexLock lock(mutex_);
  while (ended_.empty()) changed_.Wait(lock);
  Ended ended = std::move(ended_.front());
  ended_.pop_front();
  seconds_per_byte_ = ended.seconds_per_byte;
  return std::move(ended.status);
}

bool DiskCopier::Await(Copy& copy) {
  MutexLock lock(mutex_);
  while (begun_.empty() && !stop_) changed_.Wait(lock);
  if (stop_) return false;
  copy = begun_.front();
  return true;
}

void DiskCopier::Run() {
  for (Copy copy; Await(copy);) {
    const TimePoint start = Clock::now();
    Status status = Make(copy);
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    {
      MutexLock lock(mutex_);
      begun_.pop_front();
      ended_.push_back({std::move(status), seconds / static_cast<double>(copy.runs.bytes())});
    }
    changed_.NotifyAll();
  }
}

Status DiskCopier::Make(const Copy& copy) {
  const TimePoint start = Clock::now();
  int64_t copied = 0;
  for (int64_t run = 0; run < copy.runs.num_runs; ++run) {
    const int64_t end = run * copy.runs.stride + copy.runs.run_bytes;
    for (int64_t at = run * copy.runs.stride; at < end;) {
      const int64_t piece = std::min(kPieceBytes, end - at);
      LAMINA_RETURN_IF_ERROR(copy.from == nullptr
                                 ? file_->Read(copy.block, at, copy.to + at, piece)
                                 : file_->Write(copy.block, at, copy.from + at, piece));
      at += piece;
      copied += piece;
      if (bytes_per_s_ > 0) {
        std::this_thread::sleep_until(start +
                                      FromSeconds(static_cast<double>(copied) / bytes_per_s_));
      }
    }
  }
  return OkStatus();
}

}  // namespace lamina
