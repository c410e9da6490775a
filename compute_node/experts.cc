#include "compute_node/experts.h"

#include <algorithm>
#include <cmath>

#include "kernels/elementwise.h"
#include "kernels/linear.h"

namespace lamina {

namespace {

// Of the row's experts. The largest logit is subtracted so that exp does not overflow.
void WeightBySoftmax(std::span<const float> logits, bool over_all, std::span<RoutedExpert> out) {
  const float largest = logits[static_cast<size_t>(out[0].expert)];
  float sum = 0;
  for (RoutedExpert& routed : out) {
    routed.weight = std::exp(logits[static_cast<size_t>(routed.expert)] - largest);
    sum += routed.weight;
  }
  if (over_all) {
    sum = 0;
    for (const float logit : logits) sum += std::exp(logit - largest);
  }
  for (RoutedExpert& routed : out) routed.weight /= sum;
}

}  // namespace

void RouteRow(std::span<const float> logits, ExpertRouting routing, std::span<RoutedExpert> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    const std::span<const RoutedExpert> taken = out.first(i);
    int best = -1;
    for (int expert = 0; expert < std::ssize(logits); ++expert) {
      if (std::ranges::find(taken, expert, &RoutedExpert::expert) != taken.end()) continue;
      if (best < 0 || logits[static_cast<size_t>(expert)] > logits[static_cast<size_t>(best)])
        best = expert;
    }
    out[i].expert = best;
  }
  if (routing == ExpertRouting::kSigmoidInputs) {
    for (RoutedExpert& routed : out)
      routed.weight = 1 / (1 + std::exp(-logits[static_cast<size_t>(routed.expert)]));
  } else {
    WeightBySoftmax(logits, routing == ExpertRouting::kSoftmaxOverAll, out);
  }
  std::ranges::sort(out, {}, &RoutedExpert::expert);
}

ExpertWeights WeightsOf(const Op& op, int expert) {
  const auto at = static_cast<size_t>(expert);
  if (!op.expert_bias) {
    const WeightRef* const first = &op.weights[at * 3];
    return {.gate = first, .up = first + 1, .down = first + 2};
  }
  const WeightRef* const first = &op.weights[at * 6];
  return {first, first + 1, first + 2, first + 3, first + 4, first + 5};
}

void ExpertLayer::Run(const Op& op, const Weights& weights, const ExpertRows& rows,
                      WorkerTeam& team) {
  const int64_t width = op.weights[0].shape[1];
  rows_of_.resize(static_cast<size_t>(op.num_experts));
  for (std::vector<RoutedRow>& routed : rows_of_) routed.clear();
  routed_.resize(static_cast<size_t>(op.experts_per_token));
  for (int64_t row = 0; row < rows.num_rows; ++row) {
    RouteRow({rows.router + row * op.num_experts, static_cast<size_t>(op.num_experts)}, op.routing,
             routed_);
    for (const RoutedExpert& routed : routed_)
      rows_of_[static_cast<size_t>(routed.expert)].push_back({row, routed.weight});
  }
  std::fill_n(rows.y, rows.num_rows * width, 0.0f);
  for (int expert = 0; expert < op.num_experts; ++expert) {
    if (!rows_of_[static_cast<size_t>(expert)].empty()) RunExpert(op, expert, weights, rows, team);
  }
}

void ExpertLayer::RunExpert(const Op& op, int expert, const Weights& weights, const ExpertRows& all,
                            WorkerTeam& team) {
  const std::vector<RoutedRow>& routed = rows_of_[static_cast<size_t>(expert)];
  // y = w2(silu(w1 x) * w3 x).
  const ExpertWeights names = WeightsOf(op, expert);
  const PackedWeights &w1 = weights.Matrix(*names.gate), &w3 = weights.Matrix(*names.up),
                      &w2 = weights.Matrix(*names.down);
  const auto bias = [&](const WeightRef* name) {
    return name != nullptr ? weights.Vector(*name).data() : nullptr;
  };
  const int64_t rows = std::ssize(routed), width = w1.in_features(), inner = w1.out_features();
  x_.resize(static_cast<size_t>(rows * width));
  out_.resize(x_.size());
  gate_.resize(static_cast<size_t>(rows * inner));
  up_.resize(gate_.size());
  const bool weights_inputs = op.routing == ExpertRouting::kSigmoidInputs;
  for (int64_t i = 0; i < rows; ++i) {
    const auto& [row, weight] = routed[static_cast<size_t>(i)];
    Scale(all.x + row * width, weights_inputs ? weight : 1.0f, width, x_.data() + i * width);
  }
  Linear(w1, x_.data(), rows, bias(names.gate_bias), gate_.data(), team);
  Linear(w3, x_.data(), rows, bias(names.up_bias), up_.data(), team);
  if (op.swiglu_limit > 0)
    SwigluOai(gate_.data(), up_.data(), op.swiglu_limit, rows * inner, gate_.data());
  else
    SiluMul(gate_.data(), up_.data(), rows * inner, gate_.data());
  Linear(w2, gate_.data(), rows, bias(names.down_bias), out_.data(), team);
  for (int64_t i = 0; i < rows; ++i) {
    const auto& [row, weight] = routed[static_cast<size_t>(i)];
    float* const out = out_.data() + i * width;
    if (!weights_inputs) Scale(out, weight, width, out);
    Add(all.y + row * width, out, width, all.y + row * width);
  }
}

}  // namespace lamina
