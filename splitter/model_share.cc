#include "splitter/model_share.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "splitter/linear_work.h"

namespace lamina {

Result<std::vector<int>> CutIntoStages(const SlicedModel& model, int num_stages) {
  const auto num_slices = static_cast<int>(model.slices.size());
  if (num_stages < 1 || num_stages > num_slices) {
    return InvalidArgument("pipeline_parallel_size " + std::to_string(num_stages) +
                           ": a model of " + std::to_string(model.attentions.size()) +
                           " layers can have 1 to " + std::to_string(num_slices) + " stages");
  }
  // [slices + 1] Matrix elements of all slices before the k-th.
  std::vector<double> until = {0};
  for (const Slice& slice : model.slices)
    until.push_back(until.back() + WorkOf(slice, model.graph).weights);

  // Dynamic programming. best[k] is the cost of slices [0, k) cut into the stages so far: the
  // largest stage, and among equals the sum of squares, which evens out the others.
  using Cost = std::pair<double, double>;
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  const auto size = static_cast<size_t>(num_slices) + 1;
  std::vector<Cost> best(size, {kInfinite, kInfinite});
  best[0] = {0, 0};
  // [stage][k] The slice at which the last stage begins in the best cut of [0, k).
  std::vector<std::vector<int>> first_of_last;
  for (int stage = 0; stage < num_stages; ++stage) {
    std::vector<Cost> with_one_more(size, {kInfinite, kInfinite});
    std::vector<int>& first = first_of_last.emplace_back(size, 0);
    for (size_t k = 1; k < size; ++k) {
      for (size_t begin = 0; begin < k; ++begin) {
        const double weights = until[k] - until[begin];
        const Cost cost = {std::max(best[begin].first, weights),
                           best[begin].second + weights * weights};
        if (cost >= with_one_more[k]) continue;
        with_one_more[k] = cost;
        first[k] = static_cast<int>(begin);
      }
    }
    best = std::move(with_one_more);
  }
  // Read from behind: where the last stage begins, the one before it ends.
  std::vector<int> cuts = {num_slices};
  for (int stage = num_stages - 1; stage >= 0; --stage)
    cuts.insert(cuts.begin(),
                first_of_last[static_cast<size_t>(stage)][static_cast<size_t>(cuts.front())]);
  return cuts;
}

Graph PartOf(const SlicedModel& model, const ModelShare& share, const SliceRange& range) {
  Graph part;
  part.values = model.graph.values;
  part.logits = model.graph.logits;
  for (int k = range.first; k < range.end; ++k) {
    const std::vector<Op>& program = model.slices[static_cast<size_t>(k)].program;
    part.ops.insert(part.ops.end(), program.begin(), program.end());
  }
  // In the last slice the head follows the last all-reduce.
  const bool samples = share.rank == 0 || range.end < std::ssize(model.slices);
  while (!samples && !part.ops.empty() && part.ops.back().kind != OpKind::kAllReduce)
    part.ops.pop_back();
  return part;
}

std::string DescribeShare(const SlicedModel& model, const ModelShare& share,
                          const SliceRange& range) {
  const int num_layers = static_cast<int>(model.attentions.size());
  // Slice k has the rest of layer k - 1 and the projections of layer k; the last slice begins no
  // layer.
  const int first = std::max(range.first - 1, 0), last = std::min(range.end - 1, num_layers - 1);
  const std::string rank = share.num_ranks == 1 ? ""
                                                : "part " + std::to_string(share.rank) + " of " +
                                                      std::to_string(share.num_ranks) + " of ";
  return rank + "layers " + std::to_string(first) + ".." + std::to_string(last);
}

}  // namespace lamina
