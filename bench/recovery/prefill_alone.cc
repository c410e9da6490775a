#include "bench/recovery/prefill_alone.h"

#include <memory>
#include <utility>

#include "base/mutex.h"
#include "bench/recovery/recovery_timeline.h"
#include "bench/synthetic_prompt.h"

namespace lamina {
namespace {

constexpr auto kLongestWait = std::chrono::minutes(2);

// What the engine told of the prompts. It may tell of some when nobody waits for them any more.
class Answers {
 public:
  void Take(const TokenEvent& event) {
    MutexLock lock(mutex_);
    num_tokens_ += event.token.has_value();
    num_ended_ += event.finish.has_value();
    last_ = Clock::now();
    changed_.NotifyAll();
  }

  // When the last one ended. nullopt: not all had a token by `latest`.
  std::optional<TimePoint> Await(int64_t count, TimePoint latest) {
    MutexLock lock(mutex_);
    while (num_ended_ < count) {
      if (!changed_.WaitUntil(lock, latest)) return std::nullopt;
    }
    return num_tokens_ == count ? std::optional(last_) : std::nullopt;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  int64_t num_tokens_ GUARDED_BY(mutex_) = 0, num_ended_ GUARDED_BY(mutex_) = 0;
  TimePoint last_ GUARDED_BY(mutex_);
};

}  // namespace

std::optional<double> TimePrefill(Engine& engine, const std::vector<int64_t>& lengths,
                                  uint64_t first_seed, int64_t vocab_size) {
  std::vector<GenerateRequest> requests(lengths.size());
  for (size_t i = 0; i < lengths.size(); ++i) {
    requests[i].prompt = SyntheticPrompt(lengths[i], first_seed + i, vocab_size);
    requests[i].max_new_tokens = 1;
    requests[i].ignore_eos = true;
    requests[i].sampling.seed = first_seed + i;
  }
  const auto answers = std::make_shared<Answers>();
  const TimePoint start = Clock::now();
  for (GenerateRequest& request : requests) {
    const auto take = [answers](const TokenEvent& event) { answers->Take(event); };
    if (!engine.Submit(std::move(request), take).ok()) return std::nullopt;
  }
  const std::optional<TimePoint> end = answers->Await(std::ssize(lengths), start + kLongestWait);
  return end ? std::optional(SecondsBetween(start, *end)) : std::nullopt;
}

}  // namespace lamina
