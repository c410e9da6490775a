#include "kernels/cuda/device.h"

#if LAMINA_HAS_CUDA
#include <algorithm>
#include <filesystem>
#include <memory>
#include <utility>

#include "base/worker_team.h"
#include "bench/kernels/cuda_samples.h"
#include "bench/kernels/kernel_cuda_slice.h"
#include "bench/kernels/kernel_samples.h"
#include "compute_node/compute_device.h"
#include "compute_node/cuda/cuda_slices.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/graph.h"

namespace lamina {
namespace {

// The operators of a slice, each at the least it can take.
class SliceParts {
 public:
  static Result<std::unique_ptr<SliceParts>> Create(const SlicedModel& model, const Slice& slice,
                                                    const CudaWeights& weights, int64_t rows,
                                                    cuda::Stream& stream) {
    std::unique_ptr<SliceParts> parts(new SliceParts(model, slice, weights, rows, stream));
    int64_t widest = 0, most_bytes = 0;
    DType dtype = DType::kF32;  // of the weights: made-up ones are all alike
    for (const Op& op : slice.program) {
      if (op.kind == OpKind::kExperts)
        return Unimplemented(
            "slices with experts are not measured: which one a row goes to is data");
      if (op.kind == OpKind::kLinear) dtype = weights.Matrix(op.weights[0]).dtype;
      widest = std::max(widest, parts->width(op.output));
      for (const ValueId input : op.inputs) widest = std::max(widest, parts->width(input));
      most_bytes = std::max(most_bytes, parts->BytesMoved(op));
    }
    const auto size = static_cast<size_t>(rows * widest);
    LAMINA_ASSIGN_OR_RETURN(parts->x_, Filled(size, dtype, stream));
    LAMINA_ASSIGN_OR_RETURN(parts->y_, cuda::DeviceBuffer::Create(size * sizeof(float)));
    LAMINA_ASSIGN_OR_RETURN(
        parts->from_, Filled(static_cast<size_t>(most_bytes) / sizeof(float), DType::kF32, stream));
    LAMINA_ASSIGN_OR_RETURN(parts->to_,
                            cuda::DeviceBuffer::Create(static_cast<size_t>(most_bytes)));
    LAMINA_ASSIGN_OR_RETURN(parts->gemm_, cuda::Gemm::Create(stream));
    parts->Launch();
    LAMINA_RETURN_IF_ERROR(stream.Synchronize());
    LAMINA_ASSIGN_OR_RETURN(parts->graph_, cuda::Graph::Record(stream, [&] { parts->Launch(); }));
    return parts;
  }

  void Run() { graph_->Replay(stream_); }

 private:
  SliceParts(const SlicedModel& model, const Slice& slice, const CudaWeights& weights, int64_t rows,
             cuda::Stream& stream)
      : model_(model), slice_(slice), weights_(weights), rows_(rows), stream_(stream) {}

  int64_t width(ValueId id) const { return model_.graph.values[static_cast<size_t>(id)].width; }

  // For an operator that is no linear layer: it reads and writes each value once.
  int64_t BytesMoved(const Op& op) const {
    int64_t elements = width(op.output);
    for (const ValueId input : op.inputs) elements += width(input);
    return elements * rows_ * static_cast<int64_t>(sizeof(float));
  }

  void Launch() {
    for (const Op& op : slice_.program) {
      if (op.kind == OpKind::kTokens || op.kind == OpKind::kPositions) continue;
      // A kernel that reads half of the bytes and writes as many. A copy would be done by another
      // engine of the device.
      if (op.kind != OpKind::kLinear) {
        cuda::Scale(from_.as<float>(), 1, BytesMoved(op) / 2 / static_cast<int64_t>(sizeof(float)),
                    to_.as<float>(), stream_);
        continue;
      }
      const cuda::LinearWeights& matrix = weights_.Matrix(op.weights[0]);
      gemm_->Run({x_.data(), matrix.data, matrix.dtype, rows_, matrix.in_features,
                  matrix.out_features, y_.as<float>(), false});
    }
  }

  const SlicedModel& model_;
  const Slice& slice_;
  const CudaWeights& weights_;
  const int64_t rows_;
  cuda::Stream& stream_;
  cuda::DeviceBuffer x_, y_, from_, to_;
  std::unique_ptr<cuda::Gemm> gemm_;
  std::unique_ptr<cuda::Graph> graph_;
};

}  // namespace

Status MeasureCudaSlice(int device, const std::string& model_dir, const std::vector<int64_t>& rows,
                        int repeats, const std::function<void(Measurement)>& print) {
  LAMINA_ASSIGN_OR_RETURN(const std::unique_ptr<LoadedModel> model,
                          LoadedModel::Describe(model_dir));
  const auto k = static_cast<int>(model->sliced.slices.size() / 2);
  const Slice& slice = model->sliced.slices[static_cast<size_t>(k)];
  LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<cuda::StagedStream> staged,
                          cuda::StagedStream::Create(device));
  WeightOptions options;
  options.model_dir = model_dir;
  options.load_format = LoadFormat::kDummy;
  LAMINA_ASSIGN_OR_RETURN(const std::unique_ptr<CudaWeights> weights,
                          CudaWeights::Load(PartOf(model->sliced, model->share, {k, k + 1}),
                                            model->config, options, *staged));
  CudaEngine engine(std::move(staged));
  WorkerTeam team(1);
  const int64_t max_rows = *std::ranges::max_element(rows);
  LAMINA_ASSIGN_OR_RETURN(
      const std::unique_ptr<CudaSlices> slices,
      CudaSlices::Create(model->sliced, *weights, static_cast<int>(max_rows), engine, team));
  const std::string name = std::filesystem::path(model_dir).lexically_normal().filename().string();
  for (const int64_t n : rows) {
    LAMINA_ASSIGN_OR_RETURN(const std::unique_ptr<SliceParts> parts,
                            SliceParts::Create(model->sliced, slice, *weights, n, engine.stream()));
    slices->Begin(std::vector<TokenId>(static_cast<size_t>(n), 1),
                  std::vector<int32_t>(static_cast<size_t>(n), 7));
    std::vector<ValueId> read = slice.context_in;
    if (slice.attention_out >= 0) read.push_back(slice.attention_out);
    for (const ValueId id : read) {
      const auto size =
          static_cast<size_t>(n * model->sliced.graph.values[static_cast<size_t>(id)].width);
      LAMINA_ASSIGN_OR_RETURN(const cuda::DeviceBuffer values,
                              Filled(size, DType::kF32, engine.stream()));
      cuda::CopyOnDevice(slices->value(id), values.data(), values.size_bytes(), engine.stream());
      LAMINA_RETURN_IF_ERROR(engine.stream().Synchronize());
    }
    TimedLaunches ours([&] { slices->Run(k); }, engine.stream());
    TimedLaunches other(
        [&] {
          parts->Run();
          engine.staged().Finish();
        },
        engine.stream());
    print(MeasureRatePair("slice", {{"model", name}, {"rows", n}, {"repeats", repeats}}, repeats,
                          {"slices/s", "sum of its parts", "", [&] { return 1 / ours.Seconds(); },
                           [&] { return 1 / other.Seconds(); }}));
    LAMINA_RETURN_IF_ERROR(ours.failure());
    LAMINA_RETURN_IF_ERROR(other.failure());
  }
  return OkStatus();
}

}  // namespace lamina
#endif
