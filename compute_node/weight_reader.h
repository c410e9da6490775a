// Reads the weights that a graph names, from a checkpoint or made up, one after the other. Used by
// those who keep weights in a form of their own: Weights for the CPU, and GPUs.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "compute_node/gguf_checkpoint.h"
#include "compute_node/packed_file.h"
#include "compute_node/quantized_checkpoint.h"
#include "compute_node/safetensors.h"
#include "kernels/weight_format.h"
#include "model/graph.h"
#include "model/model_config.h"
#include "splitter/model_share.h"
#include "splitter/weight_blocks.h"
#include "wire/session_messages.h"
#include "wire/settings.h"

namespace lamina {

struct WeightOptions {
  std::string model_dir;  // or a GGUF file
  // With kDummy the weights are random, of the right shapes, and no checkpoint is read.
  LoadFormat load_format = LoadFormat::kAuto;
  uint64_t dummy_seed = 0;
  ModelShare share = {};
};

// One weight, as ReadNext gives it. Borrowed for the call, except for `made`.
struct FoundWeight {
  WeightRole role = WeightRole::kMatrix;
  const std::string& id;  // WeightRef::id
  const WeightRef& weight;
  TensorView tensor;            // points into the checkpoint's files, or into `made`
  std::vector<std::byte> made;  // empty if the tensor is in the checkpoint; may be moved away
  const QuantizedMatrix* quantized = nullptr;  // of a quantized matrix, which has no `tensor`
  // Of a matrix that is packed already, which has nothing of the above: PackedFile::Find's.
  std::span<const std::byte> panels = {};
  WeightFormat format = DType::kBF16;  // of a matrix
};

// Use: Open, ReadNext until there is nothing left, and TakeCheckpoint if tensors are still used
// after that. Thread: one owner.
class WeightReader {
 public:
  // Opens the checkpoint, unless weights are made up. Borrows the config. kNotFound if
  // there is none, kUnimplemented if it has only pytorch_model.bin, kCorrupt if a file is broken;
  // errors of List.
  static Result<WeightReader> Open(const Graph& graph, const ModelConfig& config,
                                   const WeightOptions& options);

  // Lets `team` unpack codes of GGUF files, instead of the thread that reads. Borrows it.
  void UnpackOn(WorkerTeam& team) { team_ = &team; }

  // Gives the panels of matrices that the model's packed file has, if there is one; one that cannot
  // be used is named in the log. Not for weights that are made up.
  void UsePacked();
  // What a packed file of this model says (PackedSourceOf). REQUIRES: weights are not made up.
  std::string PackedSource() const;
  const PackedFile* packed() const { return packed_.get(); }  // null if there is none

  // What ReadNext will give, in the same order, so that memory can be allocated before.
  struct Named {
    WeightRole role = WeightRole::kMatrix;
    std::string id;
    DType dtype = DType::kBF16;
    WeightFormat format = DType::kBF16;  // of matrices; others are plain
    std::vector<int64_t> shape;
    int64_t num_elements = 0;
    std::string packed_name;     // of matrices: PackedName
    int64_t size_bytes() const;  // as ReadNext gives it
  };
  Result<std::vector<Named>> List() const;

  // Leaves out weights that `wanted` does not want.
  void SkipUnless(std::function<bool(const Named&)> wanted) { wanted_ = std::move(wanted); }

  // Gives the next weight, or part of a weight, that the graph names to `take`; each is given once
  // per role. Returns whether there are more. kNotFound if a tensor is missing and
  // kInvalidArgument if its shape is wrong, with its name, its file and both shapes; errors of
  // FindQuantized, ReadQuantized, ReadCodes and `take`.
  Result<bool> ReadNext(const std::function<Status(FoundWeight)>& take);

  // How many matrices the packed file had.
  int num_packed() const { return num_packed_; }
  // Bytes of all that was given, as it was given.
  int64_t size_bytes() const { return size_bytes_; }
  WeightsProgress progress() const { return {size_bytes_, total_bytes_}; }

  // Gives away the checkpoint, which the tensors that are not `made` point into. Null if all are
  // made.
  std::unique_ptr<Checkpoint> TakeCheckpoint() { return std::move(checkpoint_); }

 private:
  WeightReader(const ModelConfig& config, const WeightOptions& options)
      : config_(config), options_(options) {}
  Status OpenFiles();
  Result<GgufWeight> FindGguf(const WeightRef& weight) const;
  Result<TensorView> FindWhole(const WeightRef& weight) const;
  // The whole of a weight that lies in pieces, joined in `joined`.
  Result<TensorView> JoinPieces(const WeightRef& weight, std::vector<std::byte>& joined) const;
  Result<std::optional<QuantizedSource>> FindCodes(WeightRole role, const WeightRef& weight) const;
  Result<TensorView> Find(const WeightRef& weight, std::vector<std::byte>& made) const;
  std::string PackCommand() const;
  void FindPacked(const Named& listed, FoundWeight& found);
  Status ReadGguf(FoundWeight& found);
  Status Read(FoundWeight& found);

  const ModelConfig& config_;
  WeightOptions options_;
  // At most one of the two.
  std::unique_ptr<Checkpoint> checkpoint_;
  std::unique_ptr<GgufCheckpoint> gguf_;
  std::unique_ptr<PackedFile> packed_;  // may be null
  WorkerTeam* team_ = nullptr;
  QuantizedMatrix codes_;  // of the weight that was read last; its memory serves the next one
  using Key = std::pair<std::string, WeightRole>;
  std::map<Key, WeightRef> named_;
  std::map<Key, Named> listed_;               // what List gives of each
  std::function<bool(const Named&)> wanted_;  // null: all of them
  std::optional<Key> last_;                   // that was given or left out
  int num_packed_ = 0, num_packable_ = 0;
  int64_t size_bytes_ = 0, total_bytes_ = 0;
};

}  // namespace lamina
