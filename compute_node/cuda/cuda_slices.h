// Runs the slices of a model on a GPU: one program at a time, all rows of a step together.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/worker_team.h"
#include "compute_node/buffer_plan.h"
#include "compute_node/compute_device.h"
#include "compute_node/cuda/cuda_engine.h"
#include "compute_node/cuda/cuda_experts.h"
#include "compute_node/cuda/cuda_weights.h"
#include "compute_node/cuda/slice_graphs.h"
#include "kernels/cuda/host/sampler.h"
#include "splitter/slices.h"

namespace lamina {

// Run returns when the GPU is done, so that its time is the slice's; at once if the engine runs
// ahead. Thread: one owner.
class CudaSlices final : public SliceRunner {
 public:
  // Borrows everything; `max_rows` is the largest step. kOutOfSpace: the values do not fit, saying
  // how much they need.
  static Result<std::unique_ptr<CudaSlices>> Create(const SlicedModel& model,
                                                    const CudaWeights& weights, int max_rows,
                                                    CudaEngine& engine, WorkerTeam& team);

  void Begin(std::span<const TokenId> tokens, std::span<const int32_t> positions) override;
  const Op* Run(int k) override { return RunTo(k, -1); }
  const Op* RunToQueries(int k) override {
    return RunTo(k, model_.slices[static_cast<size_t>(k)].q);
  }
  void KeepRows(int k, std::span<const int> rows) override;
  float* value(ValueId id) override { return buffers_[plan_.BufferOf(id)]; }

  // On the GPU, all rows at once; what it does not take on this host (kernels/cuda/host/sampler.h).
  void Sample(std::span<const SampleWork> work, std::span<SampledToken> tokens) override;

 private:
  CudaSlices(const SlicedModel& model, const CudaWeights& weights, int max_rows, CudaEngine& engine,
             WorkerTeam& team)
      : model_(model),
        weights_(weights),
        max_rows_(max_rows),
        engine_(engine),
        team_(team),
        plan_(PlanBuffers(model)) {}
  Status Allocate();
  void UploadFrequencies();
  const Op* RunTo(int k, ValueId there);
  void Run(const OpRange& range);
  void Launch(std::span<const Op> ops, int64_t rows);
  bool LaunchAddNorm(const Op& add, const Op& norm, int64_t rows);
  void Launch(const Op& op, int64_t rows);
  void LaunchNorm(const Op& op, int64_t rows, float* y);
  void LaunchEachElement(const Op& op, int64_t rows, float* y);
  void UploadRows();

  int64_t num_rows() const { return static_cast<int64_t>(tokens_.size()); }
  int64_t width(ValueId id) const { return model_.graph.values[static_cast<size_t>(id)].width; }
  const float* in(const Op& op, size_t i) { return value(op.inputs[i]); }
  const float* vector(const Op& op, size_t i) const {
    return i < op.weights.size() ? weights_.Vector(op.weights[i]) : nullptr;
  }

  const SlicedModel& model_;
  const CudaWeights& weights_;
  const int64_t max_rows_;
  CudaEngine& engine_;
  WorkerTeam& team_;
  const BufferPlan plan_;
  cuda::DeviceBuffer memory_;    // of the plan's buffers, then of spare_
  std::vector<float*> buffers_;  // as the plan's
  float* spare_ = nullptr;       // [max_rows, the widest value that KeepRows moves]
  // [4, max_rows] int32: tokens, positions, rows of a table, rows to keep.
  cuda::DeviceBuffer rows_;
  int32_t *device_tokens_ = nullptr, *device_positions_ = nullptr, *device_scratch_ = nullptr,
          *device_kept_ = nullptr;
  std::unique_ptr<cuda::Sampler> sampler_;
  cuda::DeviceBuffer frequencies_;
  std::map<std::vector<float>, const float*> frequencies_at_;
  size_t next_op_ = 0;  // of the slice that RunToQueries has begun
  SliceGraphs graphs_;
  int recorded_with_ = 0;  // the engine's version
  std::vector<TokenId> tokens_;
  std::vector<int32_t> positions_;
  std::vector<TokenId> table_rows_;  // scratch
  CudaExperts experts_;
};

}  // namespace lamina
