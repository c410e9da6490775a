#include "bench/record/record_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <future>
#include <memory>
#include <random>
#include <utility>

#include "bench/record/recorded_engine.h"
#include "plan/statistics.h"

namespace lamina {
namespace {

constexpr auto kLongestCase = std::chrono::minutes(10);
// Of a sequence, besides the steps that are measured: what the scheduler keeps free for it.
constexpr int64_t kSpareTokens = 24;

// The first context of a sequence whose steps with all intervals have the mean context `mean`.
int64_t FirstContext(int64_t mean, int64_t num_steps) {
  return std::max<int64_t>(1, mean - num_steps / 2);
}

// The context in the middle of the steps with the plan's i-th interval. A little more for sequences
// that were there before the others; it is the same for every number of rows, though.
double MiddleContext(int64_t mean, const RecordPlan& plan, size_t i) {
  const int64_t each = plan.num_steps + 1;
  return static_cast<double>(FirstContext(mean, (std::ssize(plan.intervals) + 1) * each)) +
         static_cast<double>(each) * (static_cast<double>(i) + 1.5);
}

// Serves sequences with these contexts until their steps with all intervals are measured. Each
// decodes from a context that is so much shorter that the mean of all steps is about the one asked
// for.
Result<std::vector<StepRecorder::Series>> DecodeSteps(RecordedEngine& recorded,
                                                      const ModelConfig& model,
                                                      const std::vector<int64_t>& contexts,
                                                      const std::vector<int>& intervals,
                                                      int num_steps) {
  // The first ones find memory that was never used, and others at work on it: they do not count.
  std::vector<int> series_of = intervals;
  series_of.insert(series_of.begin(), intervals.front());
  const int64_t all_steps = std::ssize(series_of) * (num_steps + 1);
  recorded.recorder->Measure(series_of, static_cast<int>(contexts.size()), num_steps);
  std::vector<RequestId> requests;
  Status status;
  for (size_t i = 0; i < contexts.size() && status.ok(); ++i) {
    const Result<RequestId> request = recorded.engine->Submit(
        DummyRequest(FirstContext(contexts[i], all_steps), all_steps + kSpareTokens, i, model),
        [](const TokenEvent&) {});
    if (request.ok())
      requests.push_back(*request);
    else
      status = request.status();
  }
  std::optional<std::vector<StepRecorder::Series>> series;
  if (status.ok()) {
    const TimePoint latest = Clock::now() + kLongestCase;
    while (!series && Clock::now() < latest && recorded.engine->given_up().ok())
      series = recorded.recorder->Await(std::min(latest, Clock::now() + std::chrono::seconds(1)));
  }
  for (const RequestId request : requests) recorded.engine->Abort(request);
  LAMINA_RETURN_IF_ERROR(status);
  LAMINA_RETURN_IF_ERROR(recorded.engine->given_up());
  if (!series) return TimedOut(fmt::format("steps of {} sequences did not end", contexts.size()));
  series->erase(series->begin());
  return *std::move(series);
}

int64_t RoomFor(const RecordedEngine& recorded) {
  int64_t room = 0;
  for (const KvNode& node : recorded.recorder->kv_nodes()) room += node.capacity_tokens;
  return room;
}

}  // namespace

Result<std::vector<StepTime>> RecordRun::MeasureDecoding(const RecordPlan& plan) {
  LAMINA_ASSIGN_OR_RETURN(RecordedEngine recorded, RecordedEngine::Connect(config_, model_, true));
  const int64_t longest = *std::ranges::max_element(plan.contexts) + kSpareTokens +
                          (std::ssize(plan.intervals) + 1) * (plan.num_steps + 1);
  const int most = *std::ranges::max_element(plan.rows);
  if (most * longest > RoomFor(recorded)) {
    return OutOfSpace(fmt::format(
        "{} sequences of {} tokens need more than the {} token slots of the nodes: give smaller "
        "--rows or --contexts",
        most, longest, RoomFor(recorded)));
  }
  std::vector<StepTime> times;
  for (const int64_t context : plan.contexts) {
    for (const int rows : plan.rows) {
      LAMINA_ASSIGN_OR_RETURN(
          const std::vector<StepRecorder::Series> all,
          DecodeSteps(recorded, model_, std::vector<int64_t>(static_cast<size_t>(rows), context),
                      plan.intervals, plan.num_steps));
      std::string line = fmt::format("decode, {} x {} tokens:", rows, context);
      for (size_t i = 0; i < all.size(); ++i) {
        const double seconds = Percentile(all[i].seconds, 0.5);
        times.push_back({false, all[i].interval, static_cast<double>(rows),
                         MiddleContext(context, plan, i), seconds});
        line += fmt::format(" {:.1f}", 1e3 * seconds);
      }
      progress_(line + " ms");
    }
  }
  return times;
}

Result<std::vector<StepTime>> RecordRun::MeasurePrompts(const RecordPlan& plan) {
  LAMINA_ASSIGN_OR_RETURN(RecordedEngine recorded, RecordedEngine::Connect(config_, model_, false));
  std::vector<StepTime> times;
  uint64_t number = 0;
  for (const int64_t tokens : plan.prompts) {
    std::string line = fmt::format("prefill, {} tokens:", tokens);
    for (const int interval : plan.intervals) {
      recorded.recorder->SetInterval(interval);
      std::vector<double> seconds;
      // The first one brings what the interval needs.
      for (int i = 0; i <= plan.num_steps; ++i) {
        auto first = std::make_shared<std::promise<TimePoint>>();
        const TimePoint start = Clock::now();
        LAMINA_RETURN_IF_ERROR(recorded.engine
                                   ->Submit(DummyRequest(tokens, 1, number++, model_),
                                            [first](const TokenEvent& event) {
                                              if (event.finish) first->set_value(Clock::now());
                                            })
                                   .status());
        std::future<TimePoint> ended = first->get_future();
        if (ended.wait_for(kLongestCase) != std::future_status::ready)
          return TimedOut(fmt::format("a prompt of {} tokens did not end", tokens));
        LAMINA_RETURN_IF_ERROR(recorded.engine->given_up());
        if (i > 0) seconds.push_back(std::chrono::duration<double>(ended.get() - start).count());
      }
      times.push_back({true, interval, static_cast<double>(tokens), 0, Percentile(seconds, 0.5)});
      line += fmt::format(" {:.1f}", 1e3 * times.back().seconds);
    }
    progress_(line + " ms");
  }
  return times;
}

Result<std::vector<StepTime>> RecordRun::Measure(const RecordPlan& plan) {
  LAMINA_ASSIGN_OR_RETURN(std::vector<StepTime> times, MeasureDecoding(plan));
  LAMINA_ASSIGN_OR_RETURN(const std::vector<StepTime> prompts, MeasurePrompts(plan));
  times.insert(times.end(), prompts.begin(), prompts.end());
  return times;
}

Result<std::vector<LoadCheck>> RecordRun::Check(const RecordPlan& plan, const StepProfile& profile,
                                                int num_loads, uint64_t seed) {
  LAMINA_ASSIGN_OR_RETURN(RecordedEngine recorded, RecordedEngine::Connect(config_, model_, true));
  std::mt19937_64 random(seed);
  const auto between = [&random](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  const auto [fewest, most] = std::ranges::minmax(plan.rows);
  const auto [shortest, longest] = std::ranges::minmax(plan.contexts);
  std::vector<LoadCheck> checks;
  for (int i = 0; i < num_loads; ++i) {
    std::vector<int64_t> contexts(static_cast<size_t>(between(fewest, most)));
    for (int64_t& context : contexts) context = between(shortest, longest);
    const int interval =
        plan.intervals[static_cast<size_t>(between(0, std::ssize(plan.intervals) - 1))];
    LAMINA_ASSIGN_OR_RETURN(const std::vector<StepRecorder::Series> series,
                            DecodeSteps(recorded, model_, contexts, {interval}, plan.num_steps));
    LoadCheck check;
    check.measured = {false, interval, static_cast<double>(contexts.size()), series.front().context,
                      Percentile(series.front().seconds, 0.5)};
    check.expected_s = profile.DecodeSeconds(interval, check.measured.rows, check.measured.context);
    checks.push_back(check);
    progress_(
        fmt::format("load {} of {}: {} sequences, context {:.0f}, interval {}: {:.1f} ms, "
                    "expected {:.1f} ms",
                    i + 1, num_loads, contexts.size(), check.measured.context, interval,
                    1e3 * check.measured.seconds, 1e3 * check.expected_s));
  }
  return checks;
}

}  // namespace lamina
