// Measures one point of a sweep.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/dollar/step_breakdown.h"
#include "bench/dollar/sweep.h"
#include "bench/serve/serve_figures.h"

namespace lamina {

struct PointRun {
  double tokens_per_s = 0;  // of output; without prefill from when all sequences have their first token
  ServeFigures figures;
  std::vector<RequestRecord> requests;
  std::optional<StepBreakdown> breakdown;  // none: the endpoint does not tell
};

struct PointResult {
  SweepPoint point;
  std::string error;  // "": it was measured; else why not, and `runs` are those before
  std::string model;  // its name
  std::string data_path;
  std::vector<std::string> commands;  // of the daemons
  std::vector<PointRun> runs;         // measured ones, in their order
  double seconds = 0;                 // that it all took

  bool ok() const { return error.empty(); }
  // The run with the median rate; with an even number of runs the lower of the two. REQUIRES: ok().
  const PointRun& median() const;
  double lowest() const;   // rate. REQUIRES: ok()
  double highest() const;  // likewise
};

// Output tokens per second from when all requests have their first token. REQUIRES: all are in flight at the same time and were answered.
double DecodeTokensPerSecond(const std::vector<RequestRecord>& requests);

// Starts what serves, asks a few tokens of it to warm it up, then the load `sweep.repeats` times with prompts of their own. Whatever goes
// wrong is in the result.
PointResult MeasurePoint(const Sweep& sweep, const SweepPoint& point);

}  // namespace lamina
