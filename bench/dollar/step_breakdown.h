// Where the time of a step went, and what a prefix cache spared, from a server's /metrics before
// and after a run. In a step every sequence of the batch gets a token, so that a step's time is the
// latency per token too.
#pragma once

#include <optional>
#include <string>

namespace lamina {

// Milliseconds of the mean step. Each part is what the step waited for, so that they add up to
// `step` and `manager`.
struct StepBreakdown {
  // On the compute nodes, from a step's order to its result.
  double step = 0;
  double slices = 0;  // running slices
  // Gathering and posting q, k and v, and copying outputs; where prompts are computed, their
  // attention too.
  double messages = 0;
  double sampling = 0;  // from logits to tokens
  // On the slowest memory node; without memory nodes on the compute node.
  double attention = 0;
  // q, k, v and outputs on their way, as far as nothing else happened meanwhile.
  double network = 0;
  // The rest: queues, and batches that share the nodes.
  double waiting = 0;
  // Between two steps: scheduling, orders, results, HTTP. None if it is not known how many steps
  // overlap.
  std::optional<double> manager;
};

// What a breakdown needs to know of the run.
struct RunTimes {
  double seconds = 0;            // the run's duration
  int num_batches = 0;           // steps in flight at a time; 0: not known
  int tensor_parallel_size = 1;  // compute nodes that run a slice together
};

// None if the texts are not those of a lamina server, or if no step was made between them.
std::optional<StepBreakdown> BreakdownBetween(const std::string& metrics_before,
                                              const std::string& metrics_after,
                                              const RunTimes& run);

// The share of the prompts' tokens that the server had in its prefix cache, from the metrics that
// lamina and vLLM have in common. None if it has no such metrics, or has computed no prompt between
// the texts.
std::optional<double> CachedShareBetween(const std::string& metrics_before,
                                         const std::string& metrics_after);

}  // namespace lamina
