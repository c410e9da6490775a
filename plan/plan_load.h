// What a plan has to know of a workload: means over the requests.
#pragma once

#include <string>

#include "plan/workload/request_trace.h"

namespace lamina {

// Token counts are means over requests unless said otherwise.
struct PlanLoad {
  // What the workload is, for people.
  std::string source;
  // Tokens of a prompt.
  double input_tokens = 0;
  // Tokens of an answer.
  double output_tokens = 0;
  // Tokens that a decoding sequence attends to: the mean over all decode steps, so that long
  // answers count for more than short ones.
  double context = 0;
  // The standard deviation of `context`, over the same steps.
  double context_deviation = 0;
  // The number of pairs of a query and a token that it attends to, in a prompt.
  double prefill_pairs = 0;
  // Tokens of the longest request, prompt and answer.
  double longest = 0;
  // What is to be served. 0: as many as the cluster can.
  double requests_per_second = 0;
  // Requests that are left out because they have more tokens than the model's context.
  int64_t num_too_long = 0;
  // Requests that the reader of the trace has left out.
  int64_t num_left_out = 0;
  std::string counted_by;  // where the token counts come from
};

// A request of I prompt tokens and O answer tokens makes O rows, with contexts I + 1 to I + O.
// REQUIRES: trace.requests is not empty.
PlanLoad LoadOf(const RequestTrace& trace);

// Removes requests whose prompt and answer together have more than `tokens` tokens, as `lamina
// serve` refuses them. Returns how many it has removed.
int64_t LeaveOutLonger(int64_t tokens, RequestTrace& trace);

}  // namespace lamina
