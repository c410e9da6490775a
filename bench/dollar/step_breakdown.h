// What a server's /metrics say before and after a run: where the time of a step went, and what a
// prefix cache spared. In a step every sequence of the batch gets a token, so it is the latency per
// token too.
#pragma once

#include <optional>
#include <string>

namespace lamina {

// Milliseconds of the mean step. Each part is what the step waited for, so that together they are
// `step` and `manager`.
struct StepBreakdown {
  double step = 0;    // on the compute nodes, from its order to its result
  double slices = 0;  // running slices
  // Gathering and posting q, k and v, copying outputs; where prompts are computed, their attention.
  double messages = 0;
  double sampling = 0;  // logits become tokens
  // On the slowest memory node; without memory nodes on the compute node.
  double attention = 0;
  // Q, k, v and outputs on their way, as far as nothing else happened meanwhile.
  double network = 0;
  double waiting = 0;  // the rest: queues, and batches that share the nodes
  // Between two steps: scheduling, orders, results, HTTP; none if it is not known how many steps
  // overlap.
  std::optional<double> manager;
};

struct RunTimes {
  double seconds = 0;            // the run's duration
  int num_batches = 0;           // steps in flight at a time; 0: not known
  int tensor_parallel_size = 1;  // compute nodes that run a slice together
};

// None: the texts are not of a lamina server, or no step was made between them.
std::optional<StepBreakdown> BreakdownBetween(const std::string& metrics_before,
                                              const std::string& metrics_after,
                                              const RunTimes& run);

// The share of the prompts' tokens that the server had in its prefix cache, by the metrics that
// lamina and vLLM have. None: it does not say, or computed no prompt between them.
std::optional<double> CachedShareBetween(const std::string& metrics_before,
                                         const std::string& metrics_after);

}  // namespace lamina
