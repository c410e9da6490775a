// What a serving system is asked over time: the one form in which traces of real services, datasets
// of prompts and made-up lengths reach the load generator, the planner and the simulator.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lamina {

// A year. Later arrivals are a mistake of a file or of an option, and times in nanoseconds would
// overflow.
inline constexpr double kMaxArrivalSeconds = 366.0 * 86400;

// Traces of a service's week have tens of millions of requests, which take 80 bytes each without
// prompts. More are an endless file or a mistake.
inline constexpr int64_t kMaxRequests = 30'000'000;

// More tokens in one request are a mistake, and sums of so many cannot overflow.
inline constexpr int64_t kMaxRequestTokens = 1'000'000'000;

struct TraceRequest {
  // Since the first request, at most kMaxArrivalSeconds; 0 everywhere if the trace has no times.
  double arrival_seconds = 0;
  int64_t input_tokens = 1;   // of the prompt, >= 1
  int64_t output_tokens = 1;  // of the answer, >= 1
  // An id for each block of the prompt, the last one may be partial: prompts whose ids begin alike
  // begin with the same tokens. Empty: not known.
  std::vector<int64_t> prefix_blocks;
  std::string prompt;  // of datasets that have text, else ""
};

struct RequestTrace {
  std::string source;  // a path, or what was made up
  // Where the token counts come from: "the trace", "the tokenizer of DIR", "estimated: ...".
  std::string counted_by;
  bool has_arrivals = false;
  int64_t block_tokens = 0;  // tokens of a prefix block; 0: no request has any
  // Requests of the source that are not here: without an answer, or longer than was asked for.
  int64_t num_left_out = 0;
  std::vector<TraceRequest> requests;  // arrivals never descend
};

struct TraceSummary {
  double mean_input_tokens = 0;
  double mean_output_tokens = 0;
  // Over the time between first and last arrival; 0 without arrivals.
  double requests_per_second = 0;
  // Standard deviation over mean of the gaps between arrivals: 1 for Poisson, more for bursts.
  double gap_cv = 0;
};

TraceSummary Summarize(const RequestTrace& trace);

}  // namespace lamina
