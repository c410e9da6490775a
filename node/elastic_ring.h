// The layers of a KV cache that take turns in as many places as the manager says.
#pragma once

#include "base/clock.h"
#include "base/device_timeline.h"
#include "kernels/elastic_layers.h"
#include "tiers/fifo_ring.h"

namespace lamina {

// Borrows the ring, which was made with options.run_bytes. Thread: one owner.
class ElasticRing final : public ElasticLayers {
 public:
  ElasticRing(const ElasticKv& kv, FifoRing& ring) : kv_(kv), ring_(ring) {}

  // FifoRing::Enter, of which the time is taken.
  Result<std::byte*> Enter(int layer) {
    const TimePoint begun = Clock::now();
    Result<std::byte*> entered = ring_.Enter(layer);
    waited_ += Clock::now() - begun;
    return entered;
  }

  const ElasticKv& kv() const override { return kv_; }
  LayersInside inside() const override {
    return {ring_.slots_in_effect(), waited_, FromSeconds(ring_.seconds_per_block())};
  }
  Status SetInside(int num_layers) override { return ring_.SetSlots(num_layers); }

 private:
  const ElasticKv kv_;
  FifoRing& ring_;
  Clock::duration waited_{};
};

}  // namespace lamina
