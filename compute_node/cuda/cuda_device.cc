#include "compute_node/cuda/cuda_device.h"

#include <cstring>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/units.h"
#include "compute_node/cuda/cuda_kv.h"
#include "compute_node/cuda/cuda_link.h"
#include "compute_node/cuda/cuda_slices.h"
#include "compute_node/cuda/cuda_weights.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/rows.h"
#include "node/outside_gpu.h"

namespace lamina {
namespace {

static_assert(sizeof(int) == sizeof(int32_t), "rows are uploaded as they stand");

// Whether the rows have no gaps. Such rows need no list in device memory. REQUIRES: ascending.
bool FollowEachOther(std::span<const int> rows) {
  return rows.empty() || rows.back() - rows.front() + 1 == std::ssize(rows);
}

// The rows as kernels take them. `index` is their list in device memory, for rows with gaps.
cuda::RowSet SetOf(const RowParts& parts, const int32_t* index) {
  return {std::ssize(parts.rows), parts.width, parts.pitch,
          FollowEachOther(parts.rows) ? nullptr : index};
}

// The first element of the value that a message has. Rows with gaps are counted from row 0 by their
// list, others from the first of them.
template <typename T>
T* BeginOf(T* value, const RowParts& parts) {
  const int64_t first_row =
      FollowEachOther(parts.rows) && !parts.rows.empty() ? parts.rows.front() : 0;
  return value + first_row * parts.pitch + parts.first;
}

class LoadingOnGpu final : public LoadingModel {
 public:
  LoadingOnGpu(std::unique_ptr<LoadedModel> model, CudaWeights::Loading weights, bool is_auto)
      : model_(std::move(model)), weights_(std::move(weights)), is_auto_(is_auto) {}

  Result<std::unique_ptr<LoadedModel>> Continue() override {
    LAMINA_ASSIGN_OR_RETURN(const bool more, weights_.Continue());
    if (more) return std::unique_ptr<LoadedModel>();
    std::unique_ptr<CudaWeights> weights = weights_.Take();
    model_->weight_bytes = weights->size_bytes();
    if (is_auto_) model_->largest_interval = weights->ring()->first_interval();
    model_->device_weights = std::move(weights);
    return std::move(model_);
  }
  WeightsProgress progress() const override { return weights_.progress(); }

 private:
  std::unique_ptr<LoadedModel> model_;
  CudaWeights::Loading weights_;  // borrows the model's config
  const bool is_auto_;            // intervals are chosen while it serves
};

}  // namespace

Result<std::unique_ptr<ComputeDevice>> CudaDevice::Create(int index, WorkerTeam& team,
                                                          const ComputeOffload& offload) {
  LAMINA_ASSIGN_OR_RETURN(const cuda::DeviceInfo info, cuda::DescribeDevice(index));
  LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<cuda::StagedStream> staged,
                          cuda::StagedStream::Create(index));
  LAMINA_LOG_INFO("cuda:{}: {}, {} of {} free; kernels: {}", index, info.name,
                  FormatGigabytes(info.free_bytes), FormatGigabytes(info.memory_bytes),
                  cuda::BuiltWith());
  return std::unique_ptr<ComputeDevice>(new CudaDevice(std::move(staged), team, offload));
}

Result<std::unique_ptr<LoadingModel>> CudaDevice::StartLoad(const WeightOptions& options) {
  LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<LoadedModel> model,
                          LoadedModel::Describe(options.model_dir, options.share));
  LAMINA_ASSIGN_OR_RETURN(model->sinks, ReadSinks(model->sliced, model->config, options));
  const CudaWeights::Loading::InTurns in_turns{model->sliced, model->slices(), offload_.weights};
  LAMINA_ASSIGN_OR_RETURN(
      CudaWeights::Loading weights,
      CudaWeights::Loading::Start(model->part(), model->config, options, engine_.staged(),
                                  offload_.weights.any() ? &in_turns : nullptr));
  weights.UnpackOn(team_);
  return std::unique_ptr<LoadingModel>(std::make_unique<LoadingOnGpu>(
      std::move(model), std::move(weights), offload_.weights.is_auto));
}

Result<std::unique_ptr<SliceRunner>> CudaDevice::MakeSlices(const LoadedModel& model,
                                                            int max_rows) {
  // Load has made them, so this is their type.
  const auto& weights = static_cast<const CudaWeights&>(*model.device_weights);
  LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<CudaSlices> slices,
                          CudaSlices::Create(model.sliced, weights, max_rows, engine_, team_));
  return std::unique_ptr<SliceRunner>(std::move(slices));
}

Result<std::unique_ptr<LocalKv>> CudaDevice::MakeKv(const AttentionShape& shape, const KvShape& kv,
                                                    const AttentionLayers& layers,
                                                    int64_t capacity_tokens) {
  cuda::KvOutside outside;
  LAMINA_ASSIGN_OR_RETURN(outside.in_turns, LayersOutsideOf(offload_.kv, kv.num_layers));
  LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<cuda::KvCache> cache,
                          cuda::KvCache::Create(kv, capacity_tokens, outside, engine_.staged()));
  LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<CudaKv> made,
                          CudaKv::Create(shape, layers, std::move(cache), engine_.staged()));
  return std::unique_ptr<LocalKv>(std::move(made));
}

Result<std::unique_ptr<DeviceLink>> CudaDevice::MakeLink(const WireShape& wire,
                                                         Clock::duration limit) {
  return CudaLink::Create(wire, limit, *this);
}

// Uploads the lists of those rows that have gaps, one after the other.
const int32_t* CudaDevice::UploadRows(std::span<const std::span<const int>> rows) {
  std::vector<int> all;
  for (const std::span<const int> each : rows) {
    if (!FollowEachOther(each)) all.insert(all.end(), each.begin(), each.end());
  }
  cuda::GrowTo(all.size() * sizeof(int), engine_.staged(), rows_);
  engine_.staged().Copy(all.data(), all.size() * sizeof(int), rows_.data());
  return rows_.as<int32_t>();
}

void CudaDevice::PackOnDevice(std::span<const PackedParts> packed, std::byte* message) {
  engine_.staged().Enter();
  std::vector<std::span<const int>> rows;
  for (const PackedParts& each : packed) rows.push_back(each.parts.rows);
  const int32_t* index = UploadRows(rows);
  for (const PackedParts& each : packed) {
    const auto& [value, parts, dtype, head_dim] = each;
    if (HasScales(dtype)) {
      cuda::PackKvRows(BeginOf(value, parts), SetOf(parts, index), head_dim, dtype, message,
                       engine_.stream());
    } else if (parts.rows.size() == 1) {
      cuda::ConvertFromFloat(BeginOf(value, parts), parts.width, dtype, message, engine_.stream());
    } else {
      cuda::PackRows(BeginOf(value, parts), SetOf(parts, index), dtype, message, engine_.stream());
    }
    if (!FollowEachOther(parts.rows)) index += parts.rows.size();
    message += each.num_bytes();
  }
}

std::byte* CudaDevice::Pack(std::span<const PackedParts> packed, std::byte* message) {
  cuda::StagedStream& staged = engine_.staged();
  staged.Enter();
  size_t bytes = 0;
  for (const PackedParts& each : packed) bytes += static_cast<size_t>(each.num_bytes());
  if (bytes == 0) return message;
  cuda::GrowTo(bytes, staged, message_);
  PackOnDevice(packed, message_.as<std::byte>());
  const std::byte* const fetched = staged.Fetch(message_.data(), bytes);
  staged.Finish();
  std::memcpy(message, fetched, bytes);
  return message + bytes;
}

void CudaDevice::UnpackOnDevice(const std::byte* message, DType dtype, const RowParts& parts,
                                float* value) {
  engine_.staged().Enter();
  if (parts.rows.size() == 1)
    return cuda::ConvertToFloat(message, dtype, parts.width, BeginOf(value, parts),
                                engine_.stream());
  const int32_t* const index = UploadRows({&parts.rows, 1});
  cuda::UnpackRows(message, dtype, SetOf(parts, index), BeginOf(value, parts), engine_.stream());
}

void CudaDevice::Unpack(const std::byte* message, DType dtype, const RowParts& parts,
                        float* value) {
  cuda::StagedStream& staged = engine_.staged();
  staged.Enter();
  const size_t bytes = static_cast<size_t>(parts.num_elements()) * ElementSize(dtype);
  cuda::GrowTo(bytes, staged, message_);
  staged.Copy(message, bytes, message_.data());
  UnpackOnDevice(message_.as<std::byte>(), dtype, parts, value);
}

void CudaDevice::AddUnpacked(const std::byte* message, DType dtype, int64_t n, float* value) {
  cuda::GrowTo(static_cast<size_t>(n) * sizeof(float), engine_.staged(), sum_);
  Unpack(message, dtype, RowParts::Whole(n), sum_.as<float>());
  cuda::Add(value, sum_.as<float>(), n, value, engine_.stream());
}

}  // namespace lamina
