// What a server says of itself in the log while it serves.
#pragma once

#include <string>

#include "api/metrics.h"
#include "base/clock.h"
#include "manager/engine.h"

namespace lamina {

// A line of what has happened between two looks, `seconds` apart, and of how it is now; "" if there
// is nothing to tell: nothing has happened and nobody waits.
std::string FiguresLine(const Metrics::Totals& before, const Metrics::Totals& now, double seconds,
                        const EngineStatus& status);

// Logs it every 10 s. Borrows both. Thread: one.
class ServingFigures {
 public:
  ServingFigures(const Metrics& metrics, Engine& engine) : metrics_(metrics), engine_(engine) {}

  // To be called often.
  void Look();

 private:
  const Metrics& metrics_;
  Engine& engine_;
  TimePoint last_ = Clock::now();
  Metrics::Totals before_ = metrics_.totals();
};

}  // namespace lamina
