// The weights of a compute node that take turns in its memory (compute_node/modelled_device.h), in
// virtual time.
#pragma once

#include <memory>

#include "base/clock.h"
#include "plan/simulate/cluster_model.h"
#include "tiers/modelled_ring.h"

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

 private:
  VirtualRing() = default;

  int first_slice_ = 0;
  ModelledRing ring_;
};

}  // namespace lamina
