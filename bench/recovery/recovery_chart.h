// The picture of a run with faults.
#pragma once

#include <string>

#include "bench/recovery/recovery_figures.h"
#include "bench/recovery/recovery_timeline.h"

namespace lamina {

// A whole SVG document: output tokens per second over time, and below it a row for each stream with
// its pauses, interrupted streams on top. Faults and the ends of recoveries are marked.
std::string DrawRecovery(const std::string& heading, const RecoveryTimeline& run,
                         const RecoveryFigures& figures);

}  // namespace lamina
