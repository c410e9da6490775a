// An engine on models/tiny-stories against the golden continuations.
#pragma once

#include <vector>

#include "base/clock.h"
#include "base/dtype.h"
#include "manager/engine.h"
#include "tests/support/golden_prompts.h"
#include "tests/support/serving.h"

namespace lamina::testing {

inline constexpr double kLogprobTolerance = 1e-3;

// With this KV cache. A key or value on the other side of a rounding than PyTorch's is a step away,
// in FP8 16 of bf16's, and 1/16 as many are: what they add up to grows by sqrt(16). Steps of
// integers with a scale are smaller. The golden files for 8 bits have no choice that two such
// differences could turn.
constexpr double LogprobTolerance(DType kv_dtype) {
  return IsForKvOnly(kv_dtype) ? 4 * kLogprobTolerance : kLogprobTolerance;
}

// Expects that this is the continuation of `golden`.
void ExpectContinuation(const GoldenPrompt& golden, const Generated& got,
                        double tolerance = kLogprobTolerance);

// Submits all of `golden` at once and expects their tokens, how they end, and their
// log-probabilities to `tolerance`.
void ExpectGolden(Engine& engine, const std::vector<GoldenPrompt>& golden,
                  Clock::duration patience = std::chrono::seconds(60),
                  double tolerance = kLogprobTolerance);

}  // namespace lamina::testing
