// A ring over a link that is only modelled: it takes time and holds no bytes. Modelled devices and
// the simulator have the same.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "tiers/block_ring.h"
#include "tiers/modelled_copier.h"

namespace lamina {

struct ModelledRing {
  std::unique_ptr<BlockRing> blocks;
  ModelledCopier* copier = nullptr;  // of `blocks`
};

// `now`: set if the ring is driven in virtual time, which begins then (ModelledCopier::SetNow).
// Errors are those of BlockRing::Create.
inline Result<ModelledRing> MakeModelledRing(std::vector<int64_t> block_bytes,
                                             std::vector<bool> outside, int num_buffers,
                                             double bytes_per_s, std::shared_ptr<CopyLink> link,
                                             std::optional<TimePoint> now = {}) {
  auto copier = std::make_unique<ModelledCopier>(block_bytes, bytes_per_s, std::move(link));
  if (now) copier->SetNow(*now);
  ModelledRing ring;
  ring.copier = copier.get();
  BlockRingOptions options;
  options.outside = std::move(outside);
  options.block_bytes = std::move(block_bytes);
  options.num_buffers = num_buffers;
  options.holds_bytes = false;
  LAMINA_ASSIGN_OR_RETURN(ring.blocks, BlockRing::Create(std::move(options), std::move(copier)));
  return ring;
}

}  // namespace lamina
