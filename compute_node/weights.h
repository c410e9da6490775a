// The model's weights in this machine's memory, in the form that the CPU's kernels need, found by
// name.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/dtype.h"
#include "base/status.h"
#include "base/worker_team.h"
#include "compute_node/weight_reader.h"
#include "kernels/linear.h"
#include "model/graph.h"
#include "model/model_config.h"
#include "splitter/model_share.h"
#include "splitter/offload_options.h"
#include "splitter/slices.h"

namespace lamina {

class WeightRing;

// Immutable once loaded. Thread: any; the owner of the ring, if there is one.
class Weights {
  // The entry of one of the maps below. Most weights have no part, and their id is their name,
  // which need not be copied.
  template <typename Map>
  static const auto& Of(const Map& map, const WeightRef& weight) {
    return weight.part.empty() ? map.at(weight.name) : map.at(weight.id());
  }

 public:
  class Loading;

  // Loads every weight that the graph names. Errors are those of Loading.
  static Result<std::unique_ptr<Weights>> Load(const Graph& graph, const ModelConfig& config,
                                               const WeightOptions& options, WorkerTeam& team);
  ~Weights();

  // A matrix, a vector, or the rows of an embedding table. REQUIRES: the graph names the weight in
  // that role.
  const PackedWeights& Matrix(const WeightRef& weight) const { return Of(matrices_, weight); }
  const std::vector<float>& Vector(const WeightRef& weight) const { return Of(vectors_, weight); }
  struct Table {
    const void* data = nullptr;  // [vocab, dim]
    DType dtype = DType::kBF16;
  };
  const Table& Rows(const WeightRef& weight) const { return Of(tables_, weight); }

  int64_t size_bytes() const { return size_bytes_; }  // as stored in the checkpoint
  // How many matrices the model's packed file had (packed_file.h).
  int num_packed() const { return num_packed_; }

  // Null if all weights are in memory. Otherwise the matrices of a slice may be used only while it
  // is entered there.
  WeightRing* ring() const { return ring_.get(); }

 private:
  Weights();
  Status Take(FoundWeight found, WorkerTeam& team);

  // Null for dummy weights. Embedding tables are not copied: they point into it, or into
  // made_tables_.
  std::unique_ptr<Checkpoint> checkpoint_;
  // All maps are by WeightRef::id().
  std::unordered_map<std::string, std::vector<std::byte>> made_tables_;
  std::unordered_map<std::string, PackedWeights> matrices_;
  std::unordered_map<std::string, std::vector<float>> vectors_;
  std::unordered_map<std::string, Table> tables_;
  int64_t size_bytes_ = 0;
  int num_packed_ = 0;
  std::unique_ptr<WeightRing> ring_;
};

// Weights that are being loaded, one after the other. Thread: one owner.
class Weights::Loading {
 public:
  // Begins to load every weight that the graph names. Borrows the config and the team. Errors, also
  // of Continue, are those of WeightReader (weight_reader.h): kInvalidArgument for an unknown load
  // format or a wrong shape, kNotFound for a missing file or tensor, kCorrupt for a broken file,
  // kUnimplemented for a format or dtype that is not supported.
  static Result<Loading> Start(const Graph& graph, const ModelConfig& config,
                               const WeightOptions& options, WorkerTeam& team);
  // The same, but the matrices of some slices lie outside (weight_ring.h). Also errors of
  // WeightRing's.
  static Result<Loading> StartInTurns(const SlicedModel& model, SliceRange range,
                                      const Graph& graph, const ModelConfig& config,
                                      const WeightOptions& options, const OffloadOptions& offload,
                                      WorkerTeam& team);

  // Loads one more. Returns whether there are more; false once all are there, and then only Take is
  // left to call.
  Result<bool> Continue();
  WeightsProgress progress() const { return reader_.progress(); }
  std::unique_ptr<Weights> Take() { return std::move(weights_); }

 private:
  Loading(WeightReader reader, WorkerTeam& team);

  WeightReader reader_;
  WorkerTeam* team_;
  std::unique_ptr<Weights> weights_;
};

}  // namespace lamina
