#include "bench/plan/cluster_shape.h"

#include <fmt/format.h>

namespace lamina {

std::string ClusterShape::text() const {
  std::string text = fmt::format("{} x {}", num_compute(), compute);
  if (num_ranks > 1) text += " (tensor parallel)";
  if (!homogeneous()) text += fmt::format(" + {} x {}", num_memory, memory);
  return text;
}

const char* LimitName(Limit limit) {
  switch (limit) {
    case Limit::kCompute: return "compute";
    case Limit::kWeightBandwidth: return "weight bandwidth";
    case Limit::kKvBandwidth: return "KV bandwidth";
    case Limit::kKvCapacity: return "KV capacity";
    case Limit::kNetwork: return "network";
    case Limit::kSlo: return "SLO";
  }
  return "";
}

}  // namespace lamina
