#include "quantize/pack_model.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "compute_node/compute_device.h"
#include "compute_node/pack_weight.h"
#include "compute_node/packed_file.h"
#include "compute_node/weight_reader.h"
#include "kernels/linear.h"
#include "quantize/safetensors_writer.h"
#include "quantize/unfinished.h"
#include "splitter/weight_blocks.h"

namespace lamina {
namespace {

// Where the bytes of matrices begin, by their ids.
using Offsets = std::map<std::string, uint64_t>;

struct Layout {
  std::vector<SafetensorsWriter::Tensor> tensors;
  std::vector<Offsets> ranks;  // of the matrices that are taken from each rank
  int64_t bytes = 0;
  std::string source;
};

// The weights of one rank.
struct Rank {
  std::unique_ptr<LoadedModel> model;  // which describes it
  WeightReader reader;                 // borrows the model's config
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
  return Rank{std::move(model), std::move(reader)};
}

// Lists the matrices of all ranks, slice by slice, and behind them those that are of no single
// slice. Those that several ranks have are taken from the first.
Result<Layout> PlanFile(const PackOptions& options, WorkerTeam& team) {
  Layout layout;
  std::set<std::string> names;
  for (int number = 0; number < options.num_ranks; ++number) {
    LAMINA_ASSIGN_OR_RETURN(const Rank rank, OpenRank(options, number, team));
    if (number == 0) layout.source = rank.reader.PackedSource();
    Offsets& offsets = layout.ranks.emplace_back();
    const std::map<std::string, int> slices =
        SlicesOfMatrices(rank.model->sliced, rank.model->slices());
    LAMINA_ASSIGN_OR_RETURN(std::vector<WeightReader::Named> weights, rank.reader.List());
    std::ranges::stable_sort(weights, {}, [&](const WeightReader::Named& weight) {
      const auto slice = slices.find(weight.id);
      return slice == slices.end() ? std::numeric_limits<int>::max() : slice->second;
    });
    for (const WeightReader::Named& weight : weights) {
      if (weight.role != WeightRole::kMatrix || !IsPackable(weight.format) ||
          !names.insert(weight.packed_name).second)
        continue;
      const int64_t bytes =
          Aligned(PackedWeights::SizeBytes(weight.format, weight.shape[0], weight.shape[1]));
      offsets.emplace(weight.id, static_cast<uint64_t>(layout.bytes));
      layout.tensors.push_back({weight.packed_name, "U8", {bytes}, static_cast<uint64_t>(bytes)});
      layout.bytes += bytes;
    }
  }
  return layout;
}

// Packs the matrices of one rank and writes them to their places. Calls on_packed with the bytes of
// each.
Status WriteRank(const PackOptions& options, int number, const Offsets& offsets, WorkerTeam& team,
                 SafetensorsWriter& writer, const std::function<void(int64_t)>& on_packed) {
  LAMINA_ASSIGN_OR_RETURN(Rank rank, OpenRank(options, number, team));
  rank.reader.SkipUnless([&](const WeightReader::Named& weight) {
    return weight.role == WeightRole::kMatrix && offsets.contains(weight.id);
  });
  for (bool more = true; more;) {
    LAMINA_ASSIGN_OR_RETURN(more, rank.reader.ReadNext([&](const FoundWeight& found) {
      LAMINA_RETURN_IF_ERROR(writer.Seek(offsets.at(found.id)));
      const PackedWeights packed = Pack(found, team);
      const int64_t bytes = Aligned(packed.size_bytes());  // its memory is whole pages
      LAMINA_RETURN_IF_ERROR(
          writer.Write({static_cast<const std::byte*>(packed.data()), static_cast<size_t>(bytes)}));
      on_packed(bytes);
      return OkStatus();
    }));
  }
  return OkStatus();
}

// One command at a time packs a model: they would write the same file.
class ModelLock {
 public:
  static Result<ModelLock> Take(const std::string& model) {
    ModelLock lock(open(model.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (lock.fd_ < 0) return NotFound(model + " cannot be opened: " + std::strerror(errno));
    if (flock(lock.fd_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
      return TryAgain(model + " is being packed by another command already");
    return lock;
  }
  ~ModelLock() {
    if (fd_ >= 0) close(fd_);
  }
  ModelLock(ModelLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ModelLock& operator=(ModelLock&&) = delete;

 private:
  explicit ModelLock(int fd) : fd_(fd) {}
  int fd_ = -1;
};

}  // namespace

Result<PackedCounts> PackModel(const PackOptions& options, WorkerTeam& team) {
  LAMINA_ASSIGN_OR_RETURN(const ModelLock lock, ModelLock::Take(options.model));
  LAMINA_ASSIGN_OR_RETURN(Layout layout, PlanFile(options, team));
  if (layout.tensors.empty())
    return NotFound(options.model + " has no matrices that can be packed");
  const PackedCounts counts{.num_matrices = std::ssize(layout.tensors),
                            .bytes = layout.bytes,
                            .path = PackedPath(options.model)};
  const std::string& source = layout.source;
  layout.tensors.push_back({kPackedSource, "U8", {std::ssize(source)}, source.size()});

  const Unfinished part(counts.path + ".part");
  LAMINA_ASSIGN_OR_RETURN(
      SafetensorsWriter writer,
      SafetensorsWriter::Create(part.path().string(), layout.tensors, kPackedAlignment));
  int64_t done = 0;
  for (int number = 0; number < options.num_ranks; ++number) {
    const Offsets& offsets = layout.ranks[static_cast<size_t>(number)];
    LAMINA_RETURN_IF_ERROR(WriteRank(options, number, offsets, team, writer, [&](int64_t bytes) {
      done += bytes;
      if (options.on_progress) options.on_progress(done, counts.bytes);
    }));
  }
  LAMINA_RETURN_IF_ERROR(writer.Seek(static_cast<uint64_t>(counts.bytes)));
  LAMINA_RETURN_IF_ERROR(writer.Write(std::as_bytes(std::span(source))));
  LAMINA_RETURN_IF_ERROR(writer.Close());
  LAMINA_RETURN_IF_ERROR(part.Finish(counts.path));
  return counts;
}

}  // namespace lamina
