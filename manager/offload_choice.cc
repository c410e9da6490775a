#include "manager/offload_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <limits>
#include <utility>

namespace lamina {
namespace {

constexpr Clock::duration kNone{};
// A batch that has had no step for so long has nothing to do.
constexpr auto kStepsApart = std::chrono::seconds(2);
// What is planned with: copies of several nodes wait for each other now and then.
constexpr double kShareOfBus = 0.95;
constexpr size_t kMostFlows = 4;

// What the objectives of a step's sequences bound.
struct Bounds {
  Clock::duration tpot = Clock::duration::max();     // a step in which all of them decode
  double sequences = 0, context = 0;                 // of that step; the context is the mean
  Clock::duration prefill = Clock::duration::max();  // what is left of the prompts
  double prompt_tokens = 0, prompt_context = 0;
};

Bounds BoundsOf(const StepPlan& plan, const Scheduler& scheduler, TimePoint now) {
  Bounds bounds;
  for (const Work& work : plan.work) {
    const Scheduler::Promise promise = scheduler.PromiseOf(work.sequence);
    const auto first = static_cast<double>(work.first_position);
    bounds.sequences += 1;
    bounds.context += first + static_cast<double>(work.tokens.size());
    if (promise.slo.tpot > kNone) bounds.tpot = std::min(bounds.tpot, promise.slo.tpot);
    if (!work.prefill) continue;
    bounds.prompt_tokens += static_cast<double>(promise.num_tokens) - first;
    bounds.prompt_context = std::max(bounds.prompt_context, first);
    if (promise.slo.ttft > kNone && promise.num_generated == 0) {
      const Clock::duration left = promise.start + promise.slo.ttft - now;
      bounds.prefill = std::min(bounds.prefill, std::max(left, kNone));
    }
  }
  bounds.context /= std::max(1.0, bounds.sequences);
  return bounds;
}

double InMilliseconds(Clock::duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

}  // namespace

int OffloadChoice::MostInMemory() const {
  int most = profile_->intervals().front();
  for (const int interval : profile_->intervals()) {
    if (IsAllowed(interval)) most = interval;
  }
  return most;
}

std::vector<OffloadChoice::Option> OffloadChoice::OptionsOf(const StepPlan& plan,
                                                            const Scheduler& scheduler,
                                                            TimePoint now) const {
  const Bounds bounds = BoundsOf(plan, scheduler, now);
  const bool bounds_decode = bounds.tpot < Clock::duration::max();
  const bool bounds_prefill = bounds.prefill < Clock::duration::max() && profile_->has_prefill();
  std::vector<Option> options;
  const auto add = [&](int interval, Clock::duration decode) {
    Option& option = options.emplace_back();
    option.interval = interval;
    if (!bus_) return;
    const auto bytes = bus_->bytes_outside.find(interval);
    if (bytes == bus_->bytes_outside.end()) return;
    const Clock::duration time = bounds_decode ? bounds.tpot : decode;
    option.bytes = bytes->second;
    option.bytes_per_s = option.bytes / std::chrono::duration<double>(time).count();
  };
  for (const int interval : profile_->intervals()) {
    if (!IsAllowed(interval)) continue;
    const Clock::duration decode =
        Expected(profile_->DecodeSeconds(interval, bounds.sequences, bounds.context));
    const bool is_most = interval == MostInMemory();
    if (!bounds_decode && !bounds_prefill && !is_most) continue;
    const bool keeps = (!bounds_decode || decode <= bounds.tpot) &&
                       (!bounds_prefill || Expected(profile_->PrefillSeconds(
                                               interval, bounds.prompt_tokens,
                                               bounds.prompt_context)) <= bounds.prefill);
    if (keeps || is_most) add(interval, decode);
  }
  return options;
}

std::optional<int> OffloadChoice::Choose(const StepPlan& plan, const Scheduler& scheduler,
                                         TimePoint now) {
  if (plan.work.empty()) {
    flows_.erase(plan.batch);
    return {};
  }
  std::vector<Option> options = OptionsOf(plan, scheduler, now);
  if (options.empty()) return MostInMemory();
  if (!bus_) return options.front().interval;
  std::erase_if(flows_, [now](const auto& flow) { return flow.second.until < now; });
  flows_[plan.batch] = {std::move(options), now + kStepsApart};
  return AmongOthers(plan.batch);
}

// All combinations: there are few intervals, and not many nodes on a bus.
int OffloadChoice::AmongOthers(int batch) const {
  const double all = kShareOfBus * bus_->bytes_per_s;
  const Flow& own = flows_.at(batch);
  if (flows_.size() > kMostFlows) {
    for (const Option& option : own.options) {
      if (option.bytes_per_s <= all / static_cast<double>(flows_.size())) return option.interval;
    }
    return own.options.back().interval;
  }
  int best = own.options.back().interval;
  // Of combinations with as much outside, the one that takes least from a single batch.
  std::pair<double, double> most{-1, -1};
  const std::function<void(std::map<int, Flow>::const_iterator, int, std::pair<double, double>,
                           double)>
      go = [&](auto flow, int chosen, std::pair<double, double> bytes, double rate) {
        if (rate > all) return;
        if (flow == flows_.end()) {
          if (bytes <= most) return;
          most = bytes;
          best = chosen;
          return;
        }
        for (const Option& option : flow->second.options) {
          go(std::next(flow), flow->first == batch ? option.interval : chosen,
             {bytes.first + option.bytes, std::min(bytes.second, option.bytes)},
             rate + option.bytes_per_s);
        }
      };
  go(flows_.begin(), best, {0, std::numeric_limits<double>::max()}, 0);
  return best;
}

Status OffloadChoice::Check(const Slo& slo) const {
  if (slo.tpot == kNone) return OkStatus();
  const int interval = MostInMemory();
  const Clock::duration alone = Expected(profile_->DecodeSeconds(interval, 1, 1));
  if (alone <= slo.tpot) return OkStatus();
  const std::string memory =
      interval == 0 ? "with all weights in memory"
                    : fmt::format(
                          "with the weights of every {}. slice outside, as the nodes have "
                          "no memory for more of them",
                          interval);
  return TryAgain(
      fmt::format("a TPOT of {:.6g} ms cannot be kept here: a step of one sequence takes "
                  "{:.3g} ms {}",
                  InMilliseconds(slo.tpot), InMilliseconds(alone), memory));
}

}  // namespace lamina
