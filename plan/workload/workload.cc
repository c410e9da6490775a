#include "plan/workload/workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "plan/workload/length_distribution.h"
#include "plan/workload/trace_reader.h"

namespace lamina {
namespace {

// Streams of one seed for different purposes, so that another rate leaves the lengths as they are.
constexpr uint64_t kLengthStream = 2, kShuffleStream = 3;

Result<RequestTrace> MakeRandom(const WorkloadOptions& options) {
  if (options.num_prompts < 1) return InvalidArgument("random lengths need --num-prompts");
  RequestTrace trace;
  trace.counted_by = "asked for";
  LAMINA_ASSIGN_OR_RETURN(LengthDistribution input, LengthDistribution::Parse(options.input_len));
  LAMINA_ASSIGN_OR_RETURN(LengthDistribution output, LengthDistribution::Parse(options.output_len));
  if (!options.lengths_of.empty()) {
    LAMINA_ASSIGN_OR_RETURN(const PublishedLengths published,
                            FindPublishedLengths(options.lengths_of));
    input = published.input;
    output = published.output;
  }
  trace.source = fmt::format("random, {} in, {} out", input.text(), output.text());
  RandomStream random(options.seed, kLengthStream);
  for (int64_t i = 0; i < options.num_prompts; ++i) {
    TraceRequest request;
    request.input_tokens = input.Draw(random);
    request.output_tokens = output.Draw(random);
    trace.requests.push_back(std::move(request));
  }
  return trace;
}

Result<RequestTrace> LoadDataset(const WorkloadOptions& options, const TokenCounter& counter) {
  if (options.dataset_name == "random" ||
      (options.dataset_name == "auto" && options.dataset_path.empty())) {
    if (!options.dataset_path.empty())
      return InvalidArgument("--dataset-name random reads no --dataset-path");
    return MakeRandom(options);
  }
  if (options.dataset_path.empty())
    return InvalidArgument("--dataset-name " + options.dataset_name + " needs a --dataset-path");
  if (!options.lengths_of.empty())
    return InvalidArgument("--lengths-of makes lengths up: it goes with no --dataset-path");
  const bool detects = options.dataset_name == "auto";
  const Result<TraceFormat> format =
      detects ? DetectTraceFormat(options.dataset_path) : ParseTraceFormat(options.dataset_name);
  if (detects && format.status().code() == StatusCode::kInvalidArgument)
    return InvalidArgument(format.status().message() + "; say what it is with --dataset-name");
  LAMINA_RETURN_IF_ERROR(format.status());
  return ReadTrace(options.dataset_path, *format, counter);
}

// Sets the lengths of answers first, as they count.
Status LeaveOutLong(const WorkloadOptions& options, RequestTrace& trace) {
  for (TraceRequest& request : trace.requests) {
    if (options.output_len_override > 0) request.output_tokens = options.output_len_override;
  }
  if (options.max_total_len > 0) {
    trace.num_left_out +=
        static_cast<int64_t>(std::erase_if(trace.requests, [&](const TraceRequest& request) {
          return request.input_tokens + request.output_tokens > options.max_total_len;
        }));
  }
  if (!trace.requests.empty()) return OkStatus();
  return InvalidArgument(
      fmt::format("{}: no request fits into {} tokens of prompt and answer, which is "
                  "--max-total-len or the context that the server names; "
                  "ask for shorter ones",
                  trace.source, options.max_total_len));
}

// Fisher and Yates.
void Shuffle(std::vector<TraceRequest>& requests, uint64_t seed) {
  RandomStream random(seed, kShuffleStream);
  for (size_t i = requests.size(); i > 1; --i) {
    std::swap(requests[i - 1],
              requests[static_cast<size_t>(random.Between(0, static_cast<int64_t>(i) - 1))]);
  }
}

void KeepFirst(const WorkloadOptions& options, RequestTrace& trace) {
  // A dataset without times has no order that means anything; a trace's first requests belong
  // together.
  if (!trace.has_arrivals && !options.dataset_path.empty()) Shuffle(trace.requests, options.seed);
  const auto wanted = static_cast<size_t>(options.num_prompts);
  if (wanted > 0 && wanted < trace.requests.size()) trace.requests.resize(wanted);
}

Result<ArrivalOptions> ArrivalsOf(const WorkloadOptions& options) {
  ArrivalOptions arrivals;
  arrivals.burstiness = options.burstiness;
  arrivals.ramp = options.ramp == "linear"        ? Ramp::kLinear
                  : options.ramp == "exponential" ? Ramp::kExponential
                                                  : Ramp::kNone;
  arrivals.ramp_start = options.ramp_start;
  arrivals.ramp_end = options.ramp_end;
  arrivals.seed = options.seed;
  const std::string& rate = options.request_rate;
  if (rate == "inf") return arrivals;
  if (arrivals.ramp != Ramp::kNone)
    return InvalidArgument("a ramp has its own rates: leave --request-rate out");
  const auto [end, error] =
      std::from_chars(rate.data(), rate.data() + rate.size(), arrivals.requests_per_second);
  if (error == std::errc() && end == rate.data() + rate.size()) return arrivals;
  return InvalidArgument("--request-rate '" + rate +
                         "' is not understood; expected requests per second, inf, or trace");
}

Status SetArrivals(const WorkloadOptions& options, RequestTrace& trace) {
  if (options.request_rate == "trace") {
    if (!trace.has_arrivals)
      return InvalidArgument(trace.source +
                             " has no times: give a --request-rate in requests per second");
    if (!(options.rate_scale > 0)) return InvalidArgument("--rate-scale must be positive");
    if (options.ramp != "none")
      return InvalidArgument("a ramp has its own rates: leave --request-rate out");
    // The trace's first requests may have been left out.
    const double first = trace.requests.front().arrival_seconds;
    for (TraceRequest& request : trace.requests)
      request.arrival_seconds = (request.arrival_seconds - first) / options.rate_scale;
    if (trace.requests.back().arrival_seconds <= kMaxArrivalSeconds) return OkStatus();
    return InvalidArgument(
        fmt::format("--rate-scale {} makes the trace longer than a year", options.rate_scale));
  }
  if (options.rate_scale != 1)
    return InvalidArgument("--rate-scale scales a trace's times: it needs --request-rate trace");
  LAMINA_ASSIGN_OR_RETURN(const ArrivalOptions arrivals, ArrivalsOf(options));
  const Result<std::vector<double>> times =
      MakeArrivals(static_cast<int64_t>(trace.requests.size()), arrivals);
  if (!times.ok())
    return times.status().WithContext("--request-rate, --burstiness or --ramp-up-*-rps");
  for (size_t i = 0; i < times->size(); ++i) trace.requests[i].arrival_seconds = (*times)[i];
  trace.has_arrivals = options.ramp != "none" || options.request_rate != "inf";
  return OkStatus();
}

}  // namespace

Result<RequestTrace> MakeWorkload(const WorkloadOptions& options, const TokenCounter& counter) {
  LAMINA_ASSIGN_OR_RETURN(RequestTrace trace, LoadDataset(options, counter));
  LAMINA_RETURN_IF_ERROR(LeaveOutLong(options, trace));
  KeepFirst(options, trace);
  LAMINA_RETURN_IF_ERROR(SetArrivals(options, trace));
  return trace;
}

}  // namespace lamina
