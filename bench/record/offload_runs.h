// Serves the same requests with more and less of the weights outside of memory.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/slo.h"
#include "base/status.h"
#include "manager/cluster_config.h"
#include "model/model_config.h"

namespace lamina {

// Requests that come at once.
struct OffloadLoad {
  int num_requests = 64;
  int64_t input_tokens = 4;
  int64_t output_tokens = 64;
};

// What came of them.
struct OffloadFigures {
  std::vector<double> tpot_s;  // of each request, ascending
  double tokens_per_s = 0;     // of all together, behind their first tokens
  // Of weights that lay outside, mean over the steps that only decode.
  double bytes_outside = 0;

  double TpotPercentile(double share) const;
  // The share of the requests that kept the objective.
  double ShareWithin(double tpot_s) const;
};

using BytesOutside = std::function<int64_t(int)>;

// Serves the load on nodes that run. `interval`: that of all steps; nullopt: it is chosen for each
// by `tpot`, the objective of every request. `bytes_outside`: of weights, by the interval. Errors
// are those of the nodes, or of the engine that refuses a request.
Result<OffloadFigures> ServeOffloaded(const ClusterConfig& config, const ModelConfig& model,
                                      const OffloadLoad& load, std::optional<int> interval,
                                      Clock::duration tpot, const BytesOutside& bytes_outside);

}  // namespace lamina
