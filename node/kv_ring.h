// The layers of a KV cache that take turns in memory (tiers/ring.h): one block for K and V of
// each layer. Attention goes through the layers in the same order in every step, so while one layer
// is attended to the next one comes, and the one before goes back.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "base/status.h"
#include "kernels/layer_memory.h"
#include "kernels/token_slab.h"
#include "splitter/offload_options.h"
#include "tiers/ring.h"

namespace lamina {

// Thread: one owner.
class KvRing final : public LayerMemory {
 public:
  // Makes the file that the layers outside lie in. Errors are those of BlockFile::Create, of
  // SlotsForExpansion or FirstOutside, and of the rings.
  // `capacity_tokens`: if the number of places changes, that at first, with all layers inside.
  static Result<std::unique_ptr<KvRing>> Create(const KvShape& shape, const OffloadOptions& offload,
                                                int64_t capacity_tokens);

  // Ends the process if the disk fails: what it held is lost, and peers notice that it is gone.
  std::byte* Use(int layer, bool writes) override;
  int64_t pitch_tokens() const override { return pitch_tokens_; }
  ElasticLayers* elastic() override { return elastic_; }

  const RingStats& stats() const { return ring_->stats(); }

 private:
  KvRing(std::unique_ptr<Ring> ring, int64_t pitch_tokens, ElasticLayers* elastic = nullptr)
      : ring_(std::move(ring)), pitch_tokens_(pitch_tokens), elastic_(elastic) {}
  static Result<std::unique_ptr<KvRing>> CreateElastic(const KvShape& shape,
                                                       const OffloadOptions& offload,
                                                       int64_t capacity_tokens);

  const std::unique_ptr<Ring> ring_;
  const int64_t pitch_tokens_;
  ElasticLayers* const elastic_;  // the ring, if it is one; null: it is none
  int layer_ = -1;                // that is used; -1: none yet
  bool written_ = false;
  std::byte* memory_ = nullptr;  // of that layer
};

}  // namespace lamina
