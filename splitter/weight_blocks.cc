#include "splitter/weight_blocks.h"

#include <set>

namespace lamina {

WeightRole RoleOf(const Op& op, const WeightRef& weight) {
  if (op.kind == OpKind::kEmbedding || op.kind == OpKind::kPositionEmbedding)
    return WeightRole::kTable;
  return weight.shape.size() == 2 ? WeightRole::kMatrix : WeightRole::kVector;
}

std::map<std::string, int> SlicesOfMatrices(const SlicedModel& model, SliceRange range) {
  std::map<std::string, int> slices;
  std::set<std::string> shared;
  for (int k = range.first; k < range.end; ++k) {
    for (const Op& op : model.slices[static_cast<size_t>(k)].program) {
      for (const WeightRef& weight : op.weights) {
        const WeightRole role = RoleOf(op, weight);
        if (role == WeightRole::kTable) shared.insert(weight.id());
        if (role != WeightRole::kMatrix) continue;
        const auto [known, is_new] = slices.emplace(weight.id(), k);
        if (!is_new && known->second != k) shared.insert(weight.id());
      }
    }
  }
  for (const std::string& id : shared) slices.erase(id);
  return slices;
}

std::vector<int64_t> MatrixBytes(const SlicedModel& model, SliceRange range, DType dtype) {
  const std::map<std::string, int> slices = SlicesOfMatrices(model, range);
  std::map<std::string, int64_t> bytes;
  for (int k = range.first; k < range.end; ++k) {
    for (const Op& op : model.slices[static_cast<size_t>(k)].program) {
      for (const WeightRef& weight : op.weights) {
        if (RoleOf(op, weight) == WeightRole::kMatrix) {
          bytes[weight.id()] =
              weight.shape[0] * weight.shape[1] * static_cast<int64_t>(ElementSize(dtype));
        }
      }
    }
  }
  std::vector<int64_t> of_slices(static_cast<size_t>(range.end - range.first));
  for (const auto& [id, slice] : slices)
    of_slices[static_cast<size_t>(slice - range.first)] += bytes[id];
  return of_slices;
}

}  // namespace lamina
