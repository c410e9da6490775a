#include "compute_node/weights.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "kernels/elementwise.h"

namespace lamina {
namespace {

enum class Role { kMatrix, kVector, kTable };

// Each weight that the graph names, once per role (a tied head is a table and a matrix).
std::map<std::pair<std::string, Role>, WeightRef> NamedWeights(const Graph& graph) {
  std::map<std::pair<std::string, Role>, WeightRef> named;
  for (const Op& op : graph.ops) {
    for (const WeightRef& weight : op.weights) {
      const Role role = op.kind == OpKind::kEmbedding ? Role::kTable : weight.shape.size() == 2 ? Role::kMatrix : Role::kVector;
      named.emplace(std::pair(weight.name, role), weight);
    }
  }
  return named;
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

// Random values around 0 with the spread that keeps activations of a random model near 1; norms are 1, biases too small to matter.
std::vector<std::byte> DummyTensor(const WeightRef& weight, uint64_t seed, DType dtype) {
  const int64_t n = NumElements(weight.shape);
  std::vector<std::byte> bytes(static_cast<size_t>(n) * ElementSize(dtype));
  const uint64_t name_seed = Mix(seed + std::hash<std::string>{}(weight.name));
  const float spread = weight.shape.size() == 2 ? std::sqrt(3.0f / static_cast<float>(weight.shape[1])) : 0.0f;
  const float centre = weight.name.find("norm") != std::string::npos ? 1.0f : 0.0f;
  constexpr int64_t kBlock = 4096;
  std::vector<float> block(kBlock);
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t count = std::min(kBlock, n - begin);
    for (int64_t i = 0; i < count; ++i) {
      const auto unit = static_cast<float>(Mix(name_seed + static_cast<uint64_t>(begin + i)) >> 40) * 0x1p-23f - 1.0f;  // [-1, 1)
      block[static_cast<size_t>(i)] = centre + spread * unit;
    }
    ConvertFromFloat(block.data(), count, dtype, bytes.data() + static_cast<size_t>(begin) * ElementSize(dtype));
  }
  return bytes;
}

}  // namespace

Result<std::unique_ptr<Weights>> Weights::Load(const Graph& graph, const ModelConfig& config, const WeightOptions& options,
                                               WorkerTeam& team) {
  const bool dummy = options.load_format == "dummy";
  if (!dummy && options.load_format != "auto" && options.load_format != "safetensors") {
    return InvalidArgument("load format '" + options.load_format + "'; known: auto, safetensors, dummy");
  }
  std::unique_ptr<Weights> weights(new Weights());
  if (!dummy) {
    LAMINA_ASSIGN_OR_RETURN(weights->checkpoint_, Checkpoint::Open(options.model_dir));
  }
  const auto named = NamedWeights(graph);
  int64_t total = 0, loaded = 0;
  for (const auto& [key, weight] : named) total += NumElements(weight.shape);
  for (const auto& [key, weight] : named) {
    std::vector<std::byte> made;
    TensorView tensor{config.dtype, weight.shape, {}};
    if (dummy) {
      made = DummyTensor(weight, options.dummy_seed, config.dtype);
      tensor.data = made;
    } else {
      LAMINA_ASSIGN_OR_RETURN(tensor, weights->checkpoint_->Find(weight.name, weight.shape));
    }
    const int64_t n = NumElements(weight.shape);
    switch (key.second) {
      case Role::kMatrix:
        weights->matrices_.emplace(weight.name, PackedWeights(tensor.data.data(), tensor.dtype, weight.shape[0], weight.shape[1], team));
        break;
      case Role::kVector: {
        std::vector<float>& vector = weights->vectors_[weight.name];
        vector.resize(static_cast<size_t>(n));
        ConvertToFloat(tensor.data.data(), tensor.dtype, n, vector.data());
        break;
      }
      case Role::kTable:
        if (dummy) tensor.data = weights->dummy_tables_[weight.name] = std::move(made);
        weights->tables_[weight.name] = {tensor.data.data(), tensor.dtype};
        break;
    }
    weights->size_bytes_ += static_cast<int64_t>(tensor.data.size());
    loaded += n;
    const auto element = static_cast<int64_t>(ElementSize(config.dtype));
    if (options.on_progress) options.on_progress(loaded * element, total * element);
  }
  return weights;
}

}  // namespace lamina
