#include "quantize/pack_model.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "compute_node/compute_device.h"
#include "compute_node/packed_file.h"
#include "compute_node/weight_reader.h"
#include "kernels/linear.h"
#include "quantize/safetensors_writer.h"
#include "quantize/unfinished.h"
#include "splitter/weight_blocks.h"

namespace lamina {
namespace {

namespace fs = std::filesystem;

// The weights of one rank.
struct Rank {
  std::unique_ptr<LoadedModel> model;  // which describes it
  WeightReader reader;                 // borrows the model's config
  // Of the matrices that are taken from here, by their ids: where their bytes begin.
  std::map<std::string, uint64_t> offsets;
};

int64_t Aligned(int64_t bytes) {
  return (bytes + kPackedAlignment - 1) / kPackedAlignment * kPackedAlignment;
}

Result<Rank> OpenRank(const PackOptions& options, int rank, WorkerTeam& team) {
  WeightOptions weights;
  weights.model_dir = options.model;
  weights.share = {1, 0, options.num_ranks, rank};
  LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<LoadedModel> model,
                          LoadedModel::Describe(weights.model_dir, weights.share));
  LAMINA_ASSIGN_OR_RETURN(WeightReader reader,
                          WeightReader::Open(model->part(), model->config, weights));
  reader.UnpackOn(team);
  return Rank{std::move(model), std::move(reader), {}};
}

// Lists the matrices of all ranks, slice by slice, and behind them those that are of no single
// slice. Those that several ranks have are taken from the first.
Result<std::vector<SafetensorsWriter::Tensor>> ListMatrices(std::vector<Rank>& ranks) {
  std::vector<SafetensorsWriter::Tensor> tensors;
  std::set<std::string> names;
  uint64_t offset = 0;
  for (Rank& rank : ranks) {
    const std::map<std::string, int> slices =
        SlicesOfMatrices(rank.model->sliced, rank.model->slices());
    LAMINA_ASSIGN_OR_RETURN(std::vector<WeightReader::Named> weights, rank.reader.List());
    std::ranges::stable_sort(weights, {}, [&](const WeightReader::Named& weight) {
      const auto slice = slices.find(weight.id);
      return slice == slices.end() ? std::numeric_limits<int>::max() : slice->second;
    });
    for (const WeightReader::Named& weight : weights) {
      if (weight.role != WeightRole::kMatrix || !IsPackable(weight.format)) continue;
      if (!names.insert(weight.packed_name).second) continue;
      const int64_t bytes =
          Aligned(PackedWeights::SizeBytes(weight.format, weight.shape[0], weight.shape[1]));
      rank.offsets.emplace(weight.id, offset);
      offset += static_cast<uint64_t>(bytes);
      tensors.push_back({weight.packed_name, "U8", {bytes}, static_cast<uint64_t>(bytes)});
    }
  }
  return tensors;
}

Status WriteMatrix(const FoundWeight& found, WorkerTeam& team, SafetensorsWriter& writer) {
  const PackedWeights packed =
      found.quantized ? PackedWeights(*found.quantized, team)
                      : PackedWeights(found.tensor.data.data(), found.tensor.dtype,
                                      found.weight.shape[0], found.weight.shape[1], team);
  // Its memory is whole pages.
  return writer.Write({static_cast<const std::byte*>(packed.data()),
                       static_cast<size_t>(Aligned(packed.size_bytes()))});
}

// Has the file on the disk before it gets its name: a crash must not leave zeros under it.
Status Sync(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool ok = fd >= 0 && fsync(fd) == 0;
  const int error = errno;
  if (fd >= 0) close(fd);
  return ok ? OkStatus() : InvalidArgument(path + " cannot be written: " + std::strerror(error));
}

}  // namespace

Result<PackedCounts> PackModel(const PackOptions& options, WorkerTeam& team) {
  // Before anything is read: files that change meanwhile make the packed one of no use.
  const std::string source = PackedSourceOf(options.model);
  std::vector<Rank> ranks;
  for (int rank = 0; rank < options.num_ranks; ++rank) {
    LAMINA_ASSIGN_OR_RETURN(Rank opened, OpenRank(options, rank, team));
    ranks.push_back(std::move(opened));
  }
  LAMINA_ASSIGN_OR_RETURN(std::vector<SafetensorsWriter::Tensor> tensors, ListMatrices(ranks));
  if (tensors.empty()) return NotFound(options.model + " has no matrices that can be packed");
  PackedCounts counts{.num_matrices = std::ssize(tensors), .path = PackedPath(options.model)};
  for (const SafetensorsWriter::Tensor& tensor : tensors)
    counts.bytes += static_cast<int64_t>(tensor.size_bytes);
  tensors.push_back({kPackedSource, "U8", {std::ssize(source)}, source.size()});

  const Unfinished part(counts.path + ".part");
  LAMINA_ASSIGN_OR_RETURN(
      SafetensorsWriter writer,
      SafetensorsWriter::Create(part.path().string(), tensors, kPackedAlignment));
  int64_t done = 0;
  for (Rank& rank : ranks) {
    for (bool more = true; more;) {
      LAMINA_ASSIGN_OR_RETURN(more, rank.reader.ReadNext([&](const FoundWeight& found) {
        const auto offset = rank.offsets.find(found.id);
        if (found.role != WeightRole::kMatrix || offset == rank.offsets.end()) return OkStatus();
        LAMINA_RETURN_IF_ERROR(writer.Seek(offset->second));
        LAMINA_RETURN_IF_ERROR(WriteMatrix(found, team, writer));
        done += Aligned(
            PackedWeights::SizeBytes(found.format, found.weight.shape[0], found.weight.shape[1]));
        if (options.on_progress) options.on_progress(done, counts.bytes);
        return OkStatus();
      }));
    }
  }
  LAMINA_RETURN_IF_ERROR(writer.Seek(static_cast<uint64_t>(counts.bytes)));
  LAMINA_RETURN_IF_ERROR(writer.Write(std::as_bytes(std::span(source))));
  LAMINA_RETURN_IF_ERROR(writer.Close());
  LAMINA_RETURN_IF_ERROR(Sync(part.path().string()));
  std::error_code error;
  fs::rename(part.path(), counts.path, error);
  if (error) return InvalidArgument(counts.path + " cannot be made: " + error.message());
  return counts;
}

}  // namespace lamina
