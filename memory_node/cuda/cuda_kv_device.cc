#include "memory_node/cuda/cuda_kv_device.h"

#include <fmt/format.h>

#include <cstring>
#include <string>
#include <utility>

#include "base/log.h"
#include "base/units.h"
#include "memory_node/cuda/cuda_ahead_attention.h"

namespace lamina {
namespace {

size_t LseBytes(const AttentionShape& shape) {
  return static_cast<size_t>(shape.num_heads) * sizeof(float);
}

}  // namespace

Result<std::unique_ptr<KvDevice>> CudaKvDevice::Create(int index, const KvShape& shape,
                                                       int64_t capacity_tokens,
                                                       const cuda::KvOutside& outside) {
  LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<cuda::StagedStream> stream,
                          cuda::StagedStream::Create(index));
  LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<cuda::KvCache> cache,
                          cuda::KvCache::Create(shape, capacity_tokens, outside, *stream));
  const int64_t bytes = shape.bytes_per_token() * capacity_tokens;
  const cuda::KvLayers& layers = cache->layers();
  std::string elsewhere;
  if (layers.host_bytes() > 0) {
    elsewhere =
        fmt::format("; {}, {} of {} layers, are read in the host's memory",
                    FormatGigabytes(layers.host_bytes()), layers.host_layers(), shape.num_layers);
  } else if (layers.ring() != nullptr) {
    elsewhere = fmt::format("; {} of it lie in the host's memory and take turns in {} here",
                            FormatGigabytes(layers.ring()->bytes_outside()),
                            FormatGigabytes(layers.ring()->buffer_bytes()));
  }
  LAMINA_LOG_INFO("cuda:{} holds the KV cache: {}{}; kernels: {}", index, FormatGigabytes(bytes),
                  elsewhere, cuda::BuiltWith());
  return std::unique_ptr<KvDevice>(new CudaKvDevice(std::move(stream), std::move(cache)));
}

Result<std::unique_ptr<AheadAttention>> CudaKvDevice::MakeAheadAttention(
    const AttentionShape& shape, const WireShape& wire) {
  if (cache_->layers().ring() != nullptr)
    return Unimplemented("layers of the memory node's KV cache lie outside its GPU's memory");
  LAMINA_ASSIGN_OR_RETURN(uploads_, cuda::StagedStream::Create(stream_->device()));
  // Freeing device memory would wait for kernels that wait for messages.
  uploads_->KeepOutgrown();
  return CudaAheadAttention::Create(shape, wire, *cache_, *uploads_);
}

void CudaKvDevice::Attend(const AttentionShape& shape, int layer, DType dtype,
                          std::span<const KvQuery> rows) {
  Attend(shape, layer, dtype, rows, /*merges=*/false);
}

void CudaKvDevice::AttendMore(const AttentionShape& shape, int layer, DType dtype,
                              std::span<const KvQuery> rows) {
  Attend(shape, layer, dtype, rows, /*merges=*/true);
}

void CudaKvDevice::Attend(const AttentionShape& shape, int layer, DType dtype,
                          std::span<const KvQuery> rows, bool merges) {
  if (rows.empty()) return;
  stream_->Enter();
  const size_t row_bytes =
                   static_cast<size_t>(shape.num_heads * shape.head_dim) * ElementSize(dtype),
               lse_bytes = LseBytes(shape);
  const size_t bytes = rows.size() * row_bytes, all_lse_bytes = rows.size() * lse_bytes;
  // Uploads one part of all rows in one piece. `of` says where that part of a row is on this host.
  const auto upload = [&](const cuda::DeviceBuffer& to, size_t bytes_per_row, auto of) {
    std::byte* const taken = stream_->Take(rows.size() * bytes_per_row);
    for (size_t i = 0; i < rows.size(); ++i)
      std::memcpy(taken + i * bytes_per_row, of(rows[i]), bytes_per_row);
    stream_->Upload(taken, rows.size() * bytes_per_row, to.data());
  };
  cuda::GrowTo(bytes, *stream_, queries_);
  cuda::GrowTo(bytes, *stream_, out_);
  cuda::GrowTo(all_lse_bytes, *stream_, lse_);
  upload(queries_, row_bytes, [](const KvQuery& row) { return row.q; });
  attended_.clear();
  for (const KvQuery& row : rows) attended_.push_back(row.slots);
  if (merges) {
    const size_t more_bytes =
        static_cast<size_t>(shape.num_heads * shape.head_dim) * sizeof(float) * rows.size();
    cuda::GrowTo(more_bytes, *stream_, more_);
    cuda::GrowTo(all_lse_bytes, *stream_, more_lse_);
    upload(out_, row_bytes, [](const KvQuery& row) { return row.out; });
    upload(lse_, lse_bytes, [](const KvQuery& row) { return row.lse; });
    cache_->Attend(shape, layer,
                   {queries_.data(), more_.data(), dtype, DType::kF32, more_lse_.as<float>()},
                   attended_);
    const cuda::PartialRows partials{out_.data(),  dtype,       lse_.as<float>(),
                                     more_.data(), DType::kF32, more_lse_.as<float>()};
    cuda::MergePartials(partials, std::ssize(rows), shape.num_heads, shape.head_dim,
                        stream_->stream());
  } else {
    cache_->Attend(shape, layer, {queries_.data(), out_.data(), dtype, dtype, lse_.as<float>()},
                   attended_);
  }
  const std::byte* const out = stream_->Fetch(out_.data(), bytes);
  const std::byte* const lse = stream_->Fetch(lse_.data(), all_lse_bytes);
  stream_->Finish();
  for (size_t i = 0; i < rows.size(); ++i) {
    std::memcpy(rows[i].out, out + i * row_bytes, row_bytes);
    if (rows[i].lse != nullptr) std::memcpy(rows[i].lse, lse + i * lse_bytes, lse_bytes);
  }
}

}  // namespace lamina
