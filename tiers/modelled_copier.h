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

  void SetRuns(const BlockRuns& runs) override { run_bytes_ = runs.bytes(); }
  // A copy begins when the copies back before it have ended: it may be into their memory.
  void Start(int block, std::byte*) override {
    const TimePoint begin = std::max(now(), last_back_);
    Add(block, begin, link_->Book(begin, TimeOf(block, bytes_per_s_)));
  }
  void StartBack(int block, const std::byte*) override {
    last_back_ = back_bytes_per_s_ > 0 ? back_.Book(now(), TimeOf(block, back_bytes_per_s_))
                                       : link_->Book(now(), TimeOf(block, bytes_per_s_));
    Add(block, now(), last_back_);
  }
  bool OldestIsDone() override { return copies_.front().end <= now(); }
  double seconds_per_byte() const override { return seconds_per_byte_; }
  Status FinishOldest() override {
    const auto [end, seconds_per_byte] = copies_.front();
    copies_.pop_front();
    seconds_per_byte_ = seconds_per_byte;
    if (virtual_now_ == nullptr)
      SleepUntil(end);
    else
      *virtual_now_ = std::max(*virtual_now_, end);
    return OkStatus();
  }

 private:
  struct Copy {
    TimePoint end;
    double seconds_per_byte = 0;
  };
  TimePoint now() const { return virtual_now_ == nullptr ? Clock::now() : *virtual_now_; }
  double BytesOf(int block) const {
    return static_cast<double>(run_bytes_ > 0 ? run_bytes_
                                              : block_bytes_[static_cast<size_t>(block)]);
  }
  Clock::duration TimeOf(int block, double bytes_per_s) const {
    return FromSeconds(BytesOf(block) / bytes_per_s);
  }
  void Add(int block, TimePoint begin, TimePoint end) {
    copies_.push_back({end, std::chrono::duration<double>(end - begin).count() / BytesOf(block)});
  }

  const std::vector<int64_t> block_bytes_;
  const double bytes_per_s_, back_bytes_per_s_;
  const std::shared_ptr<CopyLink> link_;
  OwnLink back_;
  TimePoint last_back_{};
  int64_t run_bytes_ = 0;    // 0: all of a block
  std::deque<Copy> copies_;  // that were begun
  double seconds_per_byte_ = 0;
  const std::shared_ptr<TimePoint> virtual_now_;
};

}  // namespace lamina
