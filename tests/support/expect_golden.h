// An engine on models/tiny-stories against the golden continuations.
#pragma once

#include <vector>

#include "base/clock.h"
#include "frontend/engine.h"
#include "tests/support/golden_prompts.h"

namespace lamina::testing {

inline constexpr double kLogprobTolerance = 1e-3;

// Submits all of `golden` at once and expects their tokens, how they end, and their log-probabilities to `tolerance`.
void ExpectGolden(Engine& engine, const std::vector<GoldenPrompt>& golden, Clock::duration patience = std::chrono::seconds(60),
                  double tolerance = kLogprobTolerance);

}  // namespace lamina::testing
