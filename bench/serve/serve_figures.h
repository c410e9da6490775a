// What a run of `lamina bench serve` comes to, in the figures and names of `vllm bench serve`.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "bench/serve/load_run.h"
#include "plan/statistics.h"

namespace lamina {

// How many milliseconds a request may take. Goodput counts the requests that keep all limits that
// are given.
struct ServiceLevel {
  std::optional<double> ttft_ms, tpot_ms, e2el_ms;

  bool given() const { return ttft_ms || tpot_ms || e2el_ms; }
  bool IsKept(const RequestRecord& record) const;

  // From {"ttft:500", "tpot:50"}. kInvalidArgument says what was read and what is expected.
  static Result<ServiceLevel> Parse(const std::vector<std::string>& terms);
};

// Failed requests of one StreamEnd::error_kind.
struct ErrorKind {
  int64_t count = 0;
  std::string example;  // the first one's message
};

// Figures of one run.
struct ServeFigures {
  double duration = 0;  // seconds
  int64_t completed = 0, failed = 0;
  int64_t interrupted = 0;  // neither completed nor failed
  // Completed requests with fewer tokens than the workload has.
  int64_t shorter_than_wanted = 0;
  // Completed requests whose tokens the server has not counted.
  int64_t counted_by_events = 0;
  // Tokens of completed requests.
  int64_t total_input_tokens = 0, total_output_tokens = 0;
  double request_throughput = 0, output_throughput = 0, total_token_throughput = 0;  // per second
  // Requests per second that keep the service level; none if there is no level.
  std::optional<double> request_goodput;
  // Over completed requests; tpot over those with two tokens or more.
  TimeFigures ttft, tpot, itl, e2el;
  // Failed requests by StreamEnd::error_kind.
  std::map<std::string, ErrorKind> errors;
};

// `percents` are the percentiles of times that are wanted.
ServeFigures Evaluate(const LoadResult& result, const ServiceLevel& level,
                      const std::vector<double>& percents);

}  // namespace lamina
