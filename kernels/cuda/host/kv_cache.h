// The KV cache of one GPU: tables of token slots on the host, K and V in the device's memory, and
// attention over them.
//
// K and V may be larger than the device's memory (kv_layers.h). Layers in the host's memory that
// kernels read there have each byte cross PCIe once per step (twice with more than 8 query heads
// per kv_head); so have layers that take turns in the device's, ahead of their use and at the rate
// of copies. A step attends in every layer, so pages that migrate on demand would cross in both
// directions.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "kernels/attention_shape.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/host/kv_layers.h"
#include "kernels/cuda/host/staged_stream.h"
#include "kernels/cuda/host/uploaded_tables.h"
#include "kernels/cuda/rows.h"
#include "kernels/kv_cache.h"
#include "kernels/kv_tables.h"
#include "kernels/token_slab.h"

namespace lamina::cuda {

// Owns the tables and the memory. Tables change at once; everything that touches K and V is work
// for the stream, done in its order. A device that fails, or has no memory left in the middle of a
// step, ends the process (RequireOk in staged_stream.h). WriteRaw collects rows by layer, which go
// to the device in one piece, at the latest before the layer's next attention. Thread: the stream's
// owner.
class KvCache final : public lamina::KvCache {
 public:
  // Borrows the stream. Errors of KvLayers; kInvalidArgument if there are no layers, kv_heads,
  // elements of a head or tokens, if there are more than 2^32 - 1 tokens, or if CheckAttention
  // refuses the shape.
  static Result<std::unique_ptr<KvCache>> Create(const KvShape& shape, int64_t capacity_tokens,
                                                 const KvOutside& outside, StagedStream& stream);

  const KvShape& shape() const { return shape_; }
  const KvLayers& layers() const { return *layers_; }

  int64_t capacity_tokens() const override { return tables_.capacity_tokens(); }
  Status SetLayersInside(int num_layers) override { return tables_.SetLayersInside(num_layers); }
  int64_t used_tokens() const override { return tables_.used_tokens(); }
  int64_t num_sequences() const override { return tables_.num_sequences(); }
  std::vector<SequenceId> sequences() const override { return tables_.sequences(); }
  int64_t NumWritten(SequenceId sequence) const override { return tables_.NumWritten(sequence); }
  Status Append(SequenceId sequence, int64_t position, std::span<const TokenSlot> slots,
                StepId step) override;
  Status AppendDummy(SequenceId sequence, int64_t position, std::span<const TokenSlot> slots,
                     StepId step) override;
  Status Share(SequenceId sequence, std::span<const TokenSlot> slots, StepId step) override;
  void Truncate(SequenceId sequence, int64_t num_tokens) override;
  void Release(SequenceId sequence) override;
  Status WriteRaw(int layer, SequenceId sequence, int64_t position, const void* k, const void* v,
                  StepId step) override;
  Result<std::span<const TokenSlot>> Readable(int layer, SequenceId sequence,
                                              int64_t num_tokens) const override {
    return tables_.Readable(layer, sequence, num_tokens);
  }

  // Returns the slot for K and V of the token at `position` in `layer`, and counts the token as
  // written there: the caller writes it by Write. kNotFound if the sequence is
  // unknown or its table was started after `step` (a late message: drop it). kCorrupt if there is
  // no such layer, or if `position` is not the next one to be written in it or is not in the table.
  Result<TokenSlot> Claim(int layer, SequenceId sequence, int64_t position, StepId step) {
    return tables_.Claim(layer, sequence, position, step);
  }
  // Makes exactly tokens [0, num_tokens) count as written in all layers. kNotFound if the sequence
  // is unknown or its table was started after `step`. REQUIRES: the table has num_tokens tokens.
  Status ClaimAll(SequenceId sequence, int64_t num_tokens, StepId step) {
    return tables_.ClaimAll(sequence, num_tokens, step);
  }
  // Where a layer's K and V are, in device or pinned memory: for kernels that write and that read.
  // REQUIRES: no layers take turns.
  KvPlace Place(int layer) const { return layers_->Place(layer); }
  KvView View(int layer) const { return ViewOf(Place(layer)); }

  // Stores rows of K and V in claimed slots. k, v: [slots.size()] rows of `dtype`, which is kF32 or
  // the cache's, as WriteKv takes them (kernels/cuda/rows.h); device memory. REQUIRES: no slot
  // occurs twice.
  void Write(int layer, const void* k, const void* v, DType dtype,
             std::span<const TokenSlot> slots);

  // From here on rows of WriteRaw and AppendDummy are written by this stream instead of the
  // cache's. The caller calls WriteCollected, and orders the writes with attention on the cache's
  // stream. Borrows the stream. REQUIRES: nothing was written yet.
  void WriteFromHostBy(StagedStream& stream) { writes_ = &stream; }
  // By the cache's again. REQUIRES: the other one has nothing more to do.
  void WriteFromHostAgain() { writes_ = &stream_; }
  // Queues the writing of all rows that WriteRaw has collected.
  void WriteCollected();

  // The queries of a call and where its results go; device memory.
  struct Queries {
    const void* q = nullptr;        // [rows, num_heads, head_dim] of `dtype`
    void* out = nullptr;            // [rows, num_heads, head_dim] of out_dtype, normalised
    DType dtype = DType::kF32;      // not kF8
    DType out_dtype = DType::kF32;  // not kF8
    float* lse = nullptr;           // [rows, num_heads] fp32, natural; may be null
  };

  // Attention in one layer: row i attends to the slots rows[i], a part of what Readable returned.
  // Slots that were uploaded for an earlier layer are used again as long as no table has changed.
  void Attend(const AttentionShape& shape, int layer, const Queries& queries,
              std::span<const std::span<const TokenSlot>> rows);

 private:
  // Rows of one layer that the device does not have yet. No slot occurs twice.
  struct Collected {
    std::vector<std::byte> k, v;  // [slots, row_bytes()]
    std::vector<TokenSlot> slots;
  };
  // The slots of the rows of a step, as they were uploaded.
  struct Uploaded {
    uint64_t version = 0;  // of the tables at that time; 0: nothing was uploaded
    std::vector<std::span<const TokenSlot>> rows;
    UploadedTables tables;
  };

  // Rows to store, as Write has them.
  struct NewRows {
    const void* k = nullptr;
    const void* v = nullptr;
    DType dtype = DType::kF32;
    std::span<const TokenSlot> slots;
  };

  KvCache(const KvShape& shape, int64_t capacity_tokens, std::unique_ptr<KvLayers> layers,
          StagedStream& stream)
      : shape_(shape),
        stream_(stream),
        writes_(&stream),
        tables_(shape.num_layers, capacity_tokens),
        layers_(std::move(layers)),
        collected_(static_cast<size_t>(shape.num_layers)) {}
  // Of K, or of V, of one token in one layer.
  size_t row_bytes() const {
    return static_cast<size_t>(KvRowBytes(shape_.dtype, shape_.num_kv_heads, shape_.head_dim));
  }
  static KvView ViewOf(const KvPlace& place);
  void WriteCollected(int layer);
  // Stores rows of K and V from the host's memory, which is free again when it returns. k, v:
  // [slots.size(), row_bytes()]. REQUIRES: no slot occurs twice.
  void WriteFromHost(int layer, const std::byte* k, const std::byte* v,
                     std::span<const TokenSlot> slots);
  // Uploads the slots and runs WriteKv, both on `stream`.
  void WriteThrough(int layer, const NewRows& rows, StagedStream& stream);
  // Uploads the slots of these rows, unless they are on the device already.
  const UploadedTables& Upload(std::span<const std::span<const TokenSlot>> rows);

  const KvShape shape_;
  StagedStream& stream_;
  StagedStream* writes_;  // what WriteFromHost works on
  KvTables tables_;
  uint64_t version_ = 1;  // of the tables: grows with each change
  const std::unique_ptr<KvLayers> layers_;
  // Several, because batches in flight take turns, and so do layers with and without a window.
  std::array<Uploaded, 8> uploads_;
  size_t oldest_upload_ = 0;
  DeviceBuffer scratch_;  // of attention
  // Of the latest write: [rows] TokenSlot; of the latest WriteFromHost: [rows, row_bytes()], K and
  // V.
  DeviceBuffer write_slots_, write_k_, write_v_;
  std::vector<std::byte> dummy_;      // rows of AppendDummy
  std::vector<Collected> collected_;  // [layers]
};

}  // namespace lamina::cuda
