// A ring over a link that is only modelled: it takes time and holds no bytes. Modelled devices and
// the simulator have the same.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "tiers/block_ring.h"
#include "tiers/fifo_ring.h"
#include "tiers/modelled_copier.h"

namespace lamina {

// `now`: as ModelledCopier's virtual_now, likewise `back_bytes_per_s`. Errors are those of
// BlockRing::Create.
inline Result<std::unique_ptr<BlockRing>> MakeModelledRing(std::vector<int64_t> block_bytes,
                                                           std::vector<bool> outside,
                                                           int num_buffers, double bytes_per_s,
                                                           std::shared_ptr<CopyLink> link,
                                                           std::shared_ptr<TimePoint> now = nullptr,
                                                           double back_bytes_per_s = 0) {
  auto copier = std::make_unique<ModelledCopier>(block_bytes, bytes_per_s, std::move(link),
                                                 back_bytes_per_s, std::move(now));
  BlockRingOptions options;
  options.outside = std::move(outside);
  options.block_bytes = std::move(block_bytes);
  options.num_buffers = num_buffers;
  options.holds_bytes = false;
  return BlockRing::Create(std::move(options), std::move(copier));
}

// What blocks come over, and what they go back over. Others may use them too.
struct TwoLinks {
  std::shared_ptr<CopyLink> in = std::make_shared<OwnLink>(), out = std::make_shared<OwnLink>();
};

// The same with blocks that all take turns, and come and go at these rates at the same time.
// `by_slots`: FifoRingOptions::run_bytes, of blocks of one run. Errors are those of
// FifoRing::Create.
inline Result<std::unique_ptr<FifoRing>> MakeModelledFifoRing(
    int num_blocks, int64_t block_bytes, int num_slots, double bytes_per_s, double back_bytes_per_s,
    std::shared_ptr<TimePoint> now = nullptr, std::vector<int64_t> by_slots = {},
    const TwoLinks& links = {}) {
  const std::vector<int64_t> bytes(static_cast<size_t>(num_blocks), block_bytes);
  const auto copier = [&](double rate, const std::shared_ptr<CopyLink>& link) {
    return std::make_unique<ModelledCopier>(bytes, rate, link, 0, now);
  };
  FifoRingOptions options;
  options.num_blocks = num_blocks;
  options.block = {block_bytes};
  options.num_slots = num_slots;
  options.run_bytes = std::move(by_slots);
  options.holds_bytes = false;
  return FifoRing::Create(options, copier(bytes_per_s, links.in),
                          copier(back_bytes_per_s, links.out));
}

}  // namespace lamina
