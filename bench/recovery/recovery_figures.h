// What faults cost the streams that were served meanwhile.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "bench/recovery/recovery_timeline.h"

namespace lamina {

// The parts of a run: before the first fault, from a fault until the cluster has recovered from it,
// and the rest.
enum class RunPhase : uint8_t { kBefore, kDuring, kAfter };
inline constexpr size_t kNumRunPhases = 3;

// A request that had KV on a faulty node, or that lost its KV because of the fault; of the
// manager's faults, each that was under way.
struct Interruption {
  size_t stream = 0, request = 0;
  // Its first token after that. nullopt: it failed, or none came before the run ended.
  std::optional<TimePoint> resumed;
};

// A fault and what followed until the next one. kContinue has no figures, and belongs to its kStop.
struct FaultFigures {
  size_t fault = 0;               // index into RecoveryTimeline::faults
  std::optional<double> known_s;  // from the fault until the manager's status told of it
  std::vector<Interruption> interruptions;
  size_t num_resumed = 0;  // of these
  // From the fault until the first of them and the last of them resumed.
  std::optional<double> first_resumed_s, last_resumed_s;
  // Tokens whose KV was computed again: those of sequences that started again.
  int64_t tokens_again = 0;
  // Of the manager's loss: the part of the interrupted requests' tokens, those of prompts without
  // an answer left out, whose KV the next one went on with. nullopt: they had none.
  std::optional<double> kept;
  // last_resumed_s over FaultRecord::prefill_alone_s. nullopt: one of them is unknown, or nothing
  // was computed again.
  std::optional<double> over_prefill;
  // When the manager knew and the last request had resumed.
  TimePoint recovered{};
};

// Times between two tokens of a request, in milliseconds.
struct GapFigures {
  int64_t count = 0;
  // 0 if there are none.
  double median_ms = 0, p99_ms = 0, largest_ms = 0;
};

// Tokens held against those of a run without faults.
struct TokenCheck {
  int64_t num_compared = 0;  // that both runs have
  int64_t num_different = 0;
};

struct RecoveryFigures {
  std::vector<FaultFigures> faults;  // in the order of their times
  // Prompt tokens computed per second at the beginning of the run, until all streams had a token;
  // if a fault came before that, in the run without faults. nullopt: in neither.
  std::optional<double> prefill_tokens_per_s;
  // A longer gap is a pause: three times the median from before the first fault; if there was no
  // gap then, of the run without faults, or else of the whole run. 0 if there is none either.
  double pause_ms = 0;
  std::set<size_t> interrupted;  // streams, by any fault
  // [RunPhase] of the interrupted streams, and of the others. kBefore begins when all streams have
  // a token.
  std::array<GapFigures, kNumRunPhases> gaps_of_interrupted, gaps_of_others;
  // [RunPhase] output tokens, while no stream is done. nullopt: the phase has no time.
  std::array<std::optional<double>, kNumRunPhases> tokens_per_s;
  int64_t num_errors = 0;           // requests that failed or were refused
  std::string first_error;          // "" if there is none
  std::optional<TokenCheck> check;  // nullopt: there was no run without faults
};

// `undisturbed`: the same streams without faults. Null: they were not served.
RecoveryFigures EvaluateRecovery(const RecoveryTimeline& run, const RecoveryTimeline* undisturbed);

}  // namespace lamina
