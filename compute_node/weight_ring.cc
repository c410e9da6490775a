#include "compute_node/weight_ring.h"

#include <sys/stat.h>

#include <cstdlib>
#include <optional>
#include <utility>

#include "base/log.h"
#include "compute_node/pack_weight.h"
#include "tiers/disk_copier.h"

namespace lamina {
namespace {

static_assert(kPackedAlignment == BlockFile::kAlignment);

int64_t Aligned(int64_t bytes) {
  return (bytes + BlockFile::kAlignment - 1) / BlockFile::kAlignment * BlockFile::kAlignment;
}

bool AreOnOneDisk(const std::string& path, const std::string& folder) {
  struct stat one {
  }, other{};
  return stat(path.c_str(), &one) == 0 && stat(folder.c_str(), &other) == 0 &&
         one.st_dev == other.st_dev;
}

}  // namespace

Result<std::unique_ptr<WeightRing>> WeightRing::Create(
    const SlicedModel& model, SliceRange range, const std::vector<WeightReader::Named>& named,
    const OffloadOptions& options, const PackedFile* packed) {
  std::unique_ptr<WeightRing> ring(new WeightRing(range, options));
  const std::map<std::string, int> slices = SlicesOfMatrices(model, range);
  const auto num_blocks = static_cast<size_t>(range.end - range.first);
  ring->blocks_.resize(num_blocks);
  ring->block_bytes_.resize(num_blocks);
  std::vector<std::vector<const WeightReader::Named*>> matrices(num_blocks);
  for (const WeightReader::Named& weight : named) {
    const auto slice = slices.find(weight.id);
    if (weight.role == WeightRole::kMatrix && slice != slices.end())
      matrices[static_cast<size_t>(slice->second - range.first)].push_back(&weight);
  }
  for (size_t block = 0; block < num_blocks; ++block)
    ring->PlanBlock(block, matrices[block], packed);
  if (packed != nullptr) ring->file_ = ring->FindBlocks(*packed);
  ring->is_packed_ = ring->file_ != nullptr;
  if (!ring->is_packed_) {
    if (packed != nullptr) {
      LAMINA_LOG_INFO("what lies outside is not read from {}, but from another file in {}",
                      packed->path(), options.folder);
    }
    LAMINA_ASSIGN_OR_RETURN(ring->file_, BlockFile::Create(options.folder, ring->block_bytes_));
  }
  if (!ring->file_->is_direct()) {
    LAMINA_LOG_WARN(
        "the file system of {} does not let reads pass by the system's cache: weights that lie "
        "outside take memory there while nobody else needs it",
        ring->is_packed_ ? packed->path() : options.folder);
  }
  return ring;
}

void WeightRing::PlanBlock(size_t block, const std::vector<const WeightReader::Named*>& matrices,
                           const PackedFile* packed) {
  std::vector<int64_t> bytes;
  for (const WeightReader::Named* weight : matrices) {
    bytes.push_back(
        Aligned(PackedWeights::SizeBytes(weight->format, weight->shape[0], weight->shape[1])));
  }
  const std::vector<bool> outside = OutsideByPortion(bytes, options_.portion);
  for (size_t i = 0; i < matrices.size(); ++i) {
    if (!outside[i]) continue;
    const WeightReader::Named& named = *matrices[i];
    Matrix& matrix = matrices_[named.id];
    matrix.block = static_cast<int>(block);
    matrix.offset = block_bytes_[block];
    matrix.size = bytes[i];
    if (packed != nullptr)
      matrix.packed_at = packed->Locate(named.packed_name, named.format, named.shape);
    block_bytes_[block] += matrix.size;
    blocks_[block].push_back(&matrix);
  }
}

std::unique_ptr<BlockFile> WeightRing::FindBlocks(const PackedFile& packed) const {
  if (!AreOnOneDisk(packed.own_path(), options_.folder)) return nullptr;
  std::vector<BlockFile::Place> places;
  for (const std::vector<Matrix*>& block : blocks_) {
    BlockFile::Place& place = places.emplace_back();
    for (const Matrix* matrix : block) {
      if (!matrix->packed_at) return nullptr;
      if (place.bytes == 0) place.begin = *matrix->packed_at;
      if (place.begin + place.bytes != matrix->packed_at) return nullptr;
      place.bytes += matrix->size;
    }
  }
  Result<std::unique_ptr<BlockFile>> file =
      BlockFile::OpenPlaces(packed.own_path(), packed.path(), std::move(places));
  return file.ok() ? *std::move(file) : nullptr;
}

Status WeightRing::Store(const FoundWeight& found, WorkerTeam& team, PackedWeights& weights) {
  Matrix& matrix = matrices_.at(found.id);
  matrix.weights = &weights;
  if (is_packed_) return OkStatus();
  const PackedWeights packed = Pack(found, team);
  // Its memory is whole pages.
  return file_->Write(matrix.block, matrix.offset, static_cast<const std::byte*>(packed.data()),
                      Aligned(packed.size_bytes()));
}

Status WeightRing::Start() {
  BlockRingOptions options;
  options.block_bytes = block_bytes_;
  LAMINA_ASSIGN_OR_RETURN(first_interval_, FirstInterval(options_, block_bytes_));
  LAMINA_ASSIGN_OR_RETURN(options.outside, FirstOutside(options_, block_bytes_));
  options.num_buffers = options_.buffers;
  options.poison = options_.poison;
  LAMINA_ASSIGN_OR_RETURN(
      ring_, BlockRing::Create(std::move(options),
                               std::make_unique<DiskCopier>(file_, 1e9 * options_.gb_per_s)));
  return OkStatus();
}

void WeightRing::Enter(int slice) {
  const int block = slice - range_.first;
  const Result<std::byte*> bytes = ring_->Enter(block);
  if (!bytes.ok()) {
    LAMINA_LOG_ERROR("the weights of slice {} cannot be had: {}", slice, bytes.status().message());
    std::abort();
  }
  for (const Matrix* matrix : blocks_[static_cast<size_t>(block)])
    matrix->weights->PointTo(*bytes + matrix->offset);
}

void WeightRing::SetInterval(int interval) {
  if (MayChangeTo(interval, options_, block_bytes_))
    ring_->SetOutside(OutsideByInterval(static_cast<int>(blocks_.size()), interval));
}

void WeightRing::Leave(int slice) { ring_->Leave(slice - range_.first); }

}  // namespace lamina
