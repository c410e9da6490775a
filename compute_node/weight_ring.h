// The matrices of slices whose weights take turns in memory (tiers/block_ring.h): one block for the
// matrices of each slice.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/worker_team.h"
#include "compute_node/weight_reader.h"
#include "kernels/linear.h"
#include "splitter/model_share.h"
#include "splitter/offload_options.h"
#include "splitter/slices.h"
#include "splitter/weight_blocks.h"
#include "tiers/block_file.h"
#include "tiers/block_ring.h"

namespace lamina {

// Use while loading: Create, Store for each matrix that it Has, Start. Then Enter and Leave around
// each slice. Thread: one owner.
class WeightRing {
 public:
  // Plans the blocks of the slices of `range` and makes their file. `named`: all weights, as List
  // gives them. Matrices that several slices use, or that are also a table, are none of its own.
  // If `packed`, which may be null, has the blocks and is on the disk that the options name, it is
  // read in place of another file. Errors are those of BlockFile::Create.
  static Result<std::unique_ptr<WeightRing>> Create(const SlicedModel& model, SliceRange range,
                                                    const std::vector<WeightReader::Named>& named,
                                                    const OffloadOptions& options,
                                                    const PackedFile* packed);

  bool Has(const std::string& id) const { return matrices_.contains(id); }
  // Packs a matrix and writes it to the file, unless it is there. `weights` stands for it, is
  // borrowed, owns no memory, and knows its panels while its slice is entered. The error is that of
  // the disk.
  Status Store(const FoundWeight& found, WorkerTeam& team, PackedWeights& weights);
  // All are stored. Errors are those of FirstInterval and BlockRing::Create.
  Status Start();

  // Has the matrices of a slice in memory until Leave, and waits for that. Ends the process if they
  // cannot be read: no step could go on, and its peers notice that it is gone. REQUIRES: started.
  void Enter(int slice);
  void Leave(int slice);

  // The interval that it began with. Another one from now on, see BlockRing::SetOutside, unless it
  // is fixed or there is no memory for that.
  int first_interval() const { return first_interval_; }
  void SetInterval(int interval);

  // As BlockRing's.
  void AddVisitor() { ring_->AddVisitor(); }
  void RemoveVisitor() { ring_->RemoveVisitor(); }

  const RingStats& stats() const { return ring_->stats(); }

 private:
  struct Matrix {
    int block = 0;
    int64_t offset = 0;                // in the block
    int64_t size = 0;                  // there
    std::optional<int64_t> packed_at;  // in the packed file, if it has the matrix
    PackedWeights* weights = nullptr;  // once it is stored
  };
  // Those of the slice's matrices that may lie outside make the block.
  void PlanBlock(size_t block, const std::vector<const WeightReader::Named*>& matrices,
                 const PackedFile* packed);
  // The blocks in the packed file; null if it does not have all of them, each in one piece, or is
  // on another disk.
  std::unique_ptr<BlockFile> FindBlocks(const PackedFile& packed) const;
  WeightRing(SliceRange range, const OffloadOptions& options) : range_(range), options_(options) {}

  const SliceRange range_;
  const OffloadOptions options_;
  std::map<std::string, Matrix> matrices_;  // by WeightRef::id
  std::vector<std::vector<Matrix*>> blocks_;
  std::vector<int64_t> block_bytes_;
  int first_interval_ = 0;
  std::shared_ptr<const BlockFile> file_;
  bool is_packed_ = false;           // the file is the model's packed one
  std::unique_ptr<BlockRing> ring_;  // null before Start
};

}  // namespace lamina
