// What a plan has to know of a workload: means over requests that decode.
#pragma once

#include <string>

#include "plan/workload/request_trace.h"

namespace lamina {

struct PlanLoad {
  std::string source;
  double input_tokens = 0;   // mean, of a prompt
  double output_tokens = 0;  // mean, of an answer
  // Tokens of a decoding sequence, mean over all decode steps: long answers count more than short
  // ones.
  double context = 0;
  double context_deviation = 0;    // standard deviation of the same
  double prefill_pairs = 0;        // mean over prompts, of a query and a token that it attends to
  double longest = 0;              // tokens of the longest request, prompt and answer
  double requests_per_second = 0;  // to be served; 0: as many as the cluster can
  int64_t num_too_long = 0;        // requests that are left out of all this
  int64_t num_left_out = 0;        // likewise, by who read them
  std::string counted_by;          // where the token counts come from
};

// A request of I prompt tokens and O answer tokens makes O rows, with contexts I + 1 to I + O.
// REQUIRES: there is a request.
PlanLoad LoadOf(const RequestTrace& trace);

// Drops requests whose prompt and answer have more tokens than that, as `lamina serve` refuses
// them, and returns how many those were.
int64_t LeaveOutLonger(int64_t tokens, RequestTrace& trace);

}  // namespace lamina
