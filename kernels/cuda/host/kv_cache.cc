#include "kernels/cuda/host/kv_cache.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "base/host_memory.h"
#include "base/units.h"
#include "kernels/kv_rows.h"

namespace lamina::cuda {
namespace {

// The most scratch memory of attention. Partials of 512 rows of 4096 tokens and 32 heads of 128
// need 135 MB; larger steps take several launches.
constexpr size_t kMaxScratchBytes = size_t{256} << 20;

// Made-up rows are written in pieces of so many.
constexpr size_t kDummyRows = 256;

// A layer's collected rows go to the device when K has so many bytes, even if no attention follows:
// the pushes of long prompts would otherwise pile up in this host's memory.
constexpr size_t kMaxCollectedBytes = size_t{4} << 20;

}  // namespace

Result<std::unique_ptr<KvCache>> KvCache::Create(const KvShape& shape, int64_t capacity_tokens,
                                                 const KvOutside& outside, StagedStream& stream) {
  if (shape.num_layers <= 0 || shape.num_kv_heads <= 0 || shape.head_dim <= 0 ||
      capacity_tokens <= 0 || capacity_tokens > std::numeric_limits<TokenSlot>::max())
    return InvalidArgument("cuda:" + std::to_string(stream.device()) + ": a KV cache of " +
                           std::to_string(capacity_tokens) + " tokens, " +
                           std::to_string(shape.num_layers) + " layers and " +
                           std::to_string(shape.num_kv_heads) + " kv heads of " +
                           std::to_string(shape.head_dim));
  stream.Enter();
  LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<KvLayers> layers,
                          KvLayers::Create(shape, capacity_tokens, outside, stream));
  // Of the shape only head_dim and alignment are checked here: the number of query heads is not
  // known yet.
  LAMINA_RETURN_IF_ERROR(CheckAttention(
      {shape.num_kv_heads, shape.num_kv_heads, shape.head_dim, 1, 0}, ViewOf(layers->Place(0))));
  return std::unique_ptr<KvCache>(new KvCache(shape, capacity_tokens, std::move(layers), stream));
}

KvView KvCache::ViewOf(const KvPlace& place) {
  return {.k = place.k,
          .v = place.v,
          .head_stride = place.head_stride,
          .slot_stride = place.slot_stride,
          .dtype = place.dtype,
          .k_scales = place.k_scales,
          .v_scales = place.v_scales,
          .scale_head_stride = place.scale_head_stride,
          .scale_slot_stride = place.scale_slot_stride};
}

Status KvCache::Append(SequenceId sequence, int64_t position, std::span<const TokenSlot> slots,
                       StepId step) {
  ++version_;
  return tables_.Append(sequence, position, slots, step);
}

// Values are pseudo-random in [-1, 1], seeded by slot, layer and whether they are K or V, so that
// they differ between these and between heads.
Status KvCache::AppendDummy(SequenceId sequence, int64_t position, std::span<const TokenSlot> slots,
                            StepId step) {
  stream_.Enter();
  LAMINA_RETURN_IF_ERROR(Append(sequence, position, slots, step));
  LAMINA_RETURN_IF_ERROR(tables_.ClaimAll(sequence, position + std::ssize(slots), step));
  const auto width = static_cast<size_t>(shape_.num_kv_heads * shape_.head_dim);
  std::vector<float> values(2 * kDummyRows * width);
  uint32_t state = 1;
  for (size_t first = 0; first < slots.size(); first += kDummyRows) {
    const std::span<const TokenSlot> piece =
        slots.subspan(first, std::min(kDummyRows, slots.size() - first));
    const size_t half = piece.size() * width;
    dummy_.resize(2 * piece.size() * row_bytes());
    for (int layer = 0; layer < shape_.num_layers; ++layer) {
      for (size_t i = 0; i < 2 * half; ++i) {
        if (i % width == 0)
          state = piece[i / width % piece.size()] * 2654435761u + static_cast<uint32_t>(layer) * 2 +
                  (i >= half ? 1u : 0u);
        state = state * 1664525u + 1013904223u;
        values[i] = static_cast<float>(static_cast<int32_t>(state)) * 0x1p-31f;
      }
      std::byte* row = dummy_.data();
      for (size_t i = 0; i < 2 * half; i += width)
        row = PackKvRow(&values[i], shape_.num_kv_heads, shape_.head_dim, shape_.dtype, row);
      WriteFromHost(layer, dummy_.data(), dummy_.data() + piece.size() * row_bytes(), piece);
    }
  }
  return OkStatus();
}

Status KvCache::Share(SequenceId sequence, std::span<const TokenSlot> slots, StepId step) {
  ++version_;
  return tables_.Share(sequence, slots, step);
}

// What is cut is written once more, maybe to the same slots, and no slot may occur twice in one
// write.
void KvCache::Truncate(SequenceId sequence, int64_t num_tokens) {
  stream_.Enter();
  WriteCollected();
  ++version_;
  tables_.Truncate(sequence, num_tokens);
}

// The sequence's slots may be given to another sequence soon. Rows that were collected for them
// must be written before those of the other sequence, and no slot may occur twice in one write.
void KvCache::Release(SequenceId sequence) {
  stream_.Enter();
  WriteCollected();
  ++version_;
  tables_.Release(sequence);
}

Status KvCache::WriteRaw(int layer, SequenceId sequence, int64_t position, const void* k,
                         const void* v, StepId step) {
  LAMINA_ASSIGN_OR_RETURN(const TokenSlot slot, Claim(layer, sequence, position, step));
  Collected& rows = collected_[static_cast<size_t>(layer)];
  const auto append = [bytes = row_bytes()](const void* row, std::vector<std::byte>& to) {
    const auto* const begin = static_cast<const std::byte*>(row);
    to.insert(to.end(), begin, begin + bytes);
  };
  append(k, rows.k);
  append(v, rows.v);
  rows.slots.push_back(slot);
  if (rows.k.size() >= kMaxCollectedBytes) {
    stream_.Enter();
    WriteCollected(layer);
  }
  return OkStatus();
}

void KvCache::WriteCollected() {
  for (int layer = 0; layer < shape_.num_layers; ++layer) WriteCollected(layer);
}

void KvCache::WriteCollected(int layer) {
  Collected& rows = collected_[static_cast<size_t>(layer)];
  if (rows.slots.empty()) return;
  WriteFromHost(layer, rows.k.data(), rows.v.data(), rows.slots);
  rows.k.clear();
  rows.v.clear();
  rows.slots.clear();
}

void KvCache::Write(int layer, const void* k, const void* v, DType dtype,
                    std::span<const TokenSlot> slots) {
  if (!slots.empty()) WriteThrough(layer, {k, v, dtype, slots}, stream_);
}

void KvCache::WriteThrough(int layer, const NewRows& rows, StagedStream& stream) {
  GrowTo(rows.slots.size_bytes(), stream, write_slots_);
  stream.Copy(rows.slots.data(), rows.slots.size_bytes(), write_slots_.data());
  for (const KvPlace& place : layers_->BeginWrite(layer)) {
    WriteKv(rows.k, rows.v, rows.dtype, write_slots_.as<TokenSlot>(), std::ssize(rows.slots),
            shape_.num_kv_heads, shape_.head_dim, place, stream.stream());
  }
}

void KvCache::WriteFromHost(int layer, const std::byte* k, const std::byte* v,
                            std::span<const TokenSlot> slots) {
  if (slots.empty()) return;
  const size_t bytes = slots.size() * row_bytes();
  GrowTo(bytes, *writes_, write_k_);
  GrowTo(bytes, *writes_, write_v_);
  writes_->Copy(k, bytes, write_k_.data());
  writes_->Copy(v, bytes, write_v_.data());
  WriteThrough(layer, {write_k_.data(), write_v_.data(), shape_.dtype, slots}, *writes_);
}

const UploadedTables& KvCache::Upload(std::span<const std::span<const TokenSlot>> rows) {
  const auto same = [](std::span<const TokenSlot> a, std::span<const TokenSlot> b) {
    return a.data() == b.data() && a.size() == b.size();
  };
  // Spans are compared by their addresses. They are into tables, and as long as none has changed
  // the same addresses hold the same slots.
  for (const Uploaded& uploaded : uploads_) {
    if (uploaded.version == version_ && std::ranges::equal(uploaded.rows, rows, same))
      return uploaded.tables;
  }
  Uploaded& uploaded = uploads_[oldest_upload_];
  oldest_upload_ = (oldest_upload_ + 1) % uploads_.size();
  uploaded.version = version_;
  uploaded.rows.assign(rows.begin(), rows.end());
  uploaded.tables.Upload(rows, stream_);
  return uploaded.tables;
}

void KvCache::Attend(const AttentionShape& shape, int layer, const Queries& queries,
                     std::span<const std::span<const TokenSlot>> rows) {
  if (rows.empty()) return;
  WriteCollected(layer);
  const UploadedTables& tables = Upload(rows);
  const size_t all = AttentionScratchBytes(shape, std::ssize(rows), tables.max_tokens());
  GrowTo(std::max(std::min(all, kMaxScratchBytes),
                  LeastAttentionScratchBytes(shape, tables.max_tokens())),
         stream_, scratch_);
  AttentionBatch batch;
  batch.q = queries.q;
  batch.q_dtype = queries.dtype;
  batch.out = queries.out;
  batch.out_dtype = queries.out_dtype;
  batch.lse = queries.lse;
  tables.FillIn(batch);
  Attention(shape, ViewOf(layers_->Use(layer)), batch, scratch_, stream_.stream());
}

}  // namespace lamina::cuda
