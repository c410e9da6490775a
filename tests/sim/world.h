// One simulation: a cluster in virtual time, its clients and its faults, held against the oracles
// (oracles.h). A run is a function of its scenario.
//
//   Result<std::unique_ptr<Expected>> expected = Expected::Create();
//   RunResult result = RunScenario(DrawScenario(17), **expected);
//   result.failure  ->  ""
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/clock.h"
#include "tests/sim/coincidences.h"
#include "tests/sim/expected.h"
#include "tests/sim/scenario.h"

namespace lamina::sim {

struct RunResult {
  // What went wrong first; "" for nothing. Begins with the kind of it and a colon.
  std::string failure;
  // Of every token that was told, every fault and every change of state, with their times.
  uint64_t hash = 0;
  uint64_t num_events = 0;
  uint64_t num_tokens = 0;   // that were told
  Clock::duration lasted{};  // in virtual time
  Coincidences seen;

  // "stream" of "stream: token 3 is ...".
  std::string kind() const { return failure.substr(0, failure.find(':')); }
};

// Is given a line for each event.
using EventLog = std::function<void(const std::string& line)>;

// REQUIRES: no other one runs, and no other thread reads the clock.
RunResult RunScenario(const Scenario& scenario, Expected& expected, const EventLog& log = nullptr);

}  // namespace lamina::sim
