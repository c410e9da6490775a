#include "bench/dollar/point_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "bench/dollar/served_point.h"
#include "bench/serve/load_run.h"
#include "bench/serve/request_bodies.h"
#include "plan/workload/random_stream.h"
#include "plan/workload/workload.h"

namespace lamina {
namespace {

constexpr int kWarmUpTokens = 8;  // of each answer
const std::vector<double> kPercents = {90, 99};

// A point's endpoint, and how it is asked.
class PointClient {
 public:
  PointClient(const Sweep& sweep, const SweepPoint& point, const std::function<bool()>& interrupted)
      : sweep_(sweep),
        shape_(sweep.shapes[point.shape]),
        point_(point),
        interrupted_(interrupted) {}

  Status Connect(const std::string& url) {
    HttpClientOptions http;
    http.api_key = shape_.api_key;
    http.ca_file = shape_.ca_file;
    LAMINA_ASSIGN_OR_RETURN(endpoint_, FindEndpoint(url, http, shape_.served_model));
    LAMINA_ASSIGN_OR_RETURN(found_, FindTokenizer(shape_.tokenizer, endpoint_));
    LAMINA_ASSIGN_OR_RETURN(HttpClient client, HttpClient::Create(url, http));
    metrics_.emplace(std::move(client));
    return OkStatus();
  }

  const std::string& model() const { return endpoint_.model; }

  Result<LoadResult> Ask(int num_requests, int output_tokens, uint64_t seed) {
    WorkloadOptions workload;
    workload.dataset_name = "random";
    workload.input_len = std::to_string(point_.context);
    workload.output_len = std::to_string(output_tokens);
    workload.num_prompts = num_requests;
    workload.seed = seed;
    const TokenCounter counter =
        found_.tokenizer ? TokensOf(*found_.tokenizer, found_.dir) : EstimatedTokens();
    LAMINA_ASSIGN_OR_RETURN(const RequestTrace trace, MakeWorkload(workload, counter));
    BodyOptions options;
    // Lists of ids are exactly as long as they should be, but not all servers elsewhere take them.
    options.prompt_format = shape_.kind != ShapeKind::kEndpoint ? "ids" : "text";
    options.ignore_eos = true;
    options.seed = seed;
    const BodyMaker bodies(options, endpoint_.model, found_.tokenizer.get(), trace.block_tokens);
    LAMINA_RETURN_IF_ERROR(bodies.Check());
    std::vector<LoadRequest> requests;
    for (size_t i = 0; i < trace.requests.size(); ++i) {
      const TraceRequest& request = trace.requests[i];
      requests.push_back({0, bodies.Make(request, i), request.input_tokens, request.output_tokens});
    }
    LoadOptions load;
    load.api_key = shape_.api_key;
    load.ca_file = shape_.ca_file;
    load.max_concurrency = point_.batch;
    load.timeout = sweep_.load.timeout;
    load.ends_when = interrupted_;
    LAMINA_ASSIGN_OR_RETURN(LoadResult result, RunLoad(endpoint_.url, requests, load));
    if (result.ended_early) return PeerLost("interrupted");
    const auto failed = std::ranges::count_if(
        result.records, [](const RequestRecord& record) { return !record.ok(); });
    if (failed == 0) return result;
    const auto first = std::ranges::find_if(
        result.records, [](const RequestRecord& record) { return !record.ok(); });
    return PeerLost(fmt::format("{} of {} requests failed: {}: {}", failed, result.records.size(),
                                first->error_kind, first->error));
  }

  // The text of /metrics; "" if the endpoint has none.
  std::string Metrics() const {
    const Result<HttpResponse> response = metrics_->Get("/metrics");
    return response.ok() && response->ok() ? response->body : "";
  }

 private:
  const Sweep& sweep_;
  const SweepShape& shape_;
  const SweepPoint point_;
  const std::function<bool()> interrupted_;
  ServedEndpoint endpoint_;
  FoundTokenizer found_;
  std::optional<HttpClient> metrics_;
};

Result<PointRun> MeasureRun(const Sweep& sweep, const SweepPoint& point, PointClient& client,
                            const RunTimes& times, uint64_t seed) {
  const std::string before = client.Metrics();
  LAMINA_ASSIGN_OR_RETURN(
      LoadResult load, client.Ask(point.batch * sweep.load.waves, sweep.load.output_tokens, seed));
  PointRun run;
  run.figures = Evaluate(load, {}, kPercents);
  run.requests = std::move(load.records);
  run.tokens_per_s = sweep.load.prefill_left_out ? DecodeTokensPerSecond(run.requests)
                                                 : run.figures.output_throughput;
  RunTimes timed = times;
  timed.seconds = run.figures.duration;
  const std::string after = client.Metrics();
  run.breakdown = BreakdownBetween(before, after, timed);
  run.cached_share = CachedShareBetween(before, after);
  return run;
}

Status MeasureRuns(const Sweep& sweep, const std::function<bool()>& interrupted,
                   PointResult& result) {
  const SweepPoint& point = result.point;
  const SweepShape& shape = sweep.shapes[point.shape];
  std::unique_ptr<ServedPoint> served;
  RunTimes times;
  if (shape.kind != ShapeKind::kEndpoint) {
    result.model = shape.config.served_name;
    LAMINA_ASSIGN_OR_RETURN(served, ServedPoint::Start(sweep, point));
    result.commands = served->commands();
    result.data_path = served->data_path();
    times.num_batches = served->num_batches();
    times.tensor_parallel_size = served->tensor_parallel_size();
  }
  PointClient client(sweep, point, interrupted);
  // The death of a daemon says more than the requests that failed because of it.
  const auto check = [&](const Status& status) {
    if (status.ok() || served == nullptr || served->Check().ok()) return status;
    return served->Check();
  };
  LAMINA_RETURN_IF_ERROR(client.Connect(served != nullptr ? served->url() : shape.url));
  result.model = client.model();
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  uint64_t seed = PromptSeed(
      sweep, point, static_cast<uint64_t>(std::chrono::duration_cast<microseconds>(now).count()));
  LAMINA_RETURN_IF_ERROR(check(
      client.Ask(point.batch, std::min(kWarmUpTokens, sweep.load.output_tokens), seed).status()));
  for (int i = 0; i < sweep.repeats; ++i) {
    Result<PointRun> run = MeasureRun(sweep, point, client, times, ++seed);
    LAMINA_RETURN_IF_ERROR(check(run.status()));
    result.runs.push_back(*std::move(run));
  }
  return OkStatus();
}

}  // namespace

const PointRun& PointResult::median() const {
  std::vector<const PointRun*> sorted;
  for (const PointRun& run : runs) sorted.push_back(&run);
  std::ranges::sort(sorted, {}, [](const PointRun* run) { return run->tokens_per_s; });
  return *sorted[(sorted.size() - 1) / 2];
}

double PointResult::lowest() const {
  double lowest = std::numeric_limits<double>::infinity();
  for (const PointRun& run : runs) lowest = std::min(lowest, run.tokens_per_s);
  return lowest;
}

double PointResult::highest() const {
  double highest = 0;
  for (const PointRun& run : runs) highest = std::max(highest, run.tokens_per_s);
  return highest;
}

uint64_t PromptSeed(const Sweep& sweep, const SweepPoint& point, uint64_t started_us) {
  const auto fixed = static_cast<uint64_t>(sweep.load.seed) * 1000003;
  if (sweep.shapes[point.shape].kind != ShapeKind::kEndpoint) return fixed;
  uint64_t seed = RandomStream(fixed, started_us).Bits();
  for (const uint64_t part :
       {static_cast<uint64_t>(point.shape), static_cast<uint64_t>(point.context),
        static_cast<uint64_t>(point.batch)})
    seed = RandomStream(seed, part).Bits();
  return seed;
}

double DecodeTokensPerSecond(const std::vector<RequestRecord>& requests) {
  // The last request's first token, and the last token of all.
  double start = 0, end = 0;
  for (const RequestRecord& request : requests) {
    start = std::max(start, request.sent + request.ttft);
    end = std::max(end, request.sent + request.e2el);
  }
  double tokens = 0;
  for (const RequestRecord& request : requests) {
    double at = request.sent + request.ttft;
    // An event may bring several tokens. The server's count is shared evenly among the events after
    // the first.
    const double per_event = request.itl.empty() ? 0
                                                 : static_cast<double>(request.output_tokens - 1) /
                                                       static_cast<double>(request.itl.size());
    for (const double gap : request.itl) {
      at += gap;
      if (at > start + 1e-9) tokens += per_event;
    }
  }
  return end > start ? tokens / (end - start) : 0;
}

PointResult MeasurePoint(const Sweep& sweep, const SweepPoint& point,
                         const std::function<bool()>& interrupted) {
  PointResult result;
  result.point = point;
  const TimePoint start = Clock::now();
  if (const Status status = MeasureRuns(sweep, interrupted, result); !status.ok()) {
    result.error = status.message();
    // At a terminal the daemons get the signal too, and fail in their own ways, so that the message
    // does not tell.
    result.interrupted = interrupted();
  }
  result.seconds = SecondsSince(start);
  return result;
}

}  // namespace lamina
