// Measures one point of a sweep: a shape under one load.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/dollar/step_breakdown.h"
#include "bench/dollar/sweep.h"
#include "bench/serve/serve_figures.h"

namespace lamina {

// One run of a point's load.
struct PointRun {
  // Output tokens; if prefill is left out, from when all sequences have their first token.
  double tokens_per_s = 0;
  ServeFigures figures;
  std::vector<RequestRecord> requests;
  // None if the endpoint does not tell.
  std::optional<StepBreakdown> breakdown;
  // The share of the prompts' tokens that the endpoint had in a prefix cache. None if it does not
  // tell.
  std::optional<double> cached_share;
};

// A point with all of its runs, or why it could not be measured.
struct PointResult {
  SweepPoint point;
  // "" if it was measured. Else it says why not, and `runs` are the runs before that.
  std::string error;
  // The reason is that the caller has ended the sweep.
  bool interrupted = false;
  std::string model;  // its name
  // The fabrics between the nodes: ServedPoint::data_path.
  std::string data_path;
  // Command lines of the daemons.
  std::vector<std::string> commands;
  std::vector<PointRun> runs;  // in their order, without the warm-up
  double seconds = 0;          // that the whole point took

  bool ok() const { return error.empty(); }
  // The run with the median rate; of an even number of runs the lower of the two in the middle.
  // REQUIRES: ok().
  const PointRun& median() const;
  // Rates of the slowest and the fastest run. REQUIRES: ok().
  double lowest() const;
  double highest() const;
};

// The seed of the prompts of a point's warm-up; its runs count up from there. What the sweep starts
// itself is new for each point, and gets the same prompts each time. A server that runs already may
// keep prompts in a prefix cache, so that no two points, nor two sweeps, may ask the same of it;
// `started_us` is the time of day.
uint64_t PromptSeed(const Sweep& sweep, const SweepPoint& point, uint64_t started_us);

// Output tokens per second from when all requests have their first token. REQUIRES: all of them
// were in flight at the same time and were answered.
double DecodeTokensPerSecond(const std::vector<RequestRecord>& requests);

// Starts what serves, asks it for a few tokens to warm it up, then sends the load `sweep.repeats`
// times, each time with other prompts. Whatever goes wrong is in the result. `interrupted` is
// called now and then; true ends the point early.
PointResult MeasurePoint(const Sweep& sweep, const SweepPoint& point,
                         const std::function<bool()>& interrupted);

}  // namespace lamina
