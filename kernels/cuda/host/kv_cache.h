// The KV cache of one GPU: tables of token slots on the host, K and V in the device's memory, and
// attention over them.
//
// K and V may be larger than that memory. The last layers' then lie in the host's, pinned, and the
// kernels read them from there, at the speed of PCIe. A step attends in every layer, so each byte
// crosses once a step, twice with more than 8 query heads per kv head, however the cache is
// divided, and pages that migrate on demand would cross in both directions.
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
#include "kernels/cuda/host/staged_stream.h"
#include "kernels/cuda/host/uploaded_tables.h"
#include "kernels/cuda/rows.h"
#include "kernels/kv_tables.h"
#include "kernels/token_slab.h"

namespace lamina::cuda {

// Everything that touches the device is only asked for: it is done when the stream gets there.
// Thread: the stream's owner.
class KvCache {
 public:
  // Borrows the stream. `host_bytes` of it lie in the host's memory, rounded up to whole layers.
  // kOutOfSpace: the device has less memory free than the rest needs; the message names both; or
  // the host has not that much. kInvalidArgument: as CheckAttention.
  static Result<std::unique_ptr<KvCache>> Create(const KvShape& shape, int64_t capacity_tokens,
                                                 int64_t host_bytes, StagedStream& stream);

  const KvShape& shape() const { return shape_; }
  int64_t capacity_tokens() const { return tables_.capacity_tokens(); }
  int64_t used_tokens() const { return tables_.used_tokens(); }
  int64_t num_sequences() const { return tables_.num_sequences(); }
  int64_t host_layers() const { return host_layers_; }
  int64_t host_bytes() const { return static_cast<int64_t>(host_slab_.size_bytes()); }

  // As KvTables's, and KvStore's AppendDummy.
  Status Append(SequenceId sequence, int64_t position, std::span<const TokenSlot> slots,
                StepId step);
  Status AppendDummy(SequenceId sequence, int64_t position, std::span<const TokenSlot> slots,
                     StepId step);
  Status Share(SequenceId sequence, std::span<const TokenSlot> slots, StepId step);
  void Release(SequenceId sequence);
  Result<TokenSlot> Claim(int layer, SequenceId sequence, int64_t position, StepId step) {
    return tables_.Claim(layer, sequence, position, step);
  }
  Status ClaimAll(SequenceId sequence, int64_t num_tokens, StepId step) {
    return tables_.ClaimAll(sequence, num_tokens, step);
  }
  Result<std::span<const TokenSlot>> Readable(int layer, SequenceId sequence,
                                              int64_t num_tokens) const {
    return tables_.Readable(layer, sequence, num_tokens);
  }

  // Where a layer's K and V are.
  KvPlace Place(int layer) const;
  KvView View(int layer) const;

  // Stores rows of K and V in claimed slots, no slot twice. k, v: [slots.size(), num_kv_heads,
  // head_dim] of `dtype`, fp32 or the cache's; device memory.
  void Write(int layer, const void* k, const void* v, DType dtype,
             std::span<const TokenSlot> slots);

  // From here on what comes from the host's memory is written in the order of this stream, which
  // the caller brings into order with attention; not with the cache's. REQUIRES: nothing was
  // written yet. Borrowed.
  void WriteFromHostBy(StagedStream& stream) { writes_ = &stream; }

  // As Write, from the host's memory, in the cache's dtype.
  void WriteFromHost(int layer, const std::byte* k, const std::byte* v,
                     std::span<const TokenSlot> slots);

  // Queries and what becomes of them, row by row; device memory. As AttentionBatch's.
  struct Queries {
    const void* q = nullptr;
    void* out = nullptr;
    DType dtype = DType::kF32;  // of q
    DType out_dtype = DType::kF32;
    float* lse = nullptr;
  };
  // Row i attends to rows[i], which are parts of tables: what Readable returned. Slots that were
  // uploaded for an earlier layer are used again, as long as no table has changed.
  void Attend(const AttentionShape& shape, int layer, const Queries& queries,
              std::span<const std::span<const TokenSlot>> rows);

 private:
  // Slots of the rows of a step as the device has them.
  struct Uploaded {
    uint64_t version = 0;  // of the tables; 0: nothing is there
    std::vector<std::span<const TokenSlot>> rows;
    UploadedTables tables;
  };

  KvCache(const KvShape& shape, int64_t capacity_tokens, DeviceBuffer slab, PinnedBuffer host_slab,
          int64_t host_layers, StagedStream& stream)
      : shape_(shape),
        stream_(stream),
        writes_(&stream),
        tables_(shape.num_layers, capacity_tokens),
        slab_(std::move(slab)),
        host_slab_(std::move(host_slab)),
        host_layers_(host_layers) {}
  void WriteThrough(int layer, const void* k, const void* v, DType dtype,
                    std::span<const TokenSlot> slots, StagedStream& stream);
  const UploadedTables& Upload(std::span<const std::span<const TokenSlot>> rows);

  const KvShape shape_;
  StagedStream& stream_;
  StagedStream* writes_;  // of WriteFromHost
  KvTables tables_;
  uint64_t version_ = 1;  // of the tables: grows with each change
  // Layout as TokenSlab's: per layer K, then V, each [kv_head][slot][head_dim].
  const DeviceBuffer slab_;
  const PinnedBuffer host_slab_;
  const int64_t host_layers_;
  // Batches in flight take turns, and layers with and without a window.
  std::array<Uploaded, 8> uploads_;
  size_t oldest_upload_ = 0;
  DeviceBuffer scratch_;                          // of attention
  DeviceBuffer write_slots_, write_k_, write_v_;  // of what is written
  std::vector<std::byte> dummy_;                  // rows of AppendDummy
};

}  // namespace lamina::cuda
