#include "plan/cluster_shape.h"

#include <fmt/format.h>

namespace lamina {

std::string ClusterShape::text() const {
  std::string text = fmt::format("{} x {}", num_compute(), compute);
  if (num_ranks > 1) text += " (tensor parallel)";
  if (!homogeneous()) text += fmt::format(" + {} x {}", num_memory, memory);
  return text;
}

const char* BottleneckName(Bottleneck limit) {
  switch (limit) {
    case Bottleneck::kCompute: return "compute";
    case Bottleneck::kWeightBandwidth: return "weight bandwidth";
    case Bottleneck::kKvBandwidth: return "KV bandwidth";
    case Bottleneck::kKvCapacity: return "KV capacity";
    case Bottleneck::kNetwork: return "network";
    case Bottleneck::kSlo: return "SLO";
    case Bottleneck::kRequests: return "requests";
  }
  return "";
}

}  // namespace lamina
