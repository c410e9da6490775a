// What a serving system is asked over time: the one form in which traces of real services, datasets
// of prompts and made-up lengths reach the load generator, the planner and the simulator.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lamina {

// A year. Later arrivals are a mistake in a file or an option, and times in nanoseconds would
// overflow.
inline constexpr double kMaxArrivalSeconds = 366.0 * 86400;

// Traces of a week of a service have tens of millions of requests, which take 80 bytes each without
// prompts. More are an endless file or a mistake.
inline constexpr int64_t kMaxRequests = 30'000'000;

// More tokens in one request are a mistake. Sums over kMaxRequests of them cannot overflow.
inline constexpr int64_t kMaxRequestTokens = 1'000'000'000;

// One request: when it comes, and how long prompt and answer are.
struct TraceRequest {
  // Since the first request, at most kMaxArrivalSeconds. 0 for every request if the trace has no
  // times.
  double arrival_seconds = 0;
  int64_t input_tokens = 1;   // of the prompt, >= 1
  int64_t output_tokens = 1;  // of the answer, >= 1
  // An id for each block of the prompt, of which the last may be partial. Prompts whose first ids
  // are the same begin with the same tokens. Empty: not known.
  std::vector<int64_t> prefix_blocks;
  // The text, of datasets that have one; else "".
  std::string prompt;
};

// A value.
struct RequestTrace {
  std::string source;  // a path, or what was made up
  // Where the token counts come from: "the trace", "the tokenizer of DIR", "estimated: ...".
  std::string counted_by;
  bool has_arrivals = false;
  // Tokens of a prefix block; 0: no request has any.
  int64_t block_tokens = 0;
  // Requests of the source that are not here: without a prompt or an answer, or longer than was
  // asked for.
  int64_t num_left_out = 0;
  std::vector<TraceRequest> requests;  // arrivals never descend
};

}  // namespace lamina
