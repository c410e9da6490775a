#include "plan/offloaded_step.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/device_timeline.h"
#include "splitter/weight_blocks.h"
#include "tiers/modelled_ring.h"

namespace lamina {

Result<double> OffloadedStepSeconds(const DeviceSpec& device, const SlicedModel& model,
                                    const AttentionHeads& heads, const StepLoad& load,
                                    const OffloadOptions& offload, double bytes_per_s) {
  const int num_slices = static_cast<int>(model.slices.size());
  const double attention = AttentionSeconds(device, heads, load.attention);
  const auto time_of = [&](int k) {
    const bool is_last = k + 1 == num_slices;
    const double slice =
        SliceSeconds(device, model, k, heads.dtype, is_last ? load.sampled_rows : load.rows);
    return FromSeconds(slice + (is_last ? 0 : attention));
  };
  std::vector<int64_t> bytes = BlockBytes(model, {0, num_slices}, heads.dtype, offload.portion);
  std::vector<bool> outside(bytes.size());
  if (offload.any()) {
    LAMINA_ASSIGN_OR_RETURN(outside, FirstOutside(offload, bytes));
  }
  const auto now = std::make_shared<TimePoint>();
  LAMINA_ASSIGN_OR_RETURN(const std::unique_ptr<BlockRing> ring,
                          MakeModelledRing(std::move(bytes), std::move(outside), offload.buffers,
                                           bytes_per_s, std::make_shared<OwnLink>(), now));
  constexpr int kRounds = 4;  // the first ones find what was brought before
  TimePoint last_began{};
  for (int round = 0; round < kRounds; ++round) {
    last_began = *now;
    for (int k = 0; k < num_slices; ++k) {
      LAMINA_RETURN_IF_ERROR(ring->Enter(k).status());
      *now += time_of(k);
      ring->Leave(k);
    }
  }
  return std::chrono::duration<double>(*now - last_began).count();
}

Result<int> FewestPlacesWithoutWaits(int num_layers, Clock::duration compute,
                                     Clock::duration copy) {
  constexpr int64_t kBytes = 1'000'000;  // any
  const double rate = kBytes / std::chrono::duration<double>(copy).count();
  constexpr int kRounds = 40;
  for (int places = 2; places < num_layers; ++places) {
    const auto now = std::make_shared<TimePoint>();
    LAMINA_ASSIGN_OR_RETURN(const std::unique_ptr<FifoRing> ring,
                            MakeModelledFifoRing(num_layers, kBytes, places, rate, rate, now));
    int64_t before = 0;
    for (int round = 0; round < kRounds; ++round) {
      if (round == kRounds / 2) before = ring->stats().num_waits;
      for (int layer = 0; layer < num_layers; ++layer) {
        LAMINA_RETURN_IF_ERROR(ring->Enter(layer).status());
        *now += compute;
        ring->Leave(layer, /*changed=*/true);
      }
    }
    if (ring->stats().num_waits == before) return places;
  }
  return num_layers;
}

}  // namespace lamina
