#include "compute_node/weight_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "compute_node/weight_part.h"
#include "kernels/elementwise.h"
#include "kernels/linear.h"

namespace lamina {
namespace {

// Each weight that the graph names, once per role (a tied head is a table and a matrix).
std::map<std::pair<std::string, WeightRole>, WeightRef> NamedWeights(const Graph& graph) {
  std::map<std::pair<std::string, WeightRole>, WeightRef> named;
  for (const Op& op : graph.ops) {
    for (const WeightRef& weight : op.weights) {
      named.emplace(std::pair(weight.id(), RoleOf(op, weight)), weight);
    }
  }
  return named;
}

// The codes of a matrix in a GGUF file; nothing if it holds numbers.
std::optional<WeightFormat> GgufCodes(WeightRole role, const WeightRef& weight,
                                      const GgufWeight& found) {
  return role == WeightRole::kMatrix ? CodeFormat(found, weight) : std::nullopt;
}

int64_t NumElements(const std::vector<int64_t>& shape) {
  int64_t n = 1;
  for (const int64_t size : shape) n *= size;
  return n;
}

uint64_t Mix(uint64_t x) {  // SplitMix64's finaliser (Steele, Lea, Flood 2014)
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// FNV-1a (Fowler, Noll, Vo). Not std::hash, which is another one in each standard library: nodes
// that share a model may be built with different ones.
uint64_t HashOf(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

// Calls visit(first, count) for each run of consecutive elements of the whole tensor that make up
// the part. A vector has rows of 1.
template <typename Visit>
void ForEachRun(const WeightRef& weight, Visit visit) {
  const bool is_matrix = weight.shape.size() == 2;
  const int64_t rows = weight.shape[0], width = is_matrix ? weight.shape[1] : 1;
  const int64_t whole_width = is_matrix ? WholeShape(weight)[1] : 1,
                first_column = is_matrix ? FirstOf(weight, 1) : 0;
  const int64_t block = weight.blocks.size > 0 ? weight.blocks.size : rows;
  for (int64_t done = 0; done < rows; done += block) {
    const int64_t first = RowOf(weight, done), count = std::min(block, rows - done);
    if (width == whole_width) {
      visit(first * whole_width, count * width);
      continue;
    }
    for (int64_t row = first; row < first + count; ++row)
      visit(row * whole_width + first_column, width);
  }
}

// Made-up weights. Matrices are uniform around 0 with variance 1 / width (the bound is sqrt(3 /
// width)), which keeps the activations of a random model near 1. Scales of norms become 1, biases
// are 0. A part has the values that it has in the whole tensor, so the weights do not depend on
// how many ranks share the model.
std::vector<std::byte> DummyTensor(const WeightRef& weight, uint64_t seed, DType dtype) {
  std::vector<std::byte> bytes(static_cast<size_t>(NumElements(weight.shape)) * ElementSize(dtype));
  const uint64_t name_seed = Mix(seed + HashOf(weight.name));
  const int64_t before = weight.stack.index * NumElements(WholeShape(weight));
  const float spread =
      weight.shape.size() == 2 ? std::sqrt(3.0f / static_cast<float>(WholeShape(weight)[1])) : 0.0f;
  // A vector that is no bias is the scale of a norm, or sinks. `plus` is added when it is loaded.
  const bool scales = weight.shape.size() == 1 && !weight.name.ends_with("bias");
  const float centre = scales ? 1.0f - weight.plus : 0.0f;
  constexpr int64_t kBlock = 4096;
  std::vector<float> block(kBlock);
  std::byte* out = bytes.data();
  ForEachRun(weight, [&](int64_t first, int64_t n) {
    first += before;
    for (int64_t begin = first; begin < first + n; begin += kBlock) {
      const int64_t count = std::min(kBlock, first + n - begin);
      for (int64_t i = 0; i < count; ++i) {
        // Uniform in [-1, 1): the hash's upper 24 bits, as many as a float has.
        const auto unit =
            static_cast<float>(Mix(name_seed + static_cast<uint64_t>(begin + i)) >> 40) * 0x1p-23f -
            1.0f;
        block[static_cast<size_t>(i)] = centre + spread * unit;
      }
      ConvertFromFloat(block.data(), count, dtype, out);
      out += static_cast<size_t>(count) * ElementSize(dtype);
    }
  });
  return bytes;
}

// Copies the part of a tensor whose axes the checkpoint holds the other way round.
void CopyTransposed(const WeightRef& weight, const TensorView& whole,
                    std::vector<std::byte>& copy) {
  const size_t element = ElementSize(whole.dtype);
  const int64_t rows = WholeShape(weight)[0], width = WholeShape(weight)[1];
  copy.resize(static_cast<size_t>(NumElements(weight.shape)) * element);
  std::byte* out = copy.data();
  ForEachRun(weight, [&](int64_t first, int64_t n) {
    for (int64_t i = first; i < first + n; ++i, out += element) {
      std::memcpy(out,
                  whole.data.data() + static_cast<size_t>(i % width * rows + i / width) * element,
                  element);
    }
  });
}

// The bytes of the part of a tensor. They are borrowed from `whole` if they are in one piece there;
// otherwise they are gathered in `copy`.
std::span<const std::byte> PartOf(const WeightRef& weight, const TensorView& whole,
                                  std::vector<std::byte>& copy) {
  const size_t element = ElementSize(whole.dtype);
  if (weight.transposed) {
    CopyTransposed(weight, whole, copy);
    return copy;
  }
  std::span<const std::byte> part;
  ForEachRun(weight, [&](int64_t first, int64_t n) {
    part =
        whole.data.subspan(static_cast<size_t>(first) * element, static_cast<size_t>(n) * element);
    if (n < NumElements(weight.shape)) copy.insert(copy.end(), part.begin(), part.end());
  });
  return copy.empty() ? part : std::span<const std::byte>(copy);
}

// Adds to an error which architecture wants the tensor, and what may be wrong.
Status MissingWeight(const Status& status, const std::string& name, const ModelConfig& config) {
  std::string message =
      status.message() + "; " + config.architecture + ", the model's architecture, has it";
  if (status.code() == StatusCode::kNotFound && name == "lm_head.weight") {
    message +=
        ". If the model's head is its embedding, config.json needs \"tie_word_embeddings\": true";
  }
  return {status.code(), std::move(message)};
}

}  // namespace

Result<WeightReader> WeightReader::Open(const Graph& graph, const ModelConfig& config,
                                        const WeightOptions& options) {
  WeightReader reader(config, options);
  reader.named_ = NamedWeights(graph);
  if (options.load_format != LoadFormat::kDummy) LAMINA_RETURN_IF_ERROR(reader.OpenFiles());
  LAMINA_ASSIGN_OR_RETURN(std::vector<Named> all, reader.List());
  for (Named& one : all) {
    reader.total_bytes_ += one.size_bytes();
    Key key(one.id, one.role);
    reader.listed_.emplace(std::move(key), std::move(one));
  }
  return reader;
}

void WeightReader::UsePacked() {
  if (options_.load_format == LoadFormat::kDummy) return;
  Result<std::unique_ptr<PackedFile>> packed = PackedFile::Open(options_.model_dir, PackedSource());
  if (packed.ok())
    packed_ = *std::move(packed);
  else
    LAMINA_LOG_WARN("{}; {} makes it anew", packed.status().message(), PackCommand());
}

std::string WeightReader::PackedSource() const {
  if (gguf_ != nullptr) return PackedSourceOf(GgufShardPaths(options_.model_dir));
  std::vector<std::string> paths = checkpoint_->paths();
  paths.push_back(options_.model_dir + "/config.json");
  return PackedSourceOf(paths);
}

std::string WeightReader::PackCommand() const {
  const int ranks = options_.share.num_ranks;
  return fmt::format("`lamina pack \"{}\"{}`", options_.model_dir,
                     ranks > 1 ? fmt::format(" --tensor-parallel-size {}", ranks) : "");
}

void WeightReader::FindPacked(const Named& listed, FoundWeight& found) {
  if (packed_ == nullptr || listed.role != WeightRole::kMatrix || !IsPackable(listed.format))
    return;
  found.panels = packed_->Find(listed.packed_name, listed.format, listed.shape);
  num_packed_ += !found.panels.empty();
  ++num_packable_;
}

Status WeightReader::OpenFiles() {
  if (!IsGgufPath(options_.model_dir)) {
    LAMINA_ASSIGN_OR_RETURN(checkpoint_, Checkpoint::Open(options_.model_dir));
    return OkStatus();
  }
  LAMINA_ASSIGN_OR_RETURN(gguf_, GgufCheckpoint::Open(options_.model_dir, config_));
  for (auto& [key, weight] : named_) weight = AsInGguf(std::move(weight));
  return OkStatus();
}

int64_t WeightReader::Named::size_bytes() const {
  return format.is_quantized() ? PackedWeights::SizeBytes(format, shape[0], shape[1])
                               : num_elements * static_cast<int64_t>(ElementSize(dtype));
}

Result<GgufWeight> WeightReader::FindGguf(const WeightRef& weight) const {
  Result<GgufWeight> found = gguf_->Find(weight);
  if (!found.ok()) return MissingWeight(found.status(), weight.name, config_);
  return found;
}

Result<TensorView> WeightReader::FindWhole(const WeightRef& weight) const {
  std::vector<int64_t> stored = WholeShape(weight);
  if (weight.transposed) std::ranges::reverse(stored);
  const auto& [size, index] = weight.stack;
  if (size > 0) stored.insert(stored.begin(), size);
  Result<TensorView> found = checkpoint_->Find(weight.name, stored);
  if (!found.ok()) return MissingWeight(found.status(), weight.name, config_);
  if (size > 0) {
    const size_t bytes = found->data.size() / static_cast<size_t>(size);
    found->data = found->data.subspan(static_cast<size_t>(index) * bytes, bytes);
  }
  return found;
}

Result<TensorView> WeightReader::JoinPieces(const WeightRef& weight,
                                            std::vector<std::byte>& joined) const {
  WeightRef piece;
  piece.shape = {WholeShape(weight)[0] / std::ssize(weight.pieces)};
  TensorView whole;
  for (const std::string& name : weight.pieces) {
    piece.name = name;
    LAMINA_ASSIGN_OR_RETURN(const TensorView found, FindWhole(piece));
    if (!joined.empty() && found.dtype != whole.dtype) {
      return InvalidArgument("the tensors " + weight.pieces.front() + " and " + name +
                             " must be of the same dtype");
    }
    whole.dtype = found.dtype;
    joined.insert(joined.end(), found.data.begin(), found.data.end());
  }
  whole.shape = WholeShape(weight);
  whole.data = joined;
  return whole;
}

Result<std::optional<QuantizedSource>> WeightReader::FindCodes(WeightRole role,
                                                               const WeightRef& weight) const {
  if (role != WeightRole::kMatrix || checkpoint_ == nullptr || !config_.quantization)
    return std::optional<QuantizedSource>();
  return FindQuantized(*checkpoint_, *config_.quantization, weight);
}

Result<std::vector<WeightReader::Named>> WeightReader::List() const {
  std::vector<Named> all;
  for (const auto& [key, weight] : named_) {
    Named named{.role = key.second,
                .id = key.first,
                .dtype = config_.dtype,
                .format = config_.dtype,
                .shape = weight.shape,
                .num_elements = NumElements(weight.shape),
                .packed_name = {}};
    LAMINA_ASSIGN_OR_RETURN(const std::optional<QuantizedSource> codes,
                            FindCodes(key.second, weight));
    if (codes) {
      named.format = codes->format;
    } else if (checkpoint_ != nullptr) {
      std::vector<std::byte> joined;
      LAMINA_ASSIGN_OR_RETURN(const TensorView whole, weight.pieces.empty()
                                                          ? FindWhole(weight)
                                                          : JoinPieces(weight, joined));
      named.format = named.dtype = whole.dtype;
    } else if (gguf_ != nullptr) {
      LAMINA_ASSIGN_OR_RETURN(const GgufWeight whole, FindGguf(weight));
      named.dtype = whole.dtype;
      named.format = GgufCodes(key.second, weight, whole).value_or(whole.dtype);
    }
    if (named.role == WeightRole::kMatrix) named.packed_name = PackedName(weight, named.format);
    all.push_back(std::move(named));
  }
  return all;
}

Status WeightReader::ReadGguf(FoundWeight& found) {
  const WeightRef& weight = found.weight;
  LAMINA_ASSIGN_OR_RETURN(const GgufWeight whole, FindGguf(weight));
  if (GgufCodes(found.role, weight, whole)) {
    const Status read = ReadCodes(whole, weight, team_, codes_);
    if (!read.ok()) return {read.code(), options_.model_dir + ": " + read.message()};
    found.quantized = &codes_;
    return OkStatus();
  }
  // Tables are kept, and the file is not.
  std::span<const std::byte> stored;
  if (found.role != WeightRole::kTable) {
    ForEachRun(weight, [&](int64_t first, int64_t n) {
      if (n == NumElements(weight.shape)) stored = StoredElements(whole, first, n);
    });
  }
  if (!stored.empty()) {
    found.tensor = {whole.dtype, weight.shape, stored};
    return OkStatus();
  }
  found.made.resize(static_cast<size_t>(NumElements(weight.shape)) * ElementSize(whole.dtype));
  std::byte* out = found.made.data();
  ForEachRun(weight, [&](int64_t first, int64_t n) {
    ReadElements(whole, first, n, out);
    out += static_cast<size_t>(n) * ElementSize(whole.dtype);
  });
  found.tensor = {whole.dtype, weight.shape, found.made};
  return OkStatus();
}

Status WeightReader::Read(FoundWeight& found) {
  if (gguf_ != nullptr) return ReadGguf(found);
  LAMINA_ASSIGN_OR_RETURN(const std::optional<QuantizedSource> codes,
                          FindCodes(found.role, found.weight));
  if (codes) {
    LAMINA_ASSIGN_OR_RETURN(codes_, ReadQuantized(*codes));
    found.quantized = &codes_;
    return OkStatus();
  }
  LAMINA_ASSIGN_OR_RETURN(found.tensor, Find(found.weight, found.made));
  return OkStatus();
}

Result<TensorView> WeightReader::Find(const WeightRef& weight, std::vector<std::byte>& made) const {
  if (checkpoint_ == nullptr) {
    made = DummyTensor(weight, options_.dummy_seed, config_.dtype);
    return TensorView{config_.dtype, weight.shape, made};
  }
  if (!weight.pieces.empty()) {
    std::vector<std::byte> joined, copy;
    LAMINA_ASSIGN_OR_RETURN(TensorView whole, JoinPieces(weight, joined));
    const std::span<const std::byte> part = PartOf(weight, whole, copy);
    made.assign(part.begin(), part.end());
    whole.data = made;
    return whole;
  }
  LAMINA_ASSIGN_OR_RETURN(TensorView tensor, FindWhole(weight));
  tensor.data = PartOf(weight, tensor, made);
  return tensor;
}

Result<bool> WeightReader::ReadNext(const std::function<Status(FoundWeight)>& take) {
  const auto next = last_ ? named_.upper_bound(*last_) : named_.begin();
  if (next == named_.end()) return false;
  const auto& [key, weight] = *next;
  const Named& listed = listed_.at(key);
  if (wanted_ == nullptr || wanted_(listed)) {
    FoundWeight found{key.second, key.first, weight, {}, {}};
    found.format = listed.format;
    FindPacked(listed, found);
    if (found.panels.empty()) LAMINA_RETURN_IF_ERROR(Read(found));
    size_bytes_ += listed.size_bytes();
    LAMINA_RETURN_IF_ERROR(take(std::move(found)));
  }
  last_ = key;
  if (std::next(next) != named_.end()) return true;
  if (num_packed_ < num_packable_) {
    LAMINA_LOG_WARN("{} has {} of {} matrices that this node needs; {} makes one that has all",
                    packed_->path(), num_packed_, num_packable_, PackCommand());
  }
  return false;
}

}  // namespace lamina
