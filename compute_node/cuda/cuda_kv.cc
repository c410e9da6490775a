#include "compute_node/cuda/cuda_kv.h"

#include <utility>

#include "kernels/attention.h"
#include "kernels/cuda/attention.h"

namespace lamina {

Result<std::unique_ptr<CudaKv>> CudaKv::Create(const AttentionShape& shape,
                                               const AttentionLayers& layers,
                                               std::unique_ptr<cuda::KvCache> cache,
                                               cuda::StagedStream& stream) {
  std::unique_ptr<CudaKv> kv(new CudaKv(shape, layers, std::move(cache), stream));
  if (layers.sinks.empty()) return kv;
  std::vector<float> all;
  for (const std::vector<float>& of_layer : layers.sinks)
    all.insert(all.end(), of_layer.begin(), of_layer.end());
  stream.Enter();
  LAMINA_ASSIGN_OR_RETURN(kv->sinks_, cuda::DeviceBuffer::Create(all.size() * sizeof(float)));
  stream.Copy(all.data(), all.size() * sizeof(float), kv->sinks_.data());
  LAMINA_RETURN_IF_ERROR(stream.Synchronize());
  return kv;
}

// Consecutive rows are written by one call. A row that failed ends such a run, because its k and v
// lie between those of its neighbours.
void CudaKv::Write(const AttentionValues& values, StepId step, std::span<const AttentionWork> rows,
                   Failures& failures) {
  const size_t width =
      static_cast<size_t>(shape_.num_kv_heads) * static_cast<size_t>(shape_.head_dim);
  size_t first = 0;
  slots_.clear();
  const auto write = [&](size_t end) {
    cache_->Write(values.layer, values.k + first * width, values.v + first * width, DType::kF32,
                  slots_);
    slots_.clear();
    first = end + 1;
  };
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!failures.contains(rows[i].sequence)) {
      Result<TokenSlot> slot =
          cache_->Claim(values.layer, rows[i].sequence, rows[i].position, step);
      if (slot.ok()) {
        slots_.push_back(*slot);
        continue;
      }
      failures.emplace(rows[i].sequence, slot.status());
    }
    write(i);
  }
  write(rows.size());
}

void CudaKv::Attend(const AttentionValues& values, StepId step, std::span<const AttentionWork> rows,
                    Failures& failures) {
  const int layer = values.layer;
  stream_.Enter();
  Write(values, step, rows, failures);
  const AttentionWindow window = layers_.WindowOf(layer);
  attended_.assign(rows.size(), {});  // rows that have failed attend to nothing
  for (size_t i = 0; i < rows.size(); ++i) {
    if (failures.contains(rows[i].sequence)) continue;
    const Result<std::span<const TokenSlot>> slots =
        cache_->Readable(layer, rows[i].sequence, rows[i].position + 1);
    if (slots.ok())
      attended_[i] = InWindow(*slots, window);
    else
      failures.emplace(rows[i].sequence, slots.status());
  }
  if (layers_.sinks.empty()) {
    cache_->Attend(shape_, layer, {.q = values.q, .out = values.out}, attended_);
    return;
  }
  const auto num_heads = static_cast<size_t>(shape_.num_heads);
  cuda::GrowTo(rows.size() * num_heads * sizeof(float), stream_, lse_);
  cache_->Attend(shape_, layer, {.q = values.q, .out = values.out, .lse = lse_.as<float>()},
                 attended_);
  cuda::AddSinks(values.out, lse_.as<float>(),
                 sinks_.as<float>() + static_cast<size_t>(layer) * num_heads, std::ssize(rows),
                 shape_.num_heads, shape_.head_dim, stream_.stream());
}

}  // namespace lamina
