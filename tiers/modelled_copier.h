// A link that is only modelled: copies take the time that their bytes take at its rate, and copy
// nothing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "base/device_timeline.h"
#include "tiers/copy_engine.h"
#include "tiers/copy_link.h"

namespace lamina {

// Thread: one owner.
class ModelledCopier final : public CopyEngine {
 public:
  // Others may use the link as well. `back_bytes_per_s`: of copies back, which then have a way of
  // their own beside the others; 0: they take the same. `virtual_now`: in virtual time, where it
  // says what time it is, and is moved on by who waits for a copy; null: in real time. REQUIRES:
  // bytes_per_s > 0.
  ModelledCopier(std::vector<int64_t> block_bytes, double bytes_per_s,
                 std::shared_ptr<CopyLink> link = std::make_shared<OwnLink>(),
                 double back_bytes_per_s = 0, std::shared_ptr<TimePoint> virtual_now = nullptr)
      : block_bytes_(std::move(block_bytes)),
        bytes_per_s_(bytes_per_s),
        back_bytes_per_s_(back_bytes_per_s),
        link_(std::move(link)),
        virtual_now_(std::move(virtual_now)) {}

  // A copy begins when the copies back before it have ended: it may be into their memory.
  void Start(int block, std::byte*) override {
    ends_.push_back(link_->Book(std::max(now(), last_back_), TimeOf(block, bytes_per_s_)));
  }
  void StartBack(int block, const std::byte*) override {
    last_back_ = back_bytes_per_s_ > 0 ? back_.Book(now(), TimeOf(block, back_bytes_per_s_))
                                       : link_->Book(now(), TimeOf(block, bytes_per_s_));
    ends_.push_back(last_back_);
  }
  bool OldestIsDone() override { return ends_.front() <= now(); }
  Status FinishOldest() override {
    const TimePoint end = ends_.front();
    ends_.pop_front();
    if (virtual_now_ == nullptr)
      SleepUntil(end);
    else
      *virtual_now_ = std::max(*virtual_now_, end);
    return OkStatus();
  }

 private:
  TimePoint now() const { return virtual_now_ == nullptr ? Clock::now() : *virtual_now_; }
  Clock::duration TimeOf(int block, double bytes_per_s) const {
    return FromSeconds(static_cast<double>(block_bytes_[static_cast<size_t>(block)]) / bytes_per_s);
  }

  const std::vector<int64_t> block_bytes_;
  const double bytes_per_s_, back_bytes_per_s_;
  const std::shared_ptr<CopyLink> link_;
  OwnLink back_;
  TimePoint last_back_{};
  std::deque<TimePoint> ends_;  // of copies that were begun
  const std::shared_ptr<TimePoint> virtual_now_;
};

}  // namespace lamina
