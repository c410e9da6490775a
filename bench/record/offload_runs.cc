#include "bench/record/offload_runs.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/mutex.h"
#include "bench/record/recorded_engine.h"
#include "bench/synthetic_prompt.h"
#include "plan/statistics.h"

namespace lamina {
namespace {

constexpr auto kLongestRun = std::chrono::minutes(20);

// Hears of steps and of requests that end. Thread: the engine's, and one that waits.
class Figures : public EngineObserver {
 public:
  Figures(std::optional<int> interval, const BytesOutside& bytes_outside)
      : interval_(interval), bytes_outside_(bytes_outside) {}

  void OnFirstToken(double) override {
    MutexLock lock(mutex_);
    first_ = Clock::now();  // that of the last request counts
  }
  void OnNextToken(double) override {}
  void OnFinished(const Finished& finished) override {
    MutexLock lock(mutex_);
    if (finished.reason != FinishReason::kLength) failed_ = true;
    tpot_s_.push_back(finished.decode / static_cast<double>(finished.output_tokens - 1));
    last_ = Clock::now();
    changed_.NotifyAll();
  }
  void OnStep(const Step& step) override {
    if (step.num_prefill_tokens > 0) return;
    MutexLock lock(mutex_);
    outside_ +=
        static_cast<double>(bytes_outside_(interval_.value_or(step.offload_interval.value_or(0))));
    ++num_steps_;
    num_tokens_ += step.num_decode;
  }

  // False: they were not as many by then, or one failed.
  bool Await(int num_requests, TimePoint latest) {
    MutexLock lock(mutex_);
    while (std::ssize(tpot_s_) < num_requests && !failed_) {
      if (!changed_.WaitUntil(lock, latest)) return false;
    }
    return !failed_;
  }

  OffloadFigures Take() {
    MutexLock lock(mutex_);
    OffloadFigures figures;
    figures.tpot_s = tpot_s_;
    std::ranges::sort(figures.tpot_s);
    figures.bytes_outside = num_steps_ == 0 ? 0 : outside_ / static_cast<double>(num_steps_);
    figures.tokens_per_s =
        static_cast<double>(num_tokens_) / std::chrono::duration<double>(last_ - first_).count();
    return figures;
  }

 private:
  const std::optional<int> interval_;
  const BytesOutside& bytes_outside_;
  Mutex mutex_;
  CondVar changed_;
  std::vector<double> tpot_s_ GUARDED_BY(mutex_);
  bool failed_ GUARDED_BY(mutex_) = false;
  TimePoint first_ GUARDED_BY(mutex_), last_ GUARDED_BY(mutex_);
  double outside_ GUARDED_BY(mutex_) = 0;
  int64_t num_steps_ GUARDED_BY(mutex_) = 0, num_tokens_ GUARDED_BY(mutex_) = 0;
};

}  // namespace

double OffloadFigures::TpotPercentile(double share) const {
  return PercentileOfSorted(tpot_s, share);
}

double OffloadFigures::ShareWithin(double limit) const {
  const auto within = std::ranges::upper_bound(tpot_s, limit) - tpot_s.begin();
  return static_cast<double>(within) / static_cast<double>(tpot_s.size());
}

Result<OffloadFigures> ServeOffloaded(const ClusterConfig& config, const ModelConfig& model,
                                      const OffloadLoad& load, std::optional<int> interval,
                                      Clock::duration tpot, const BytesOutside& bytes_outside) {
  Figures figures(interval, bytes_outside);
  {
    LAMINA_ASSIGN_OR_RETURN(const RecordedEngine recorded,
                            RecordedEngine::Connect(config, model, false, &figures));
    recorded.recorder->SetInterval(interval);
    for (int i = 0; i < load.num_requests; ++i) {
      GenerateRequest request =
          DummyRequest(load.input_tokens, load.output_tokens, static_cast<uint64_t>(i), model);
      if (!interval) request.slo.tpot = tpot;
      LAMINA_RETURN_IF_ERROR(
          recorded.engine->Submit(std::move(request), [](const TokenEvent&) {}).status());
    }
    const bool ended = figures.Await(load.num_requests, Clock::now() + kLongestRun);
    LAMINA_RETURN_IF_ERROR(recorded.engine->given_up());
    if (!ended) return TimedOut("requests failed, or were not answered in 20 minutes");
  }
  return figures.Take();
}

}  // namespace lamina
