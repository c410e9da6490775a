// The latency that a request is promised.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/clock.h"

namespace lamina {

// Times of objectives are no longer, so that sums over all tokens of a sequence are times too.
inline constexpr Clock::duration kLongestObjective = std::chrono::minutes(10);

// Objectives of one request. Value type.
struct Slo {
  Clock::duration ttft{};  // from its arrival to its first token; 0: none
  Clock::duration tpot{};  // for each token behind that one, on average; 0: none

  bool any() const { return ttft > Clock::duration::zero() || tpot > Clock::duration::zero(); }
  bool operator==(const Slo&) const = default;
};

// Objectives of requests that name none. Value type.
struct SloRule {
  Clock::duration ttft{};                  // 0, with the next one 0 too: none
  Clock::duration ttft_per_input_token{};  // for prompts that this makes longer than `ttft`
  Clock::duration max_ttft{};              // 0: no limit to that
  Clock::duration tpot{};                  // 0: none

  Slo Of(int64_t input_tokens) const {
    Clock::duration first = std::max(ttft, ttft_per_input_token * input_tokens);
    if (max_ttft > Clock::duration::zero()) first = std::min(first, max_ttft);
    return {first, tpot};
  }
  bool operator==(const SloRule&) const = default;
};

// How a request that has ended stands to its objectives.
enum class SloOutcome { kMet, kMissedTtft, kMissedTpot, kMissedBoth, kDropped };

// The outcome of a request that got its first token `ttft` after it arrived, and the last of
// `num_tokens` another `decode` later. REQUIRES: slo.any(), num_tokens >= 1.
inline SloOutcome OutcomeOf(const Slo& slo, Clock::duration ttft, Clock::duration decode,
                            int64_t num_tokens) {
  const Clock::duration none{};
  const bool late = slo.ttft > none && ttft > slo.ttft;
  const bool slow = slo.tpot > none && decode > slo.tpot * (num_tokens - 1);
  if (late) return slow ? SloOutcome::kMissedBoth : SloOutcome::kMissedTtft;
  return slow ? SloOutcome::kMissedTpot : SloOutcome::kMet;
}

// When the token behind `num_generated` others is due to a request that arrived at `start`. Without
// an objective for the first token it never is.
inline TimePoint NextTokenDue(TimePoint start, const Slo& slo, int64_t num_generated) {
  if (slo.ttft == Clock::duration::zero()) return TimePoint::max();
  return start + slo.ttft + slo.tpot * num_generated;
}

}  // namespace lamina
