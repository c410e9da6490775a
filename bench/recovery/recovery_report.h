// The figures of a run with faults, for machines and for people.
#pragma once

#include <string>
#include <vector>

#include "bench/recovery/recovery_figures.h"
#include "bench/recovery/recovery_run.h"
#include "bench/recovery/recovery_timeline.h"
#include "bench/report.h"

namespace lamina {

struct RecoveryReport {
  std::string cluster;  // its name
  StreamLoad load;
  RecoveryTimeline run;
  RecoveryFigures figures;

  // "local: 32 streams, 128 + 256 tokens, 20.0 s".
  std::string Heading() const;
};

// One for each figure. A value that is not known is NaN, and its note says why.
std::vector<Measurement> MeasurementsOf(const RecoveryReport& report);

std::string ToText(const RecoveryReport& report);

}  // namespace lamina
