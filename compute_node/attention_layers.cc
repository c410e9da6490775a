#include "compute_node/attention_layers.h"

#include <algorithm>
#include <string>
#include <unordered_map>

#include "kernels/elementwise.h"

namespace lamina {

AttentionLayers AttentionLayers::From(int first) const {
  AttentionLayers rest;
  if (!windows.empty()) rest.windows.assign(windows.begin() + first, windows.end());
  if (!sinks.empty()) rest.sinks.assign(sinks.begin() + first, sinks.end());
  return rest;
}

Result<AttentionSinks> ReadSinks(const SlicedModel& model, const ModelConfig& config,
                                 const WeightOptions& options) {
  AttentionSinks sinks;
  if (std::ranges::all_of(model.attentions, [](const Op& op) { return op.weights.empty(); }))
    return sinks;
  Graph attentions;
  attentions.ops = model.attentions;
  LAMINA_ASSIGN_OR_RETURN(WeightReader reader, WeightReader::Open(attentions, config, options));
  std::unordered_map<std::string, std::vector<float>> by_id;
  for (bool more = true; more;) {
    LAMINA_ASSIGN_OR_RETURN(more, reader.ReadNext([&](const FoundWeight& found) {
      std::vector<float>& values = by_id[found.id];
      values.resize(static_cast<size_t>(found.weight.shape[0]));
      ConvertToFloat(found.tensor.data.data(), found.tensor.dtype, std::ssize(values),
                     values.data());
      return OkStatus();
    }));
  }
  for (const Op& op : model.attentions) sinks.push_back(by_id.at(op.weights[0].id()));
  return sinks;
}

}  // namespace lamina
