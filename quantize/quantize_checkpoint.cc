#include "quantize/quantize_checkpoint.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "compute_node/safetensors.h"
#include "compute_node/weight_part.h"
#include "gguf/gguf_model.h"
#include "kernels/elementwise.h"
#include "model/model_config.h"
#include "quantize/safetensors_writer.h"
#include "quantize/unfinished.h"
#include "splitter/slices.h"

namespace lamina {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

// The names of matrices that are to be quantized, as the graph has them, with their shapes; and the
// modules of linear layers that are not.
struct Chosen {
  std::map<std::string, std::vector<int64_t>> matrices;
  std::set<std::string> ignored;
};

constexpr std::string_view kWeight = ".weight";

std::string ModuleOf(const std::string& weight) {
  return weight.ends_with(kWeight) ? weight.substr(0, weight.size() - kWeight.size()) : weight;
}

Chosen Choose(const Graph& graph) {
  std::set<ValueId> routed;  // what routers give
  std::set<std::string> tables;
  for (const Op& op : graph.ops) {
    if (op.kind == OpKind::kExperts) routed.insert(op.inputs[1]);
    if (op.kind == OpKind::kEmbedding) tables.insert(op.weights[0].name);
  }
  const int64_t vocab = graph.values[static_cast<size_t>(graph.logits)].width;
  Chosen chosen;
  for (const Op& op : graph.ops) {
    if (op.kind != OpKind::kLinear && op.kind != OpKind::kExperts) continue;
    const bool is_linear = op.kind == OpKind::kLinear;
    const bool is_head = is_linear && op.weights[0].shape[0] == vocab;
    for (size_t i = 0; i < (is_linear ? 1 : op.weights.size()); ++i) {
      const WeightRef& weight = op.weights[i];
      if (is_head || routed.contains(op.output) || tables.contains(weight.name) ||
          weight.transposed || !weight.name.ends_with(kWeight)) {
        chosen.ignored.insert(ModuleOf(weight.name));
      } else {
        chosen.matrices.emplace(weight.name, WholeShape(weight));
      }
    }
  }
  return chosen;
}

uint64_t BytesOf(std::span<const int64_t> shape, size_t element) {
  return static_cast<uint64_t>(
             std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies())) *
         element;
}

int64_t Ceil(int64_t n, int64_t by) { return (n + by - 1) / by; }

std::string_view NameInFile(DType dtype) {
  return dtype == DType::kF32 ? "F32" : dtype == DType::kF16 ? "F16" : "BF16";
}

// The tensors that stand in the place of a matrix.
class QuantizedTensors {
 public:
  QuantizedTensors(const std::string& module, std::span<const int64_t> shape,
                   const QuantizedScheme& scheme, DType dtype)
      : scheme_(scheme), dtype_(dtype), out_(shape[0]), in_(shape[1]) {
    const auto add = [&](const char* suffix, std::string_view type, std::vector<int64_t> of,
                         size_t element) {
      const uint64_t bytes = BytesOf(of, element);
      tensors_.push_back({module + suffix, std::string(type), std::move(of), bytes});
    };
    const int64_t groups = scheme.group == 0 ? 1 : in_ / scheme.group;
    if (scheme.code == WeightCode::kF8) {
      add(".weight", "F8_E4M3", {out_, in_}, 1);
    } else {
      add(".weight_packed", "I32", {out_, Ceil(in_, 32 / scheme.bits())}, 4);
    }
    add(".weight_scale", NameInFile(dtype), {out_, groups}, ElementSize(dtype));
    if (scheme.zero_points) add(".weight_zero_point", "I32", {Ceil(out_, 8), groups}, 4);
    if (scheme.code != WeightCode::kF8) add(".weight_shape", "I64", {2}, 8);
  }

  const std::vector<SafetensorsWriter::Tensor>& tensors() const { return tensors_; }

  // Their bytes, one tensor after the other.
  std::vector<std::byte> Bytes(const QuantizedMatrix& matrix) const {
    std::vector<std::byte> bytes;
    const auto append = [&](const void* from, size_t size) {
      const auto* const begin = static_cast<const std::byte*>(from);
      bytes.insert(bytes.end(), begin, begin + size);
    };
    if (scheme_.code == WeightCode::kF8) {
      append(matrix.codes.data(), matrix.codes.size());
    } else {
      const std::vector<uint32_t> words = PackedCodes(matrix);
      append(words.data(), 4 * words.size());
    }
    std::vector<std::byte> scales(matrix.scales.size() * ElementSize(dtype_));
    ConvertFromFloat(matrix.scales.data(), std::ssize(matrix.scales), dtype_, scales.data());
    append(scales.data(), scales.size());
    if (scheme_.zero_points) {
      const std::vector<uint32_t> words = PackedZeros(matrix);
      append(words.data(), 4 * words.size());
    }
    const int64_t shape[2] = {out_, in_};
    if (scheme_.code != WeightCode::kF8) append(shape, sizeof(shape));
    return bytes;
  }

 private:
  // Along the inputs, the first in the lowest bits. Codes of 8 bits are stored as 0 to 255.
  std::vector<uint32_t> PackedCodes(const QuantizedMatrix& matrix) const {
    const int bits = scheme_.bits();
    const int64_t per = 32 / bits, row_words = Ceil(in_, per);
    const uint32_t flip = bits == 4 ? 0 : 0x80;
    std::vector<uint32_t> words(static_cast<size_t>(out_ * row_words));
    for (int64_t o = 0; o < out_; ++o) {
      for (int64_t i = 0; i < in_; ++i) {
        const uint32_t code = matrix.codes[static_cast<size_t>(o * in_ + i)] ^ flip;
        words[static_cast<size_t>(o * row_words + i / per)] |= code << (i % per * bits);
      }
    }
    return words;
  }

  // Along the outputs.
  std::vector<uint32_t> PackedZeros(const QuantizedMatrix& matrix) const {
    const int64_t groups = matrix.num_groups();
    std::vector<uint32_t> words(static_cast<size_t>(Ceil(out_, 8) * groups));
    for (int64_t o = 0; o < out_; ++o) {
      for (int64_t g = 0; g < groups; ++g) {
        const auto zero = static_cast<uint32_t>(matrix.zeros[static_cast<size_t>(o * groups + g)]);
        words[static_cast<size_t>(o / 8 * groups + g)] |= zero << (o % 8 * 4);
      }
    }
    return words;
  }

  const QuantizedScheme scheme_;
  const DType dtype_;
  const int64_t out_, in_;
  std::vector<SafetensorsWriter::Tensor> tensors_;
};

// A matrix, rounded by all of the team.
Result<QuantizedMatrix> RoundMatrix(const TensorView& tensor, const QuantizedScheme& scheme,
                                    DType dtype, WorkerTeam& team) {
  const int64_t out = tensor.shape[0], in = tensor.shape[1];
  std::map<int64_t, Result<QuantizedMatrix>> parts;  // by their first output
  Mutex mutex;
  team.ParallelFor(out, 1, [&](int64_t begin, int64_t end) {
    std::vector<float> weights(static_cast<size_t>((end - begin) * in));
    ConvertToFloat(tensor.data.data() + static_cast<size_t>(begin * in) * ElementSize(tensor.dtype),
                   tensor.dtype, std::ssize(weights), weights.data());
    Result<QuantizedMatrix> part = RoundToNearest(weights, in, scheme, dtype);
    MutexLock lock(mutex);
    parts.emplace(begin, std::move(part));
  });
  std::optional<QuantizedMatrix> matrix;
  for (auto& [begin, part] : parts) {
    if (!part.ok()) return part.status();
    if (!matrix) {
      matrix = *std::move(part);
      continue;
    }
    matrix->codes.insert(matrix->codes.end(), part->codes.begin(), part->codes.end());
    matrix->scales.insert(matrix->scales.end(), part->scales.begin(), part->scales.end());
    matrix->zeros.insert(matrix->zeros.end(), part->zeros.begin(), part->zeros.end());
  }
  matrix->out_features = out;
  return *std::move(matrix);
}

ordered_json Description(const QuantizedScheme& scheme, const std::set<std::string>& ignored) {
  const bool is_f8 = scheme.code == WeightCode::kF8;
  const ordered_json weights = {
      {"num_bits", scheme.bits()},
      {"type", is_f8 ? "float" : "int"},
      {"strategy", scheme.group == 0 ? "channel" : "group"},
      {"group_size", scheme.group == 0 ? ordered_json() : ordered_json(scheme.group)},
      {"symmetric", !scheme.zero_points},
      {"dynamic", false},
      {"actorder", nullptr},
      {"observer", "mse"}};
  return {{"quant_method", "compressed-tensors"},
          {"format", is_f8 ? "float-quantized" : "pack-quantized"},
          {"quantization_status", "compressed"},
          {"ignore", ignored},
          {"kv_cache_scheme", nullptr},
          {"config_groups",
           {{"group_0",
             {{"targets", {"Linear"}},
              {"input_activations", nullptr},
              {"output_activations", nullptr},
              {"weights", weights}}}}}};
}

// Everything but the weights and the configuration.
Status CopyOthers(const fs::path& from, const fs::path& to) {
  static const std::set<std::string> kOfWeights = {
      ".safetensors", ".bin", ".pt", ".pth", ".gguf", ".msgpack", ".h5", ".packed", ".part"};
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(from, error)) {
    const fs::path& path = entry.path();
    if (!entry.is_regular_file() || path.filename() == "config.json" ||
        kOfWeights.contains(path.extension().string()) ||
        path.filename().string().ends_with(".index.json"))
      continue;
    fs::copy_file(path, to / path.filename(), error);
    if (error) return InvalidArgument(path.string() + " cannot be copied: " + error.message());
  }
  return error ? InvalidArgument(from.string() + ": " + error.message()) : OkStatus();
}

Status WriteConfig(const fs::path& from, const fs::path& to, const ordered_json& description) {
  std::ifstream file(from);
  ordered_json config = ordered_json::parse(file, nullptr, false);
  if (config.is_discarded() || !config.is_object())
    return InvalidArgument(from.string() + " is no JSON object");
  config["quantization_config"] = description;
  std::ofstream out(to);
  out << config.dump(2) << '\n';
  return out.good() ? OkStatus() : InvalidArgument(to.string() + " cannot be written");
}

// A tensor of the old file, and what it becomes; nothing: it is copied.
struct Planned {
  RawTensor raw;
  std::optional<QuantizedTensors> becomes;
};

Result<std::vector<Planned>> Plan(const Checkpoint& checkpoint, const Chosen& chosen,
                                  const QuantizedScheme& scheme, DType dtype) {
  std::map<std::string, Planned> plan;  // by the name in the file
  for (const std::string& name : checkpoint.names())
    plan.emplace(name, Planned{*checkpoint.FindRaw(name), std::nullopt});
  for (const auto& [name, shape] : chosen.matrices) {
    LAMINA_RETURN_IF_ERROR(checkpoint.Find(name, shape).status());
    if (scheme.group != 0 && shape[1] % scheme.group != 0) {
      return InvalidArgument("tensor " + name + " has " + std::to_string(shape[1]) +
                             " inputs, which is no multiple of the scheme's groups of " +
                             std::to_string(scheme.group) + "; choose smaller ones");
    }
    const std::string in_file(checkpoint.FindRaw(name)->name);
    plan.at(in_file).becomes.emplace(ModuleOf(in_file), shape, scheme, dtype);
  }
  std::vector<Planned> planned;
  for (auto& [name, one] : plan) planned.push_back(std::move(one));
  return planned;
}

}  // namespace

Result<QuantizedCounts> QuantizeCheckpoint(const QuantizeOptions& options, WorkerTeam& team) {
  const fs::path out = options.out_dir, part = options.out_dir + ".part";
  if (IsGgufPath(options.model_dir)) {
    return Unimplemented(options.model_dir +
                         ": a GGUF file; expected a folder with config.json and model.safetensors");
  }
  if (fs::exists(out)) return InvalidArgument(out.string() + " is there already");
  LAMINA_ASSIGN_OR_RETURN(const ModelConfig config, ModelConfig::Load(options.model_dir));
  if (config.quantization)
    return InvalidArgument(options.model_dir + ": its weights are quantized already");
  LAMINA_ASSIGN_OR_RETURN(const Graph graph, TraceModel(config));
  LAMINA_ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> checkpoint,
                          Checkpoint::Open(options.model_dir));
  const Chosen chosen = Choose(graph);
  LAMINA_ASSIGN_OR_RETURN(const std::vector<Planned> plan,
                          Plan(*checkpoint, chosen, options.scheme, config.dtype));
  std::vector<SafetensorsWriter::Tensor> tensors;
  QuantizedCounts counts{.num_quantized = std::ssize(chosen.matrices),
                         .bytes_before = checkpoint->size_bytes()};
  for (const auto& [raw, becomes] : plan) {
    if (becomes) {
      tensors.insert(tensors.end(), becomes->tensors().begin(), becomes->tensors().end());
    } else {
      tensors.push_back({std::string(raw.name),
                         std::string(raw.dtype),
                         {raw.shape.begin(), raw.shape.end()},
                         raw.data.size()});
    }
  }
  std::error_code error;
  const Unfinished unfinished(part);
  fs::create_directories(part, error);
  if (error) return InvalidArgument(part.string() + " cannot be made: " + error.message());
  LAMINA_ASSIGN_OR_RETURN(
      SafetensorsWriter writer,
      SafetensorsWriter::Create((part / "model.safetensors").string(), tensors));
  int64_t done = 0;
  for (const auto& [raw, becomes] : plan) {
    if (becomes) {
      LAMINA_ASSIGN_OR_RETURN(const TensorView tensor,
                              checkpoint->Find(std::string(raw.name), raw.shape));
      Result<QuantizedMatrix> matrix = RoundMatrix(tensor, options.scheme, config.dtype, team);
      if (!matrix.ok()) return matrix.status().WithContext("tensor " + std::string(raw.name));
      const std::vector<std::byte> bytes = becomes->Bytes(*matrix);
      LAMINA_RETURN_IF_ERROR(writer.Write(bytes));
    } else {
      LAMINA_RETURN_IF_ERROR(writer.Write(raw.data));
    }
    done += std::ssize(raw.data);
    if (options.on_progress) options.on_progress(done, counts.bytes_before);
  }
  LAMINA_RETURN_IF_ERROR(writer.Close());
  for (const SafetensorsWriter::Tensor& tensor : tensors)
    counts.bytes_after += static_cast<int64_t>(tensor.size_bytes);
  LAMINA_RETURN_IF_ERROR(CopyOthers(options.model_dir, part));
  LAMINA_RETURN_IF_ERROR(WriteConfig(fs::path(options.model_dir) / "config.json",
                                     part / "config.json",
                                     Description(options.scheme, chosen.ignored)));
  LAMINA_RETURN_IF_ERROR(unfinished.Finish(out));
  return counts;
}

}  // namespace lamina
