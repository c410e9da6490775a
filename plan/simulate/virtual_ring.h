// The weights of a compute node that take turns in its memory (compute_node/modelled_device.h), in
// virtual time.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/layers_inside.h"
#include "plan/simulate/cluster_model.h"
#include "tiers/modelled_ring.h"

namespace lamina {

// Thread: owner.
class VirtualRing {
 public:
  // kInvalidArgument if the node's offload cannot be, with its reason. `link`: that the weights
  // come over; others may use it too. REQUIRES: it has one.
  static Result<std::unique_ptr<VirtualRing>> Create(const ClusterModel& cluster,
                                                     const ComputeNodeModel& node,
                                                     std::shared_ptr<CopyLink> link);
  // The same for layers of a KV cache of so many tokens (KvNode::capacity_tokens), which the node
  // keeps itself: a layer takes the place of a slice. Layers that always lie outside come over
  // links.in, and go back over a way that nobody else uses. REQUIRES: its kv_offload says so.
  static Result<std::unique_ptr<VirtualRing>> CreateForKv(const ClusterModel& cluster,
                                                          const ComputeNodeModel& node,
                                                          int64_t capacity_tokens,
                                                          const TwoLinks& links = {});

  // As WeightRing's (compute_node/weight_ring.h).
  int first_interval() const { return first_interval_; }
  void SetInterval(int interval);

  // So many layers are to have a place in memory from now on; how it is. REQUIRES: the ring is of
  // layers, and OffloadOptions::is_elastic().
  void SetInside(int num_layers);
  LayersInside inside() const;

  // A slice would run from `now` on; returns when its weights are there.
  TimePoint Enter(int slice, TimePoint now);
  // It will have run at `at`: what comes in its place begins to come then, when GoOn is called, or
  // the next slice is entered.
  void Leave(int slice, TimePoint at, bool changed = false) { left_ = {slice, at, changed}; }
  void GoOn(TimePoint now);

 private:
  VirtualRing() = default;

  struct Left {
    int slice = 0;
    TimePoint at;
    bool changed = false;
  };
  std::optional<Left> left_;
  OffloadOptions offload_;
  std::vector<int64_t> block_bytes_;
  int first_slice_ = 0;
  int first_interval_ = 0;
  const std::shared_ptr<TimePoint> now_ = std::make_shared<TimePoint>();
  std::unique_ptr<Ring> ring_;
  BlockRing* weights_ = nullptr;  // ring_, if it is of weights
  FifoRing* layers_ = nullptr;    // ring_, if its slots are not fixed
  Clock::duration waited_{};
};

}  // namespace lamina
