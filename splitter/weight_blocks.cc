#include "splitter/weight_blocks.h"

#include <set>

#include "splitter/offload_options.h"

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

std::vector<int64_t> BlockBytes(const SlicedModel& model, SliceRange range, DType dtype,
                                double portion) {
  const std::map<std::string, int> slices = SlicesOfMatrices(model, range);
  std::vector<std::vector<int64_t>> matrices(static_cast<size_t>(range.end - range.first));
  std::set<std::string> seen;
  for (int k = range.first; k < range.end; ++k) {
    for (const Op& op : model.slices[static_cast<size_t>(k)].program) {
      for (const WeightRef& weight : op.weights) {
        if (!slices.contains(weight.id()) || !seen.insert(weight.id()).second) continue;
        matrices[static_cast<size_t>(k - range.first)].push_back(
            static_cast<int64_t>(StoredBytes(weight, dtype)));
      }
    }
  }
  std::vector<int64_t> blocks;
  for (const std::vector<int64_t>& bytes : matrices) {
    const std::vector<bool> outside = OutsideByPortion(bytes, portion);
    blocks.push_back(0);
    for (size_t i = 0; i < bytes.size(); ++i) blocks.back() += outside[i] ? bytes[i] : 0;
  }
  return blocks;
}

}  // namespace lamina
