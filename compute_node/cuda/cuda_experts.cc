#include "compute_node/cuda/cuda_experts.h"

#include <algorithm>
#include <cstring>

#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/rows.h"

namespace lamina {

void CudaExperts::Run(const Op& op, const CudaWeights& weights, const ExpertRows& rows,
                      CudaEngine& engine) {
  Route(op, rows.router, rows.num_rows, engine);
  const int64_t width = op.weights[0].shape[1];
  cuda::FillOnDevice(rows.y, 0, static_cast<size_t>(rows.num_rows * width) * sizeof(float),
                     engine.stream());
  for (int expert = 0; expert < op.num_experts; ++expert) {
    const Range& range = ranges_[static_cast<size_t>(expert)];
    if (range.begin < range.end) RunExpert(op, expert, weights, rows, engine);
  }
}

void CudaExperts::Route(const Op& op, const float* router, int64_t rows, CudaEngine& engine) {
  const auto num_experts = static_cast<size_t>(op.num_experts);
  const auto* const logits = reinterpret_cast<const float*>(
      engine.staged().Fetch(router, static_cast<size_t>(rows) * num_experts * sizeof(float)));
  engine.staged().Finish();
  std::vector<RoutedExpert> routed(static_cast<size_t>(rows * op.experts_per_token));
  for (size_t row = 0; row < static_cast<size_t>(rows); ++row) {
    const auto per_token = static_cast<size_t>(op.experts_per_token);
    RouteRow({logits + row * num_experts, num_experts}, op.routing,
             std::span(routed).subspan(row * per_token, per_token));
  }
  ranges_.assign(num_experts, {});
  rows_.clear();
  factors_.clear();
  gates_.clear();
  for (int expert = 0; expert < op.num_experts; ++expert) {
    Range& range = ranges_[static_cast<size_t>(expert)];
    range.begin = rows_.size();
    for (size_t i = 0; i < routed.size(); ++i) {
      if (routed[i].expert != expert) continue;
      const size_t row = i / static_cast<size_t>(op.experts_per_token);
      rows_.push_back(static_cast<int32_t>(row));
      gates_.push_back(logits[row * num_experts + static_cast<size_t>(expert)]);
      factors_.push_back(op.routing == ExpertRouting::kSigmoidInputs ? 1 : routed[i].weight);
    }
    range.end = rows_.size();
  }
  const size_t bytes = rows_.size() * sizeof(int32_t);
  cuda::GrowTo(3 * bytes, engine.staged(), routes_);
  engine.staged().Copy(rows_.data(), bytes, routes_.data());
  engine.staged().Copy(factors_.data(), bytes, routes_.as<std::byte>() + bytes);
  if (op.routing == ExpertRouting::kSigmoidInputs)
    engine.staged().Copy(gates_.data(), bytes, routes_.as<std::byte>() + 2 * bytes);
}

void CudaExperts::RunExpert(const Op& op, int expert, const CudaWeights& weights,
                            const ExpertRows& all, CudaEngine& engine) {
  const ExpertWeights names = WeightsOf(op, expert);
  const cuda::LinearWeights &w1 = weights.Matrix(*names.gate), &w3 = weights.Matrix(*names.up),
                            &w2 = weights.Matrix(*names.down);
  const auto bias = [&](const WeightRef* name) {
    return name != nullptr ? weights.Vector(*name) : nullptr;
  };
  const Range& range = ranges_[static_cast<size_t>(expert)];
  const auto rows = static_cast<int64_t>(range.end - range.begin);
  const int64_t width = w1.in_features, inner = w1.out_features;
  cuda::GrowTo(static_cast<size_t>(rows * (width + 2 * inner)) * sizeof(float), engine.staged(),
               values_);
  float* const gathered = values_.as<float>();  // later the expert's output
  float* const gate = gathered + rows * width;
  float* const up = gate + rows * inner;
  const int32_t* const index = routes_.as<int32_t>() + range.begin;
  const float* const factors = routes_.as<float>() + rows_.size() + range.begin;
  const cuda::RowSet set{rows, width, width, index};
  cuda::PackRows(all.x, set, DType::kF32, gathered, engine.stream());
  if (op.routing == ExpertRouting::kSigmoidInputs)
    cuda::SigmoidGate(factors + rows_.size(), gathered, rows, width, gathered, engine.stream());
  engine.linear().Run(w1, gathered, rows, bias(names.gate_bias), gate);
  engine.linear().Run(w3, gathered, rows, bias(names.up_bias), up);
  if (op.swiglu_limit > 0)
    cuda::SwigluOai(gate, up, op.swiglu_limit, rows * inner, gate, engine.stream());
  else
    cuda::SiluMul(gate, up, rows * inner, gate, engine.stream());
  engine.linear().Run(w2, gate, rows, bias(names.down_bias), gathered);
  cuda::AddScaledRows(gathered, factors, set, all.y, engine.stream());
}

}  // namespace lamina
