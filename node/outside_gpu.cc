#include "node/outside_gpu.h"

#include <cstdint>
#include <vector>

namespace lamina {

Status CheckOutsideGpu(const OffloadOptions& offload) {
  if (!offload.folder.empty() || offload.gb_per_s > 0) {
    return InvalidArgument(
        "what lies outside a GPU's memory lies in the host's: leave out the folder and its rate");
  }
  if (!offload.bus.empty()) return InvalidArgument("a bus is for modelled devices");
  if (offload.is_elastic())
    return Unimplemented("the layers that lie outside a GPU's memory cannot change yet");
  return OkStatus();
}

Result<LayersOutside> LayersOutsideOf(const OffloadOptions& offload, int num_layers) {
  LayersOutside layers{.num_buffers = offload.buffers, .poison = offload.poison};
  if (!offload.any()) return LayersOutside();
  if (offload.expansion > 0) {
    layers.outside.assign(static_cast<size_t>(num_layers), true);
    LAMINA_ASSIGN_OR_RETURN(layers.num_buffers, SlotsForExpansion(num_layers, offload.expansion));
    return layers;
  }
  const std::vector<int64_t> alike(static_cast<size_t>(num_layers), 1);
  LAMINA_ASSIGN_OR_RETURN(layers.outside, FirstOutside(offload, alike));
  return layers;
}

}  // namespace lamina
