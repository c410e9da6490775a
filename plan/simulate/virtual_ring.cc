#include "plan/simulate/virtual_ring.h"

#include <utility>

#include "base/check.h"
#include "cost/network_cost.h"
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
  LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<BlockRing> blocks,
                          MakeModelledRing(bytes, std::move(outside), offload.buffers, rate,
                                           std::move(link), ring->now_));
  // As a compute node has a runner for each batch.
  for (int batch = 0; batch < cluster.config.num_batches; ++batch) blocks->AddVisitor();
  ring->weights_ = blocks.get();
  ring->ring_ = std::move(blocks);
  return ring;
}

Result<std::unique_ptr<VirtualRing>> VirtualRing::CreateForKv(const ClusterModel& cluster,
                                                              const ComputeNodeModel& node,
                                                              int64_t capacity_tokens,
                                                              const TwoLinks& links) {
  const OffloadOptions& offload = node.kv_offload;
  LAMINA_ASSIGN_OR_RETURN(const double rate, node.device->HostLinkBytesPerS(offload.gb_per_s));
  std::unique_ptr<VirtualRing> ring(new VirtualRing());
  const double back = node.device->HostLinkBackBytesPerS(offload.gb_per_s);
  const int num_layers = cluster.model.num_layers;
  const int64_t bytes = KvBytesPerToken(cluster.heads, 1) * capacity_tokens;
  if (offload.is_elastic()) {
    LAMINA_ASSIGN_OR_RETURN(const ElasticKv kv, ElasticKvOf(offload, num_layers, capacity_tokens));
    LAMINA_ASSIGN_OR_RETURN(
        std::unique_ptr<FifoRing> layers,
        MakeModelledFifoRing(num_layers, 0, num_layers, rate, back, ring->now_,
                             LayerBytes(kv, KvBytesPerToken(cluster.heads, 1)), links));
    ring->layers_ = layers.get();
    ring->ring_ = std::move(layers);
    return ring;
  }
  if (offload.expansion > 0) {
    LAMINA_ASSIGN_OR_RETURN(const int slots, SlotsForExpansion(num_layers, offload.expansion));
    LAMINA_ASSIGN_OR_RETURN(ring->ring_, MakeModelledFifoRing(num_layers, bytes, slots, rate, back,
                                                              ring->now_, {}, links));
    return ring;
  }
  std::vector<int64_t> all(static_cast<size_t>(num_layers), bytes);
  LAMINA_ASSIGN_OR_RETURN(std::vector<bool> outside, FirstOutside(offload, all));
  LAMINA_ASSIGN_OR_RETURN(
      ring->ring_, MakeModelledRing(std::move(all), std::move(outside), offload.buffers, rate,
                                    links.in, ring->now_, back));
  return ring;
}

void VirtualRing::SetInterval(int interval) {
  if (MayChangeTo(interval, offload_, block_bytes_))
    weights_->SetOutside(OutsideByInterval(static_cast<int>(block_bytes_.size()), interval));
}

void VirtualRing::SetInside(int num_layers) {
  const Status set = layers_->SetSlots(num_layers);
  LAMINA_CHECK(set.ok(), "{} layers inside: {}", num_layers, set.message());
}

LayersInside VirtualRing::inside() const {
  return {layers_->slots_in_effect(), waited_, FromSeconds(layers_->seconds_per_block())};
}

TimePoint VirtualRing::Enter(int slice, TimePoint now) {
  if (left_) GoOn(left_->at);
  *now_ = now;
  const Result<std::byte*> entered = ring_->Enter(slice - first_slice_);
  LAMINA_CHECK(entered.ok(), "slice {}: {}", slice, entered.status().message());
  waited_ += *now_ - now;
  return *now_;
}

void VirtualRing::GoOn(TimePoint now) {
  if (!left_ || left_->at > now) return;
  const Left left = *std::exchange(left_, {});
  *now_ = left.at;
  ring_->Leave(left.slice - first_slice_, left.changed);
}

}  // namespace lamina
