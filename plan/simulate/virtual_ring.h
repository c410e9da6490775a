// The weights of a compute node that take turns in its memory (compute_node/modelled_device.h), in
// virtual time.
#pragma once

#include <memory>

#include "base/clock.h"
#include "plan/simulate/cluster_model.h"
#include "tiers/block_ring.h"
#include "tiers/modelled_copier.h"

namespace lamina {

// Thread: owner.
class VirtualRing {
 public:
  // kInvalidArgument if the node's offload cannot be, with its reason. REQUIRES: it has one.
  static Result<std::unique_ptr<VirtualRing>> Create(const ClusterModel& cluster,
                                                     const ComputeNodeModel& node);

  // A slice would run from `now` on; returns when its weights are there.
  TimePoint Enter(int slice, TimePoint now);
  // It has run until `now`.
  void Leave(int slice, TimePoint now);

  // What the slices' weights take in the device's memory, and what they have.
  int64_t bytes_in_device() const { return ring_->memory_bytes(); }
  int64_t bytes() const { return bytes_; }

 private:
  VirtualRing() = default;

  int first_slice_ = 0;
  int64_t bytes_ = 0;
  ModelledCopier* copier_ = nullptr;  // the ring's
  std::unique_ptr<BlockRing> ring_;
};

}  // namespace lamina
