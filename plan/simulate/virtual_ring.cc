#include "plan/simulate/virtual_ring.h"

#include <utility>

#include "base/check.h"
#include "splitter/weight_blocks.h"

namespace lamina {

Result<std::unique_ptr<VirtualRing>> VirtualRing::Create(const ClusterModel& cluster,
                                                         const ComputeNodeModel& node,
                                                         std::shared_ptr<CopyLink> link) {
  const OffloadOptions& offload = node.offload;
  LAMINA_ASSIGN_OR_RETURN(const double rate, node.device->HostLinkBytesPerS(offload.gb_per_s));
  std::unique_ptr<VirtualRing> ring(new VirtualRing());
  ring->first_slice_ = node.slices.first;
  const std::vector<int64_t> bytes =
      BlockBytes(cluster.sliced, node.slices, cluster.model.dtype, offload.portion);
  ring->offload_ = offload;
  ring->block_bytes_ = bytes;
  LAMINA_ASSIGN_OR_RETURN(ring->first_interval_, FirstInterval(offload, bytes));
  LAMINA_ASSIGN_OR_RETURN(std::vector<bool> outside, FirstOutside(offload, bytes));
  LAMINA_ASSIGN_OR_RETURN(ring->ring_, MakeModelledRing(bytes, std::move(outside), offload.buffers,
                                                        rate, std::move(link), TimePoint{}));
  // As a compute node has a runner for each batch.
  for (int batch = 0; batch < cluster.config.num_batches; ++batch) ring->ring_.blocks->AddVisitor();
  return ring;
}

void VirtualRing::SetInterval(int interval) {
  if (MayChangeTo(interval, offload_, block_bytes_))
    ring_.blocks->SetOutside(OutsideByInterval(static_cast<int>(block_bytes_.size()), interval));
}

TimePoint VirtualRing::Enter(int slice, TimePoint now) {
  if (left_) GoOn(left_->at);
  ring_.copier->SetNow(now);
  const Result<const std::byte*> entered = ring_.blocks->Enter(slice - first_slice_);
  LAMINA_CHECK(entered.ok(), "slice {}: {}", slice, entered.status().message());
  return std::max(now, ring_.copier->finished_at());
}

void VirtualRing::GoOn(TimePoint now) {
  if (!left_ || left_->at > now) return;
  ring_.copier->SetNow(left_->at);
  ring_.blocks->Leave(std::exchange(left_, {})->slice - first_slice_);
}

}  // namespace lamina
