#include "compute_node/partial_outputs.h"

#include <algorithm>
#include <limits>

#include "kernels/elementwise.h"

namespace lamina {

void PartialOutputs::BeginLayer(std::span<const float> sinks) {
  if (sinks.empty()) {
    merged_.resize(rows_.size() * width());
    lse_.assign(rows_.size() * static_cast<size_t>(shape_.num_heads),
                -std::numeric_limits<float>::infinity());
    return;
  }
  merged_.assign(rows_.size() * width(), 0.0f);
  lse_.clear();
  for (size_t row = 0; row < rows_.size(); ++row)
    lse_.insert(lse_.end(), sinks.begin(), sinks.end());
}

void PartialOutputs::Merge(int row, const Part& part) {
  const auto head_dim = static_cast<size_t>(shape_.head_dim);
  part_.resize(static_cast<size_t>(part.num_heads) * head_dim);
  ConvertToFloat(part.out, part.dtype, std::ssize(part_), part_.data());
  const auto index = static_cast<size_t>(std::ranges::lower_bound(rows_, row) - rows_.begin());
  const size_t first =
      index * static_cast<size_t>(shape_.num_heads) + static_cast<size_t>(part.first_head);
  for (size_t head = 0; head < static_cast<size_t>(part.num_heads); ++head) {
    const std::span<float> merged = std::span(merged_).subspan((first + head) * head_dim, head_dim);
    MergePartial(merged, lse_[first + head], std::span(part_).subspan(head * head_dim, head_dim),
                 part.lse[head]);
  }
}

void PartialOutputs::CopyTo(ComputeDevice& device, float* out) const {
  const auto pitch = static_cast<int64_t>(width());
  device.Unpack(reinterpret_cast<const std::byte*>(merged_.data()), DType::kF32,
                {rows_, pitch, 0, pitch}, out);
}

}  // namespace lamina
