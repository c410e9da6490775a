// Measures one point of a sweep.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/dollar/step_breakdown.h"
#include "bench/dollar/sweep.h"
#include "bench/serve/serve_figures.h"

namespace lamina {

struct PointRun {
  // Of output; without prefill from when all sequences have their first token.
  double tokens_per_s = 0;
  ServeFigures figures;
  std::vector<RequestRecord> requests;
  std::optional<StepBreakdown> breakdown;  // none: the endpoint does not tell
  // Of the prompts' tokens, that the endpoint had in a prefix cache; none: it does not tell.
  std::optional<double> cached_share;
};

struct PointResult {
  SweepPoint point;
  std::string error;         // "": it was measured; else why not, and `runs` are those before
  bool interrupted = false;  // that is why
  std::string model;         // its name
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

// Of the prompts of a point's warm-up; its runs count up from there. What the sweep starts itself
// is new for each point and gets the same prompts each time. A server that runs already may keep
// prompts in a prefix cache, so that no two points ask it alike, nor two sweeps: `started_us` is
// the time of day.
uint64_t PromptSeed(const Sweep& sweep, const SweepPoint& point, uint64_t started_us);

// Output tokens per second from when all requests have their first token. REQUIRES: all are in
// flight at the same time and were answered.
double DecodeTokensPerSecond(const std::vector<RequestRecord>& requests);

// Starts what serves, asks a few tokens of it to warm it up, then the load `sweep.repeats` times
// with prompts of their own. Whatever goes wrong is in the result. `interrupted`: asked now and
// then; true ends it early.
PointResult MeasurePoint(const Sweep& sweep, const SweepPoint& point,
                         const std::function<bool()>& interrupted);

}  // namespace lamina
