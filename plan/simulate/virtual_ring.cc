#include "plan/simulate/virtual_ring.h"

#include <utility>

#include "base/check.h"
#include "splitter/weight_blocks.h"

namespace lamina {

Result<std::unique_ptr<VirtualRing>> VirtualRing::Create(const ClusterModel& cluster,
                                                         const ComputeNodeModel& node) {
  const NodeOffload& offload = node.offload;
  LAMINA_ASSIGN_OR_RETURN(const double rate, node.device->HostLinkBytesPerS(offload.gb_per_s));
  std::unique_ptr<VirtualRing> ring(new VirtualRing());
  ring->first_slice_ = node.slices.first;
  LAMINA_ASSIGN_OR_RETURN(
      ring->ring_, MakeModelledRing(MatrixBytes(cluster.sliced, node.slices, cluster.model.dtype),
                                    offload.interval, offload.buffers, rate, TimePoint{}));
  // As a compute node has a runner for each batch.
  for (int batch = 0; batch < cluster.config.num_batches; ++batch)
    LAMINA_RETURN_IF_ERROR(ring->ring_.blocks->AddVisitor());
  return ring;
}

TimePoint VirtualRing::Enter(int slice, TimePoint now) {
  ring_.copier->SetNow(now);
  const Result<const std::byte*> entered = ring_.blocks->Enter(slice - first_slice_);
  LAMINA_CHECK(entered.ok(), "slice {}: {}", slice, entered.status().message());
  return std::max(now, ring_.copier->finished_at());
}

void VirtualRing::Leave(int slice, TimePoint now) {
  ring_.copier->SetNow(now);
  ring_.blocks->Leave(slice - first_slice_);
}

}  // namespace lamina
