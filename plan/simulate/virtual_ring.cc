#include "plan/simulate/virtual_ring.h"

#include <utility>

#include "base/check.h"
#include "splitter/weight_blocks.h"

namespace lamina {

Result<std::unique_ptr<VirtualRing>> VirtualRing::Create(const ClusterModel& cluster,
                                                         const ComputeNodeModel& node) {
  const NodeOffload& offload = node.offload;
  const double gb_per_s = offload.gb_per_s > 0 ? offload.gb_per_s : node.device->host_link_gb_per_s;
  if (gb_per_s == 0) {
    return InvalidArgument("the catalog says no host_link_gb_per_s of device " + node.device->name +
                           ", over which weights would come that lie outside: give gb_per_s");
  }
  std::unique_ptr<VirtualRing> ring(new VirtualRing());
  ring->first_slice_ = node.slices.first;
  BlockRingOptions options;
  for (const int64_t elements : MatrixElements(cluster.sliced, node.slices)) {
    options.block_bytes.push_back(elements *
                                  static_cast<int64_t>(ElementSize(cluster.model.dtype)));
    ring->bytes_ += options.block_bytes.back();
  }
  options.outside = OutsideByInterval(node.slices.end - node.slices.first, offload.interval);
  options.num_buffers = offload.buffers;
  options.holds_bytes = false;
  auto copier = std::make_unique<ModelledCopier>(options.block_bytes, 1e9 * gb_per_s);
  ring->copier_ = copier.get();
  copier->SetNow(TimePoint{});
  LAMINA_ASSIGN_OR_RETURN(ring->ring_, BlockRing::Create(std::move(options), std::move(copier)));
  // As a compute node has a runner for each batch.
  LAMINA_RETURN_IF_ERROR(ring->ring_->AllowInUse(cluster.config.num_batches));
  return ring;
}

TimePoint VirtualRing::Enter(int slice, TimePoint now) {
  copier_->SetNow(now);
  const Result<const std::byte*> entered = ring_->Enter(slice - first_slice_);
  LAMINA_CHECK(entered.ok(), "slice {}: {}", slice, entered.status().message());
  return std::max(now, copier_->finished_at());
}

void VirtualRing::Leave(int slice, TimePoint now) {
  copier_->SetNow(now);
  ring_->Leave(slice - first_slice_);
}

}  // namespace lamina
