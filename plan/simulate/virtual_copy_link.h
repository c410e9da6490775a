// A link between a device and its host's memory, of which other copies may take a part.
#pragma once

#include "base/device_timeline.h"
#include "tiers/copy_link.h"

namespace lamina {

// Thread: one owner.
class VirtualCopyLink final : public CopyLink {
 public:
  TimePoint Book(TimePoint now, Clock::duration time) override {
    if (factor_ == 1) return line_.Book(now, time);
    return line_.Book(now, FromSeconds(std::chrono::duration<double>(time).count() * factor_));
  }
  // Copies that are booked from now on take so many times as long as at first. REQUIRES: factor >
  // 0.
  void Slow(double factor) { factor_ = factor; }

 private:
  DeviceTimeline line_;
  double factor_ = 1;
};

}  // namespace lamina
