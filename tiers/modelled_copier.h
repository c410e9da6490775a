// A link that is only modelled: copies take the time that their bytes take at its rate, and copy
// nothing.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "base/device_timeline.h"
#include "tiers/copy_engine.h"
#include "tiers/copy_link.h"

namespace lamina {

// Thread: one owner.
class ModelledCopier final : public CopyEngine {
 public:
  // Others may use the link as well. REQUIRES: bytes_per_s > 0.
  ModelledCopier(std::vector<int64_t> block_bytes, double bytes_per_s,
                 std::shared_ptr<CopyLink> link = std::make_shared<OwnLink>())
      : block_bytes_(std::move(block_bytes)), bytes_per_s_(bytes_per_s), link_(std::move(link)) {}

  // In virtual time: it is `now`. From then on copies are begun at the time that was said last, and
  // FinishOldest does not wait, but finished_at tells when that copy ends.
  void SetNow(TimePoint now) { now_ = now; }
  TimePoint finished_at() const { return finished_at_; }

  void Start(int block, std::byte*) override {
    const double seconds =
        static_cast<double>(block_bytes_[static_cast<size_t>(block)]) / bytes_per_s_;
    ends_.push_back(link_->Book(now_ ? *now_ : Clock::now(), FromSeconds(seconds)));
  }
  Status FinishOldest() override {
    finished_at_ = ends_.front();
    ends_.pop_front();
    if (!now_) SleepUntil(finished_at_);
    return OkStatus();
  }

 private:
  const std::vector<int64_t> block_bytes_;
  const double bytes_per_s_;
  const std::shared_ptr<CopyLink> link_;
  std::deque<TimePoint> ends_;  // of copies that were begun
  TimePoint finished_at_{};
  std::optional<TimePoint> now_;
};

}  // namespace lamina
