// The memory for K and V of a GPU's KV cache: all layers in the device's memory; or the last ones
// in the host's, where kernels read them; or some in the host's, from where they take turns in the
// device's (pinned_ring.h).
//
// A step reads every layer whole, and writes a few rows of it. So rows of a layer that takes turns
// are written to its home as well as to its place, and nothing has to be copied back.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "kernels/cuda/host/pinned_ring.h"
#include "kernels/cuda/host/staged_stream.h"
#include "kernels/cuda/rows.h"
#include "kernels/layers_outside.h"
#include "kernels/token_slab.h"

namespace lamina::cuda {

// What is not in the device's memory: so many bytes, rounded up to whole layers, which kernels read
// in the host's; or layers that take turns. At most one of the two.
struct KvOutside {
  int64_t host_bytes = 0;
  LayersOutside in_turns = {};
};

// Thread: the stream's owner.
class KvLayers {
 public:
  // Borrows the stream. kOutOfSpace if the device has less memory free than its part needs (the
  // message names both) or the host does not have its part or cannot pin it. REQUIRES: the sizes
  // are positive.
  static Result<std::unique_ptr<KvLayers>> Create(const KvShape& shape, int64_t capacity_tokens,
                                                  const KvOutside& outside, StagedStream& stream);

  int64_t host_layers() const { return host_layers_; }
  int64_t host_bytes() const { return static_cast<int64_t>(host_.size_bytes()); }
  // Null if no layers take turns.
  const PinnedRing* ring() const { return ring_.get(); }

  // Where a layer is, in device or pinned memory; one that takes turns only while it is used.
  KvPlace Place(int layer) const;

  // For layers that take turns or not. Kernels that are launched until another layer is used find
  // it there.
  KvPlace Use(int layer);
  // Kernels that are launched next write the same to all of these.
  std::vector<KvPlace> BeginWrite(int layer);

 private:
  // In which of the memories a layer is, and as which of those that are there.
  struct Where {
    enum class Kind { kDevice, kHost, kInTurns } kind = Kind::kDevice;
    int64_t index = 0;
  };

  KvLayers(const KvShape& shape, int64_t capacity_tokens)
      : shape_(shape), capacity_tokens_(capacity_tokens) {}
  Status Allocate(const KvOutside& outside, StagedStream& stream);
  // Sorts the layers into the memories, and returns what each layer takes.
  int64_t Sort(const KvOutside& outside);
  std::string TooLarge(const std::string& device, int64_t device_bytes, int64_t free_bytes) const;
  // Layer number `index` of a memory that holds so many.
  KvPlace PlaceIn(std::byte* memory, int64_t num_layers, int64_t index) const;

  const KvShape shape_;
  const int64_t capacity_tokens_;
  std::vector<Where> where_;  // [layers]
  int64_t device_layers_ = 0, host_layers_ = 0;
  // [layers there, 2 (K, V), num_kv_heads, capacity_tokens, head_dim] of the cache's dtype, then,
  // if that has scales, [layers there, num_kv_heads, capacity_tokens, 2 (K, V)] fp32: a GPU reads
  // 32 bytes of memory at a time, and finds both scales of a token there.
  DeviceBuffer device_;
  PinnedBuffer host_;
  std::unique_ptr<PinnedRing> ring_;  // a block for each layer that takes turns, alike
  int used_ = -1;                     // the layer that was used last; -1: none yet
};

}  // namespace lamina::cuda
