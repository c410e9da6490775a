// The SliceRunner of a GPU: runs the slices of a model operator by operator, all rows of a step
// together. Operators are recorded as CUDA graphs where that is possible (slice_graphs.h).
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

// Run returns when the GPU is done, so that the time it takes is that of the slice; if the engine
// runs ahead, it only queues the work. Thread: one owner.
class CudaSlices final : public SliceRunner {
 public:
  // Borrows model, weights, engine and team. `max_rows` is the largest number of rows of a step.
  // kOutOfSpace, with the bytes that are needed, if the values do not fit.
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

  // Copies logits to this host, some rows at a time.
  void Score(std::span<const ScoreWork> work, std::span<TokenScore> scores) override;

  // Samples all rows at once on the GPU; what the GPU does not support, on this host
  // (kernels/cuda/host/sampler.h).
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
  // Runs slice `k` until value `there` is computed (-1: to its end) and returns nullptr, or to the
  // next all-reduce and returns it.
  const Op* RunTo(int k, ValueId there);
  // Has the slice's weights in their places for what is launched next.
  void EnterWeights(int k);
  void Run(const OpRange& range);
  void Launch(std::span<const Op> ops, int64_t rows);
  // Launches one kernel for a residual addition and the norm of its sum. Returns false, and
  // launches nothing, if the two operators are something else.
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
  cuda::DeviceBuffer memory_;    // the plan's buffers, then spare_
  std::vector<float*> buffers_;  // one for each buffer of the plan
  float* spare_ = nullptr;       // [max_rows, width of the widest value that KeepRows moves]
  // [4, max_rows] int32: tokens, positions, rows of a table, rows to keep. The pointers below are
  // its rows.
  cuda::DeviceBuffer rows_;
  int32_t *device_tokens_ = nullptr, *device_positions_ = nullptr, *device_scratch_ = nullptr,
          *device_kept_ = nullptr;
  std::unique_ptr<cuda::Sampler> sampler_;
  cuda::DeviceBuffer frequencies_;  // inverse frequencies of rotary embeddings
  std::map<std::vector<float>, const float*> frequencies_at_;  // where they are in frequencies_
  size_t next_op_ = 0;                    // in a slice that has stopped at q or an all-reduce
  std::vector<const std::byte*> places_;  // [slices] CudaWeightRing::Enter's, of recorded graphs
  SliceGraphs graphs_;
  int recorded_with_ = 0;  // CudaEngine::version of the recorded graphs
  std::vector<TokenId> tokens_;
  std::vector<int32_t> positions_;
  std::vector<TokenId> table_rows_;  // scratch
  CudaExperts experts_;
};

}  // namespace lamina
