// Reads what weights a graph names, from a checkpoint or made up, one after the other: for whoever
// keeps them in a form of its own.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "compute_node/safetensors.h"
#include "model/graph.h"
#include "model/model_config.h"
#include "splitter/model_share.h"

namespace lamina {

struct WeightOptions {
  std::string model_dir;
  // Auto | safetensors | dummy (random weights from the shapes alone; no file is read).
  std::string load_format = "auto";
  uint64_t dummy_seed = 0;
  ModelShare share = {};
  // Called on the loading thread, after each tensor.
  std::function<void(int64_t loaded_bytes, int64_t total_bytes)> on_progress;
  // Asked there too: true ends the loading with kTryAgain; null: it goes on.
  std::function<bool()> interrupted = nullptr;
};

// What operators do with a weight: multiply by it, take it element by element, or look rows up.
enum class WeightRole { kMatrix, kVector, kTable };

struct FoundWeight {
  WeightRole role = WeightRole::kMatrix;
  const std::string& id;  // WeightRef::id
  const WeightRef& weight;
  TensorView tensor;            // lies in the checkpoint, or in `made`
  std::vector<std::byte> made;  // moves with the tensor's data
};

// Thread: one owner.
class WeightReader {
 public:
  // Borrows config and options. kInvalidArgument: no such load format. Else as Checkpoint::Open.
  static Result<WeightReader> Open(const Graph& graph, const ModelConfig& config,
                                   const WeightOptions& options);

  // What ReadAll will give, in its order.
  struct Named {
    WeightRole role = WeightRole::kMatrix;
    std::string id;
    DType dtype = DType::kBF16;
    int64_t num_elements = 0;
  };
  Result<std::vector<Named>> List() const;

  // Gives every weight, or part of one, that the graph names to `take`, once per role, and returns
  // their bytes as stored in the checkpoint. kNotFound and kInvalidArgument name the tensor, its
  // file, its shape and the expected one; and what `take` returns.
  Result<int64_t> ReadAll(const std::function<Status(FoundWeight)>& take);

  // Of tensors that are not `made`. Null for made-up weights.
  std::unique_ptr<Checkpoint> TakeCheckpoint() { return std::move(checkpoint_); }

 private:
  WeightReader(const ModelConfig& config, const WeightOptions& options)
      : config_(config), options_(options) {}
  Result<TensorView> FindWhole(const WeightRef& weight) const;
  Result<TensorView> Find(const WeightRef& weight, std::vector<std::byte>& made) const;

  const ModelConfig& config_;
  const WeightOptions& options_;
  std::unique_ptr<Checkpoint> checkpoint_;
  std::map<std::pair<std::string, WeightRole>, WeightRef> named_;
};

}  // namespace lamina
