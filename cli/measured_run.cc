#include "cli/measured_run.h"

#include "base/device_timeline.h"
#include "base/mutex.h"
#include "manager/cluster_executor.h"
#include "manager/local_cluster.h"
#include "manager/prefilled_executor.h"
#include "manager/serving_engine.h"

namespace lamina {
namespace {

constexpr int64_t kWarmUpInput = 16, kWarmUpOutput = 3;
constexpr auto kLongestSilence = std::chrono::minutes(2);  // of all requests together

// What the engine's thread tells of the requests. Thread: any.
class Answers {
 public:
  explicit Answers(size_t num_requests) { result_.requests.resize(num_requests); }

  // Times count from here. Before the first Open.
  void Start() { start_ = Clock::now(); }
  TimePoint Now() const { return TimePoint(Clock::now() - start_); }

  // Returns how many are open, this one included.
  void Open(size_t request, int64_t input_tokens) {
    MutexLock lock(mutex_);
    RequestTimes& record = result_.requests[request];
    record.arrival = record.first_token = record.last_token = Now();
    record.input_tokens = static_cast<int32_t>(input_tokens);
    ++num_open_;
  }

  void Take(size_t request, const TokenEvent& event) {
    MutexLock lock(mutex_);
    RequestTimes& record = result_.requests[request];
    const TimePoint now = Now();
    last_news_ = now;
    if (event.token) {
      if (record.output_tokens++ == 0) {
        record.first_token = now;
      } else {
        result_.token_gaps.Add(now - record.last_token);
      }
      record.last_token = now;
    }
    if (!event.finish) return;
    const bool failed = *event.finish == FinishReason::kError;
    if (failed && error_.ok())
      error_ = event.error.ok() ? InternalError("a request failed") : event.error;
    End(request, failed ? RequestTimes::Outcome::kFailed : RequestTimes::Outcome::kDone);
  }

  void Refuse(size_t request) {
    MutexLock lock(mutex_);
    End(request, RequestTimes::Outcome::kRefused);
  }

  // Waits until at most so many are open. kTimeout: nothing came for too long; else why a request
  // failed.
  Status AwaitOpen(int64_t at_most) {
    MutexLock lock(mutex_);
    last_news_ = Now();
    while (num_open_ > at_most && error_.ok()) {
      ended_.WaitUntil(lock, Clock::now() + milliseconds(500));
      if (Now() > last_news_ + kLongestSilence) return TimedOut("no token came for two minutes");
    }
    return error_;
  }

  SimulationResult TakeResult() {
    MutexLock lock(mutex_);
    result_.end = last_news_;
    return std::move(result_);
  }

 private:
  void End(size_t request, RequestTimes::Outcome outcome) REQUIRES(mutex_) {
    result_.requests[request].outcome = outcome;
    --num_open_;
    ended_.NotifyAll();
  }

  TimePoint start_ = Clock::now();
  Mutex mutex_;
  CondVar ended_;
  SimulationResult result_ GUARDED_BY(mutex_);
  int64_t num_open_ GUARDED_BY(mutex_) = 0;
  Status error_ GUARDED_BY(mutex_);  // of the first request that failed
  TimePoint last_news_ GUARDED_BY(mutex_);
};

GenerateRequest RequestOf(const TraceRequest& spec, size_t number, int64_t vocab_size) {
  GenerateRequest request;
  request.prompt.assign(static_cast<size_t>(spec.input_tokens),
                        static_cast<TokenId>(static_cast<int64_t>(number) % vocab_size));
  request.max_new_tokens = spec.output_tokens;
  request.ignore_eos = true;
  request.sampling.temperature = 0;
  return request;
}

// The first step of a process takes longer: it touches memory that nobody has touched.
Status WarmUp(ServingEngine& engine, const ClusterModel& cluster, Answers& answers) {
  TraceRequest spec;
  spec.input_tokens = kWarmUpInput;
  spec.output_tokens = kWarmUpOutput;
  answers.Open(0, spec.input_tokens);
  const Result<RequestId> id =
      engine.Submit(RequestOf(spec, 0, cluster.model.vocab_size),
                    [&answers](const TokenEvent& event) { answers.Take(0, event); });
  if (!id.ok()) return id.status();
  return answers.AwaitOpen(0);
}

}  // namespace

Result<SimulationResult> Measure(const ClusterModel& cluster, const RequestTrace& workload,
                                 const SimulationOptions& options) {
  if (!options.changes.empty())
    return InvalidArgument("slow and failing nodes can only be simulated");
  if (workload.block_tokens > 0)
    return InvalidArgument("prompts that begin alike can only be simulated");
  ClusterConfig config = cluster.config;
  LAMINA_ASSIGN_OR_RETURN(const std::unique_ptr<LocalCluster> daemons,
                          LocalCluster::CreateFor(config));
  config.prefix_caching = false;
  LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<ClusterExecutor> nodes,
                          ClusterExecutor::Connect(config, cluster.model, {}));
  std::unique_ptr<StepExecutor> executor = std::move(nodes);
  if (options.prompts_appear) executor = std::make_unique<PrefilledExecutor>(std::move(executor));
  Answers warm_up(1), answers(workload.requests.size());  // the engine tells them until it is gone
  ServingEngine engine({EngineOptionsOf(cluster, workload, options)}, std::move(executor));
  LAMINA_RETURN_IF_ERROR(WarmUp(engine, cluster, warm_up));
  answers.Start();
  const auto most = options.max_concurrency > 0 ? int64_t{options.max_concurrency}
                                                : std::ssize(workload.requests);
  const TimePoint start = Clock::now();
  for (size_t i = 0; i < workload.requests.size(); ++i) {
    const TraceRequest& spec = workload.requests[i];
    LAMINA_RETURN_IF_ERROR(answers.AwaitOpen(most - 1));
    SleepUntil(start + FromSeconds(spec.arrival_seconds));
    answers.Open(i, spec.input_tokens);
    const auto sink = [&answers, i](const TokenEvent& event) { answers.Take(i, event); };
    if (!engine.Submit(RequestOf(spec, i, cluster.model.vocab_size), sink).ok()) answers.Refuse(i);
    LAMINA_RETURN_IF_ERROR(daemons->Check());
  }
  LAMINA_RETURN_IF_ERROR(answers.AwaitOpen(0));
  return answers.TakeResult();
}

}  // namespace lamina
