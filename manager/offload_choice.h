// How much of the weights lies outside of memory in a step: as much as the latency that its
// requests are promised allows (Select-N, section 4).
//
// The objective for each further token of the most demanding sequence in the step bounds how long a
// step may take in which all of them decode; the objective for the first token bounds what is left
// of a prompt's computation. A step profile says what steps take. Where no sequence has an
// objective, all stays in memory that finds room there.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/device_timeline.h"
#include "base/slo.h"
#include "base/status.h"
#include "cost/step_profile.h"
#include "manager/offload_bus.h"
#include "scheduler/scheduler.h"

namespace lamina {

// Thread: one owner.
class OffloadChoice {
 public:
  // With a bus, the batches that are served at a time are given such intervals that all that has to
  // come over it comes in time, with as much outside as can be (Select-N, section 4.5).
  explicit OffloadChoice(std::shared_ptr<const StepProfile> profile,
                         std::optional<OffloadBus> bus = {})
      : profile_(std::move(profile)), bus_(std::move(bus)) {}

  // The largest interval that the nodes have memory for; 0: all weights find room.
  void SetLargest(int interval) { largest_ = interval; }

  // The interval for a step that is submitted now; nullopt if it computes nothing. The scheduler
  // knows the sequences.
  std::optional<int> Choose(const StepPlan& plan, const Scheduler& scheduler, TimePoint now);

  // kTryAgain, with the times, if no interval that the nodes have memory for keeps the objective
  // for tokens behind the first even if the sequence runs alone.
  Status Check(const Slo& slo) const;

 private:
  // An interval that a batch may have, and what then has to come for it.
  struct Option {
    int interval = 0;
    double bytes = 0, bytes_per_s = 0;
  };
  // What the last step of a batch may do, the most outside first. Never empty.
  struct Flow {
    std::vector<Option> options;
    TimePoint until;  // another step comes until then, or the batch has nothing to do
  };

  bool IsAllowed(int interval) const {
    return largest_ == 0 || (interval > 0 && interval <= largest_);
  }
  // Of the intervals that are allowed, the one with the most in memory.
  int MostInMemory() const;
  // The intervals that keep what is promised, the most outside first; if none does, that with the
  // most in memory.
  std::vector<Option> OptionsOf(const StepPlan& plan, const Scheduler& scheduler,
                                TimePoint now) const;
  // Of the flow of `batch`, so that all flows together find room on the bus.
  int AmongOthers(int batch) const;
  // What a step is taken to last that the profile says to take `seconds`: somewhat longer, as half
  // of them do.
  static Clock::duration Expected(double seconds) { return FromSeconds(1.01 * seconds); }

  const std::shared_ptr<const StepProfile> profile_;
  const std::optional<OffloadBus> bus_;
  int largest_ = 0;
  std::map<int, Flow> flows_;  // with a bus, by batch
};

}  // namespace lamina
