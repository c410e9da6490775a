// Slices that compute nothing and whose values are a buffer each, for tests of what moves values.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "compute_node/compute_device.h"

namespace lamina {

class PlainSlices final : public SliceRunner {
 public:
  PlainSlices(const SlicedModel& model, size_t rows) {
    for (const Value& value : model.graph.values)
      values_.emplace_back(rows * static_cast<size_t>(std::max<int64_t>(value.width, 1)));
  }
  void Begin(std::span<const TokenId>, std::span<const int32_t>) override {}
  const Op* RunToQueries(int) override { return nullptr; }
  const Op* Run(int) override { return nullptr; }
  void KeepRows(int, std::span<const int>) override {}
  float* value(ValueId id) override { return values_[static_cast<size_t>(id)].data(); }
  void Score(std::span<const ScoreWork>, std::span<TokenScore>) override {}
  void Sample(std::span<const SampleWork>, std::span<SampledToken>) override {}

 private:
  std::vector<std::vector<float>> values_;
};

}  // namespace lamina
