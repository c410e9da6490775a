// The layers of a KV cache that take turns in as many places as the manager says.
#pragma once

#include <memory>
#include <utility>

#include "base/clock.h"
#include "base/device_timeline.h"
#include "kernels/elastic_layers.h"
#include "tiers/fifo_ring.h"

namespace lamina {

// Thread: one owner.
class ElasticRing final : public Ring, public ElasticLayers {
 public:
  // REQUIRES: the ring was made with options.run_bytes.
  ElasticRing(const ElasticKv& kv, std::unique_ptr<FifoRing> ring)
      : kv_(kv), ring_(std::move(ring)) {}

  Result<std::byte*> Enter(int layer) override {
    const TimePoint begun = Clock::now();
    Result<std::byte*> entered = ring_->Enter(layer);
    waited_ += Clock::now() - begun;
    return entered;
  }
  void Leave(int layer, bool changed) override { ring_->Leave(layer, changed); }
  const RingStats& stats() const override { return ring_->stats(); }

  const ElasticKv& kv() const override { return kv_; }
  LayersInside inside() const override {
    return {ring_->slots_in_effect(), waited_, FromSeconds(ring_->seconds_per_block())};
  }
  Status SetInside(int num_layers) override { return ring_->SetSlots(num_layers); }

 private:
  const ElasticKv kv_;
  const std::unique_ptr<FifoRing> ring_;
  Clock::duration waited_{};  // in Enter
};

}  // namespace lamina
