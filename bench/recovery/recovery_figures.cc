#include "bench/recovery/recovery_figures.h"

#include <algorithm>
#include <map>
#include <utility>

#include "plan/statistics.h"

namespace lamina {
namespace {

constexpr double kPauseOverMedian = 3;

double MsBetween(TimePoint from, TimePoint to) { return 1e3 * SecondsBetween(from, to); }

// When the last stream got its first token. nullopt: one got none of its first request.
std::optional<TimePoint> AllStarted(const RecoveryTimeline& run) {
  TimePoint last = run.start;
  for (const StreamRecord& stream : run.streams) {
    if (stream.requests.empty() || stream.requests.front().times.empty()) return std::nullopt;
    last = std::max(last, stream.requests.front().times.front());
  }
  return last;
}

TimePoint FirstFault(const RecoveryTimeline& run) {
  return run.faults.empty() ? TimePoint::max() : run.faults.front().at;
}

std::optional<double> PrefillRate(const RecoveryTimeline& run) {
  const std::optional<TimePoint> until = AllStarted(run);
  if (!until || *until > FirstFault(run) || *until == run.start) return std::nullopt;
  int64_t num_prompts = 0;
  for (const StreamRecord& stream : run.streams) {
    num_prompts += std::ranges::count_if(stream.requests, [&](const StreamRequest& request) {
      return !request.times.empty() && request.times.front() <= *until;
    });
  }
  return static_cast<double>(num_prompts * run.input_tokens) / SecondsBetween(run.start, *until);
}

// When the phases of a run are.
class RunPhases {
 public:
  RunPhases(const RecoveryTimeline& run, const std::vector<FaultFigures>& faults)
      : from_(AllStarted(run).value_or(TimePoint::max())),
        first_fault_(FirstFault(run)),
        until_(run.end) {
    for (const StreamRecord& stream : run.streams) {
      if (stream.done) until_ = std::min(until_, *stream.done);
    }
    for (const FaultFigures& fault : faults) {
      const TimePoint at = run.faults[fault.fault].at;
      // A fault may come before the cluster has recovered from the one before.
      if (!during_.empty() && at <= during_.back().second) {
        during_.back().second = std::max(during_.back().second, fault.recovered);
      } else {
        during_.emplace_back(at, fault.recovered);
      }
    }
  }

  // The phase of something that lasted from `begin` to `end`. nullopt: not all streams were served.
  std::optional<RunPhase> Of(TimePoint begin, TimePoint end) const {
    for (const auto& [from, until] : during_) {
      if (begin < until && end > from) return RunPhase::kDuring;
    }
    if (end <= first_fault_)
      return begin >= from_ ? std::optional(RunPhase::kBefore) : std::nullopt;
    return end <= until_ ? std::optional(RunPhase::kAfter) : std::nullopt;
  }

  double SecondsOf(RunPhase phase) const {
    if (phase == RunPhase::kBefore) return Length(from_, std::min(first_fault_, until_));
    double during = 0;
    for (const auto& [from, until] : during_) during += Length(from, std::min(until, until_));
    return phase == RunPhase::kDuring ? during : Length(first_fault_, until_) - during;
  }

  TimePoint until() const { return until_; }

 private:
  static double Length(TimePoint from, TimePoint until) {
    return until > from ? SecondsBetween(from, until) : 0;
  }

  TimePoint from_, first_fault_, until_;
  std::vector<std::pair<TimePoint, TimePoint>> during_;
};

template <typename See>
void ForEachGap(const RecoveryTimeline& run, const See& see) {
  for (size_t stream = 0; stream < run.streams.size(); ++stream) {
    for (const StreamRequest& request : run.streams[stream].requests) {
      for (size_t i = 1; i < request.times.size(); ++i)
        see(stream, request.times[i - 1], request.times[i]);
    }
  }
}

// From when all streams had a token until the first fault.
std::vector<double> GapsBeforeFaults(const RecoveryTimeline& run) {
  const TimePoint from = AllStarted(run).value_or(TimePoint::max());
  std::vector<double> ms;
  ForEachGap(run, [&](size_t, TimePoint begin, TimePoint end) {
    if (begin >= from && end <= FirstFault(run)) ms.push_back(MsBetween(begin, end));
  });
  return ms;
}

double PauseMs(const RecoveryTimeline& run, const RecoveryTimeline* undisturbed) {
  std::vector<double> ms = GapsBeforeFaults(run);
  if (ms.empty() && undisturbed != nullptr) ms = GapsBeforeFaults(*undisturbed);
  if (ms.empty()) {
    ForEachGap(
        run, [&](size_t, TimePoint begin, TimePoint end) { ms.push_back(MsBetween(begin, end)); });
  }
  return ms.empty() ? 0 : kPauseOverMedian * Percentile(std::move(ms), 0.5);
}

// When a request went on that had KV on a faulty node and did not start again: behind its longest
// pause between the fault and the next one, or, if it did not pause, with its next token. Others
// may have made it pause too, but not for as long.
std::optional<TimePoint> EndOfPause(const StreamRequest& request, TimePoint fault, TimePoint next,
                                    double pause_ms) {
  if (!request.error.empty()) return std::nullopt;
  std::optional<TimePoint> resumed;
  double longest_ms = pause_ms;
  TimePoint before = request.submitted;
  for (const TimePoint time : request.times) {
    const double gap_ms = MsBetween(before, time);
    if (time > fault && before < next && (gap_ms > longest_ms || !resumed)) {
      resumed = time;
      longest_ms = std::max(longest_ms, gap_ms);
    }
    before = time;
  }
  return resumed;
}

// The first token behind those that the sequence started with.
std::optional<TimePoint> FirstTokenAfter(const SequenceStart& start, const StreamRequest& request,
                                         int64_t input_tokens) {
  const auto num_had = static_cast<size_t>(std::max<int64_t>(0, start.num_tokens - input_tokens));
  if (num_had >= request.times.size()) return std::nullopt;
  return request.times[num_had];
}

bool HadKvOn(const SequenceStart& start, NodeId node, TimePoint at) {
  return std::ranges::any_of(start.places, [&](const SequenceStart::Place& place) {
    return place.node == node && place.since <= at;
  });
}

// The manager is gone, or hangs.
std::vector<Interruption> InterruptionsOfAll(const FaultRecord& fault, TimePoint next,
                                             const RecoveryTimeline& run, double pause_ms) {
  std::vector<Interruption> interruptions;
  if (fault.fault.kind == FaultKind::kRestart) return interruptions;
  for (size_t stream = 0; stream < run.streams.size(); ++stream) {
    const std::vector<StreamRequest>& requests = run.streams[stream].requests;
    for (size_t i = 0; i < requests.size(); ++i) {
      if (requests[i].submitted > fault.at || (requests[i].ended && *requests[i].ended <= fault.at))
        continue;
      interruptions.push_back({stream, i, EndOfPause(requests[i], fault.at, next, pause_ms)});
    }
  }
  return interruptions;
}

// What of the interrupted requests' KV was lost with the manager.
void AddLeftTokens(const FaultRecord& fault, const RecoveryTimeline& run, FaultFigures& figures) {
  if (fault.fault.kind != FaultKind::kKill) return;
  int64_t num_begun = 0, num_prompt = 0;
  for (const Interruption& interruption : figures.interruptions) {
    const StreamRequest& request = run.streams[interruption.stream].requests[interruption.request];
    // Also those that were under way when it was killed.
    const int64_t num_told = std::ranges::count_if(request.times, [&](TimePoint time) {
      return interruption.resumed ? time < *interruption.resumed : time <= fault.at;
    });
    // The last token has no KV yet.
    (num_told > 0 ? num_begun : num_prompt) +=
        run.input_tokens + std::max<int64_t>(num_told - 1, 0);
  }
  figures.tokens_again = num_begun + num_prompt - fault.left_tokens;
  if (num_begun > 0)
    figures.kept = static_cast<double>(fault.left_tokens) / static_cast<double>(num_begun);
}

// By the fault, which was over when the next one came.
std::vector<Interruption> InterruptionsBy(const FaultRecord& fault, TimePoint next,
                                          const RecoveryTimeline& run, double pause_ms) {
  using Request = std::pair<size_t, size_t>;  // stream, and number in it
  std::map<Request, const SequenceStart*> before, again;
  for (const SequenceStart& start : run.starts) {
    const Request request(start.stream, start.request);
    if (start.at < fault.at) {
      before[request] = &start;
    } else if (start.again && start.at < next) {
      again[request] = &start;
    }
  }
  const auto request_of = [&](const Request& request) -> const StreamRequest& {
    return run.streams[request.first].requests[request.second];
  };
  std::vector<Interruption> interruptions;
  for (const auto& [key, start] : again) {
    const std::optional<TimePoint> resumed =
        FirstTokenAfter(*start, request_of(key), run.input_tokens);
    interruptions.push_back({key.first, key.second, resumed});
  }
  if (fault.fault.kind == FaultKind::kRestart) return interruptions;
  for (const auto& [key, start] : before) {
    const StreamRequest& request = request_of(key);
    if (again.contains(key) || !HadKvOn(*start, fault.kv_node, fault.at) ||
        (request.ended && *request.ended <= fault.at))
      continue;
    interruptions.push_back({key.first, key.second, EndOfPause(request, fault.at, next, pause_ms)});
  }
  return interruptions;
}

FaultFigures FiguresOfFault(size_t index, const RecoveryTimeline& run, double pause_ms) {
  const FaultRecord& fault = run.faults[index];
  const TimePoint next = NextFault(run, index);
  FaultFigures figures;
  figures.fault = index;
  figures.recovered = fault.known.value_or(fault.at);
  if (fault.known) figures.known_s = SecondsBetween(fault.at, *fault.known);
  figures.interruptions = fault.fault.OfManager() ? InterruptionsOfAll(fault, next, run, pause_ms)
                                                  : InterruptionsBy(fault, next, run, pause_ms);
  for (const Interruption& interruption : figures.interruptions) {
    if (!interruption.resumed) continue;
    const double after_s = SecondsBetween(fault.at, *interruption.resumed);
    ++figures.num_resumed;
    figures.first_resumed_s = std::min(figures.first_resumed_s.value_or(after_s), after_s);
    figures.last_resumed_s = std::max(figures.last_resumed_s.value_or(after_s), after_s);
    figures.recovered = std::max(figures.recovered, *interruption.resumed);
  }
  for (const int64_t length : LengthsAgain(run, index)) figures.tokens_again += length;
  if (fault.fault.OfManager()) AddLeftTokens(fault, run, figures);
  if (figures.last_resumed_s && fault.prefill_alone_s)
    figures.over_prefill = *figures.last_resumed_s / *fault.prefill_alone_s;
  return figures;
}

void AddFaults(const RecoveryTimeline& run, RecoveryFigures& figures) {
  for (size_t i = 0; i < run.faults.size(); ++i) {
    if (run.faults[i].fault.kind == FaultKind::kContinue) continue;
    figures.faults.push_back(FiguresOfFault(i, run, figures.pause_ms));
    for (const Interruption& interruption : figures.faults.back().interruptions)
      figures.interrupted.insert(interruption.stream);
  }
}

GapFigures FiguresOfGaps(std::vector<double> ms) {
  if (ms.empty()) return {};
  std::ranges::sort(ms);
  return {std::ssize(ms), PercentileOfSorted(ms, 0.5), PercentileOfSorted(ms, 0.99), ms.back()};
}

void AddGaps(const RecoveryTimeline& run, const RunPhases& phases, RecoveryFigures& figures) {
  std::array<std::vector<double>, kNumRunPhases> of_interrupted, of_others;
  ForEachGap(run, [&](size_t stream, TimePoint begin, TimePoint end) {
    const std::optional<RunPhase> phase = phases.Of(begin, end);
    if (!phase) return;
    auto& gaps = figures.interrupted.contains(stream) ? of_interrupted : of_others;
    gaps[static_cast<size_t>(*phase)].push_back(MsBetween(begin, end));
  });
  for (size_t phase = 0; phase < kNumRunPhases; ++phase) {
    figures.gaps_of_interrupted[phase] = FiguresOfGaps(std::move(of_interrupted[phase]));
    figures.gaps_of_others[phase] = FiguresOfGaps(std::move(of_others[phase]));
  }
}

void AddRates(const RecoveryTimeline& run, const RunPhases& phases, RecoveryFigures& figures) {
  std::array<int64_t, kNumRunPhases> counts{};
  for (const StreamRecord& stream : run.streams) {
    for (const StreamRequest& request : stream.requests) {
      for (const TimePoint time : request.times) {
        const std::optional<RunPhase> phase = phases.Of(time, time);
        if (phase && time <= phases.until()) ++counts[static_cast<size_t>(*phase)];
      }
    }
  }
  for (const RunPhase phase : {RunPhase::kBefore, RunPhase::kDuring, RunPhase::kAfter}) {
    const double seconds = phases.SecondsOf(phase);
    const auto index = static_cast<size_t>(phase);
    if (seconds > 0) figures.tokens_per_s[index] = static_cast<double>(counts[index]) / seconds;
  }
}

void AddErrors(const RecoveryTimeline& run, RecoveryFigures& figures) {
  for (const StreamRecord& stream : run.streams) {
    for (const StreamRequest& request : stream.requests) {
      if (request.error.empty()) continue;
      if (figures.num_errors++ == 0) figures.first_error = request.error;
    }
  }
}

TokenCheck Compare(const RecoveryTimeline& run, const RecoveryTimeline& undisturbed) {
  TokenCheck check;
  for (size_t stream = 0; stream < run.streams.size(); ++stream) {
    const std::vector<StreamRequest>& ours = run.streams[stream].requests;
    const std::vector<StreamRequest>& right = undisturbed.streams[stream].requests;
    for (size_t i = 0; i < std::min(ours.size(), right.size()); ++i) {
      const size_t both = std::min(ours[i].tokens.size(), right[i].tokens.size());
      check.num_compared += static_cast<int64_t>(both);
      for (size_t token = 0; token < both; ++token)
        check.num_different += ours[i].tokens[token] != right[i].tokens[token];
    }
  }
  return check;
}

}  // namespace

RecoveryFigures EvaluateRecovery(const RecoveryTimeline& run, const RecoveryTimeline* undisturbed) {
  RecoveryFigures figures;
  figures.prefill_tokens_per_s = PrefillRate(run);
  if (!figures.prefill_tokens_per_s && undisturbed != nullptr)
    figures.prefill_tokens_per_s = PrefillRate(*undisturbed);
  figures.pause_ms = PauseMs(run, undisturbed);
  AddFaults(run, figures);
  const RunPhases phases(run, figures.faults);
  AddGaps(run, phases, figures);
  AddRates(run, phases, figures);
  AddErrors(run, figures);
  if (undisturbed != nullptr) figures.check = Compare(run, *undisturbed);
  return figures;
}

}  // namespace lamina
