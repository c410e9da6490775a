#include "bench/recovery/recovery_timeline.h"

namespace lamina {

TimePoint NextFault(const RecoveryTimeline& run, size_t fault) {
  for (size_t i = fault + 1; i < run.faults.size(); ++i) {
    if (run.faults[i].fault.kind != FaultKind::kContinue) return run.faults[i].at;
  }
  return TimePoint::max();
}

std::vector<int64_t> LengthsAgain(const RecoveryTimeline& run, size_t fault) {
  const TimePoint at = run.faults[fault].at, next = NextFault(run, fault);
  std::vector<int64_t> lengths;
  for (const SequenceStart& start : run.starts) {
    const int64_t length = start.num_tokens - start.num_shared;
    if (start.again && start.at >= at && start.at < next && length > 0) lengths.push_back(length);
  }
  return lengths;
}

}  // namespace lamina
