#include "plan/plan_load.h"

#include <algorithm>
#include <cmath>

namespace lamina {

PlanLoad LoadOf(const RequestTrace& trace) {
  PlanLoad load;
  load.source = trace.source;
  load.num_left_out = trace.num_left_out;
  load.counted_by = trace.counted_by;
  double context_sum = 0, context_squares = 0;
  for (const TraceRequest& request : trace.requests) {
    const auto input = static_cast<double>(request.input_tokens),
               output = static_cast<double>(request.output_tokens);
    load.input_tokens += input;
    load.output_tokens += output;
    // The sums of c and of c^2 over the contexts c = I + 1, ..., I + O.
    context_sum += output * input + output * (output + 1) / 2;
    context_squares += output * input * input + input * output * (output + 1) +
                       output * (output + 1) * (2 * output + 1) / 6;
    load.prefill_pairs += input * (input + 1) / 2;
    load.longest = std::max(load.longest, input + output);
  }
  const auto count = static_cast<double>(trace.requests.size());
  // output_tokens is still the sum here, which is the number of decode steps.
  load.context = context_sum / load.output_tokens;
  load.context_deviation =
      std::sqrt(std::max(0.0, context_squares / load.output_tokens - load.context * load.context));
  load.input_tokens /= count;
  load.output_tokens /= count;
  load.prefill_pairs /= count;
  return load;
}

int64_t LeaveOutLonger(int64_t tokens, RequestTrace& trace) {
  return static_cast<int64_t>(std::erase_if(trace.requests, [tokens](const TraceRequest& request) {
    // Rearranged so that the sum of two large counts of a file cannot overflow.
    return request.output_tokens > tokens || request.input_tokens > tokens - request.output_tokens;
  }));
}

}  // namespace lamina
