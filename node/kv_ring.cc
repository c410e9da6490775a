#include "node/kv_ring.h"

#include <cstdlib>
#include <numeric>
#include <utility>
#include <vector>

#include "base/log.h"
#include "node/elastic_ring.h"
#include "tiers/block_file.h"
#include "tiers/block_ring.h"
#include "tiers/disk_copier.h"
#include "tiers/fifo_ring.h"

namespace lamina {
namespace {

int64_t BytesOf(const KvShape& shape, int64_t tokens) {
  return shape.bytes_per_token() / shape.num_layers * tokens;
}

// As the disk wants them.
int64_t WholePages(int64_t bytes) {
  return (bytes + BlockFile::kAlignment - 1) / BlockFile::kAlignment * BlockFile::kAlignment;
}

// A file for blocks of these sizes.
Result<std::shared_ptr<const BlockFile>> MakeFile(const std::string& folder,
                                                  const std::vector<int64_t>& block_bytes) {
  LAMINA_ASSIGN_OR_RETURN(std::shared_ptr<const BlockFile> file,
                          BlockFile::Create(folder, block_bytes));
  if (!file->is_direct()) {
    LAMINA_LOG_WARN(
        "the file system of {} does not let reads pass by the system's cache: layers that lie "
        "outside take memory there while nobody else needs it",
        folder);
  }
  return file;
}

// All layers take turns. What `options` leave open is as `offload` says.
Result<std::unique_ptr<FifoRing>> MakeFifoRing(FifoRingOptions options,
                                               const OffloadOptions& offload) {
  options.poison = offload.poison;
  const std::vector<int64_t> bytes(static_cast<size_t>(options.num_blocks), options.block.span());
  LAMINA_ASSIGN_OR_RETURN(const std::shared_ptr<const BlockFile> file,
                          MakeFile(offload.folder, bytes));
  return FifoRing::Create(options, std::make_unique<DiskCopier>(file, 1e9 * offload.gb_per_s),
                          std::make_unique<DiskCopier>(file, 1e9 * offload.gb_per_s));
}

Result<std::unique_ptr<Ring>> MakeFixedFifoRing(int num_layers, int64_t layer_bytes,
                                                const OffloadOptions& offload) {
  FifoRingOptions options;
  options.num_blocks = num_layers;
  options.block = {layer_bytes};
  LAMINA_ASSIGN_OR_RETURN(options.num_slots, SlotsForExpansion(num_layers, offload.expansion));
  LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<FifoRing> ring, MakeFifoRing(options, offload));
  return std::unique_ptr<Ring>(std::move(ring));
}

// Always the same ones do.
Result<std::unique_ptr<Ring>> MakeBlockRing(int num_layers, int64_t layer_bytes,
                                            const OffloadOptions& offload) {
  BlockRingOptions options;
  options.block_bytes.assign(static_cast<size_t>(num_layers), layer_bytes);
  LAMINA_ASSIGN_OR_RETURN(options.outside, FirstOutside(offload, options.block_bytes));
  options.num_buffers = offload.buffers;
  options.poison = offload.poison;
  options.begins_empty = true;
  std::vector<int64_t> in_file;  // what stays in memory is never written there
  for (const bool outside : options.outside) in_file.push_back(outside ? layer_bytes : 0);
  LAMINA_ASSIGN_OR_RETURN(std::shared_ptr<const BlockFile> file, MakeFile(offload.folder, in_file));
  LAMINA_ASSIGN_OR_RETURN(
      std::unique_ptr<BlockRing> ring,
      BlockRing::Create(std::move(options),
                        std::make_unique<DiskCopier>(std::move(file), 1e9 * offload.gb_per_s)));
  return std::unique_ptr<Ring>(std::move(ring));
}

}  // namespace

Result<std::unique_ptr<KvRing>> KvRing::Create(const KvShape& shape, const OffloadOptions& offload,
                                               int64_t capacity_tokens) {
  if (offload.is_elastic()) return CreateElastic(shape, offload, capacity_tokens);
  const int64_t bytes = WholePages(BytesOf(shape, capacity_tokens));
  LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<Ring> ring,
                          offload.expansion > 0
                              ? MakeFixedFifoRing(shape.num_layers, bytes, offload)
                              : MakeBlockRing(shape.num_layers, bytes, offload));
  return std::unique_ptr<KvRing>(new KvRing(std::move(ring), capacity_tokens));
}

// What belongs to a kv_head, of K or of V, is a run of its own: of each the memory behind the
// tokens that there is room for can be given back.
Result<std::unique_ptr<KvRing>> KvRing::CreateElastic(const KvShape& shape,
                                                      const OffloadOptions& offload,
                                                      int64_t capacity_tokens) {
  LAMINA_ASSIGN_OR_RETURN(const ElasticKv kv,
                          ElasticKvOf(offload, shape.num_layers, capacity_tokens));
  const int64_t num_runs = 2 * shape.num_kv_heads;
  const int64_t row_bytes = BytesOf(shape, 1) / num_runs;
  // Runs begin with a page and with a token slot.
  const int64_t unit = std::lcm(row_bytes, BlockFile::kAlignment);
  const int64_t pitch =
      (kv.Tokens(kv.least_inside) * row_bytes + unit - 1) / unit * (unit / row_bytes);
  FifoRingOptions options;
  options.num_blocks = options.num_slots = shape.num_layers;
  options.block = {pitch * row_bytes, num_runs, pitch * row_bytes};
  for (const int64_t run_bytes : LayerBytes(kv, row_bytes))
    options.run_bytes.push_back(WholePages(run_bytes));
  LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<FifoRing> ring,
                          MakeFifoRing(std::move(options), offload));
  auto layers = std::make_unique<ElasticRing>(kv, std::move(ring));
  ElasticRing* const elastic = layers.get();
  return std::unique_ptr<KvRing>(new KvRing(std::move(layers), pitch, elastic));
}

std::byte* KvRing::Use(int layer, bool writes) {
  if (layer != layer_) {
    if (layer_ >= 0) ring_->Leave(layer_, written_);
    const Result<std::byte*> entered = ring_->Enter(layer);
    if (!entered.ok()) {
      LAMINA_LOG_ERROR("K and V of layer {} cannot be had: {}", layer, entered.status().message());
      std::abort();
    }
    layer_ = layer;
    memory_ = *entered;
    written_ = false;
  }
  written_ |= writes;
  return memory_;
}

}  // namespace lamina
