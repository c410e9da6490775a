#include "compute_node/gguf_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "compute_node/safetensors_header.h"
#include "compute_node/weight_part.h"
#include "gguf/dequantize.h"
#include "kernels/elementwise.h"

namespace lamina {
namespace {

struct NamePair {
  std::string_view graph, file;
};
constexpr NamePair kOutsideOfLayers[] = {{"model.embed_tokens.weight", "token_embd.weight"},
                                         {"model.norm.weight", "output_norm.weight"},
                                         {"lm_head.weight", "output.weight"}};
// Without the ".weight" or ".bias" behind.
constexpr NamePair kInLayers[] = {{"input_layernorm", "attn_norm"},
                                  {"self_attn.q_proj", "attn_q"},
                                  {"self_attn.k_proj", "attn_k"},
                                  {"self_attn.v_proj", "attn_v"},
                                  {"self_attn.o_proj", "attn_output"},
                                  {"self_attn.q_norm", "attn_q_norm"},
                                  {"self_attn.k_norm", "attn_k_norm"},
                                  {"post_attention_layernorm", "ffn_norm"},
                                  {"mlp.gate_proj", "ffn_gate"},
                                  {"mlp.up_proj", "ffn_up"},
                                  {"mlp.down_proj", "ffn_down"},
                                  {"block_sparse_moe.gate", "ffn_gate_inp"},
                                  {"mlp.gate", "ffn_gate_inp"},
                                  {"mlp.shared_expert_gate", "ffn_gate_inp_shexp"},
                                  {"mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
                                  {"mlp.shared_expert.up_proj", "ffn_up_shexp"},
                                  {"mlp.shared_expert.down_proj", "ffn_down_shexp"},
                                  {"self_attn.qkv_proj", "attn_qkv"},
                                  {"mlp.gate_up_proj", "ffn_up"}};
// Gemma 2 and 3 have norms on both sides of attention and MLP, OLMo 2 has them behind only.
constexpr NamePair kInGemmaLayers[] = {{"post_attention_layernorm", "post_attention_norm"},
                                       {"pre_feedforward_layernorm", "ffn_norm"},
                                       {"post_feedforward_layernorm", "post_ffw_norm"}};
constexpr NamePair kOfExperts[] = {{"w1", "ffn_gate_exps"},    {"w2", "ffn_down_exps"},
                                   {"w3", "ffn_up_exps"},      {"gate_proj", "ffn_gate_exps"},
                                   {"up_proj", "ffn_up_exps"}, {"down_proj", "ffn_down_exps"}};
// gpt-oss has no ".weight" behind its experts and its sinks, and other names than Mixtral.
constexpr NamePair kInGptOssLayers[] = {
    {"post_attention_layernorm.weight", "post_attention_norm.weight"},
    {"self_attn.sinks", "attn_sinks.weight"},
    {"mlp.router.weight", "ffn_gate_inp.weight"},
    {"mlp.router.bias", "ffn_gate_inp.bias"},
    {"mlp.experts.gate_proj", "ffn_gate_exps.weight"},
    {"mlp.experts.gate_proj_bias", "ffn_gate_exps.bias"},
    {"mlp.experts.up_proj", "ffn_up_exps.weight"},
    {"mlp.experts.up_proj_bias", "ffn_up_exps.bias"},
    {"mlp.experts.down_proj", "ffn_down_exps.weight"},
    {"mlp.experts.down_proj_bias", "ffn_down_exps.bias"}};

std::optional<std::string_view> FileName(std::span<const NamePair> table, std::string_view name) {
  const auto found = std::ranges::find(table, name, &NamePair::graph);
  return found == table.end() ? std::nullopt : std::optional(found->file);
}

// Takes "NUMBER." from the front of `text`.
std::optional<int> TakeNumber(std::string_view& text) {
  int number = 0;
  const char* const end = text.data() + text.size();
  const auto [read, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || read == end || *read != '.') return std::nullopt;
  text.remove_prefix(static_cast<size_t>(read - text.data()) + 1);
  return number;
}

bool TakePrefix(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

// Where a weight of the graph is in a file.
struct GgufPlace {
  std::string tensor;
  std::optional<int64_t> expert = std::nullopt;  // whose rows of the tensor it is
};

bool HasNormsBehindBlocks(const ModelConfig& config) {
  return config.architecture == "Gemma2ForCausalLM" || config.architecture == "Gemma3ForCausalLM" ||
         config.architecture == "Olmo2ForCausalLM";
}

std::optional<GgufPlace> PlaceOf(const WeightRef& weight, const ModelConfig& config) {
  std::string_view name = weight.name;
  if (const auto outside = FileName(kOutsideOfLayers, name))
    return GgufPlace{std::string(*outside)};
  if (!TakePrefix(name, "model.layers.")) return std::nullopt;
  const std::optional<int> layer = TakeNumber(name);
  const size_t dot = name.rfind('.');
  if (!layer || dot == std::string_view::npos) return std::nullopt;
  const std::string_view kind = name.substr(dot);  // ".weight"
  std::string_view module = name.substr(0, dot);
  std::optional<std::string_view> file;
  GgufPlace place;
  if (config.architecture == "GptOssForCausalLM") {
    if (const auto tensor = FileName(kInGptOssLayers, name)) {
      place.tensor = fmt::format("blk.{}.{}", *layer, *tensor);
      if (weight.stack.size > 0) place.expert = weight.stack.index;
      return place;
    }
  }
  if (TakePrefix(module, "block_sparse_moe.experts.") || TakePrefix(module, "mlp.experts.")) {
    place.expert = TakeNumber(module);
    file = FileName(kOfExperts, module);
    if (!place.expert) return std::nullopt;
  } else {
    if (HasNormsBehindBlocks(config)) file = FileName(kInGemmaLayers, module);
    if (!file) file = FileName(kInLayers, module);
  }
  if (!file) return std::nullopt;
  place.tensor = fmt::format("blk.{}.{}{}", *layer, *file, kind);
  return place;
}

// Whether converters put the halves of each head of q and k between each other. Mistral and
// Mixtral are llamas in GGUF files.
bool InterleavesHeads(const ModelConfig& config) {
  constexpr std::string_view kInterleaved[] = {"LlamaForCausalLM", "MixtralForCausalLM",
                                               "GraniteForCausalLM", "SmolLM3ForCausalLM"};
  return std::ranges::find(kInterleaved, config.architecture) != std::end(kInterleaved);
}

std::optional<DType> PlainType(GgmlType type) {
  if (type == GgmlType::kF32) return DType::kF32;
  if (type == GgmlType::kF16) return DType::kF16;
  if (type == GgmlType::kBF16) return DType::kBF16;
  return std::nullopt;
}

// The E2M1 code of half an integer. REQUIRES: it is one of these halves.
uint8_t F4Code(int8_t integer) {
  constexpr int kTwice[] = {0, 1, 2, 3, 4, 6, 8, 12};
  const auto* const found = std::ranges::find(kTwice, std::abs(int{integer}));
  return static_cast<uint8_t>((found - kTwice) | (integer < 0 ? 8 : 0));
}

// Elements [first, first + count) of the tensor, as `dtype`.
void ReadTensorElements(const GgufTensor& tensor, DType dtype, int64_t first, int64_t count,
                        std::byte* out) {
  const auto type = static_cast<GgmlType>(tensor.type);
  const auto element = static_cast<int64_t>(ElementSize(dtype));
  if (PlainType(type) == dtype) {
    std::memcpy(out, tensor.data.data() + first * element, static_cast<size_t>(count * element));
    return;
  }
  constexpr int64_t kElements = 4096;  // at a time: a whole number of blocks of every type
  float values[kElements];
  const int64_t in_block = tensor.info().block_elements;
  for (int64_t at = first; at < first + count;) {
    const int64_t first_block = at / in_block, skipped = at % in_block;
    const int64_t blocks =
        std::min(kElements / in_block, (first + count + in_block - 1) / in_block - first_block);
    Dequantize(type, tensor.data.data() + first_block * tensor.info().block_bytes, blocks, values);
    const int64_t taken = std::min(blocks * in_block - skipped, first + count - at);
    ConvertFromFloat(values + skipped, taken, dtype, out);
    out += taken * element;
    at += taken;
  }
}

}  // namespace

int64_t GgufWeight::TensorRow(int64_t row) const {
  if (interleaved == 0) return first_row + row;
  const int64_t in_head = row % interleaved, half = interleaved / 2;
  return first_row + row - in_head + in_head % half * 2 + in_head / half;
}

Result<std::unique_ptr<GgufCheckpoint>> GgufCheckpoint::Open(const std::string& path,
                                                             const ModelConfig& config) {
  LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<GgufModel> file, GgufModel::Open(path));
  return std::unique_ptr<GgufCheckpoint>(new GgufCheckpoint(std::move(file), config));
}

WeightRef AsInGguf(WeightRef weight) {
  weight.plus = 0;
  weight.transposed = false;
  const auto& [size, step] = weight.blocks;
  if (weight.stack.size == 0 || size != 1) return weight;
  constexpr std::string_view kBoth = "gate_up_proj";
  if (const size_t at = weight.name.find(kBoth); at != std::string::npos)
    weight.name.replace(at, kBoth.size(), weight.first[0] == 0 ? "gate_proj" : "up_proj");
  weight.whole[0] /= step;
  weight.first[0] /= step;
  weight.blocks = {};
  return weight;
}

Result<GgufWeight> GgufCheckpoint::Find(const WeightRef& ref) const {
  const std::string& name = ref.name;
  const std::vector<int64_t>& shape = WholeShape(ref);
  const std::optional<GgufPlace> place = PlaceOf(ref, config_);
  if (!place) return NotFound("GGUF has no name for the tensor " + name);
  const std::string& path = file_->path();
  const GgufTensor* const tensor = file_->Tensor(place->tensor);
  if (tensor == nullptr) {
    return NotFound(fmt::format("tensor {} ({}) is not in {}, expected with shape {}",
                                place->tensor, name, path, ShapeText(shape)));
  }
  std::vector<int64_t> whole(shape.begin(), shape.end());
  if (place->expert) whole.insert(whole.begin(), config_.num_experts);
  // Converters leave out dimensions of 1.
  const bool is_row = whole.size() == 2 && whole[0] == 1 && tensor->shape.size() == 1;
  if (tensor->shape != whole && !(is_row && tensor->shape[0] == whole[1])) {
    return InvalidArgument(
        fmt::format("tensor {} in {} has shape {}, expected {} as the file's keys say",
                    place->tensor, path, ShapeText(tensor->shape), ShapeText(whole)));
  }
  if (!tensor->info().is_read) {
    return Unimplemented(fmt::format("tensor {} in {} has type {}; lamina reads {}", place->tensor,
                                     path, tensor->info().name, ReadGgmlTypes()));
  }
  GgufWeight weight;
  weight.tensor = tensor;
  weight.rows = shape[0];
  weight.width = shape.size() == 2 ? shape[1] : 1;
  weight.first_row = place->expert.value_or(0) * weight.rows;
  if (InterleavesHeads(config_) &&
      (name.find(".q_proj.") != std::string::npos || name.find(".k_proj.") != std::string::npos))
    weight.interleaved = config_.head_dim;
  weight.dtype = PlainType(weight.type()).value_or(config_.dtype);
  return weight;
}

std::span<const std::byte> StoredElements(const GgufWeight& weight, int64_t first, int64_t count) {
  if (weight.interleaved != 0 || PlainType(weight.type()) != weight.dtype) return {};
  const size_t element = ElementSize(weight.dtype);
  return weight.tensor->data.subspan(
      static_cast<size_t>(weight.first_row * weight.width + first) * element,
      static_cast<size_t>(count) * element);
}

void ReadElements(const GgufWeight& weight, int64_t first, int64_t count, std::byte* out) {
  if (weight.interleaved == 0) {
    ReadTensorElements(*weight.tensor, weight.dtype, weight.first_row * weight.width + first, count,
                       out);
    return;
  }
  for (int64_t at = first; at < first + count;) {
    const int64_t row = at / weight.width, column = at % weight.width;
    const int64_t taken = std::min(weight.width - column, first + count - at);
    ReadTensorElements(*weight.tensor, weight.dtype, weight.TensorRow(row) * weight.width + column,
                       taken, out);
    out += static_cast<size_t>(taken) * ElementSize(weight.dtype);
    at += taken;
  }
}

std::optional<WeightFormat> CodeFormat(const GgufWeight& weight, const WeightRef& part) {
  const GgmlCodes* const codes = CodesOf(weight.type());
  if (codes == nullptr || part.shape.size() != 2) return std::nullopt;
  if (codes->e2m1) {
    WeightFormat format(WeightCode::kF4, DType::kBF16, codes->group);
    SetGroups(codes->group, FirstOf(part, 1), weight.width, format);
    return format;
  }
  const bool in_4_bits = codes->bits == 4;
  WeightFormat format(in_4_bits ? WeightCode::kInt4 : WeightCode::kInt8,
                      codes->fp16 ? DType::kF16 : DType::kF32, codes->group,
                      codes->has_minima ? WeightOffset::kMinimum
                      : in_4_bits       ? WeightOffset::kMinus8
                                        : WeightOffset::kNone);
  SetGroups(codes->group, FirstOf(part, 1), weight.width, format);
  return format;
}

Status ReadCodes(const GgufWeight& weight, const WeightRef& part, WorkerTeam* team,
                 QuantizedMatrix& to) {
  const GgmlCodes& codes = *CodesOf(weight.type());
  to.format = *CodeFormat(weight, part);
  to.out_features = part.shape[0];
  to.in_features = part.shape[1];
  const int64_t first = FirstOf(part, 1);
  to.zeros.clear();
  to.group_of.clear();
  for (int64_t i = 0; to.format.indexed && i < to.in_features; ++i)
    to.group_of.push_back(static_cast<int32_t>((first + i) / codes.group));
  const int64_t num_groups = to.num_groups();
  const auto numbers = static_cast<size_t>(to.out_features * num_groups);
  to.codes.resize(static_cast<size_t>(to.out_features * to.in_features));
  to.scales.resize(numbers);
  to.minima.resize(codes.has_minima ? numbers : 0);
  std::atomic<int64_t> damaged_row{-1};  // one that has a number not finite
  const auto unpack = [&](int64_t begin, int64_t end) {
    const auto groups_of_row = static_cast<size_t>(weight.width / codes.group);
    std::vector<int8_t> integers(static_cast<size_t>(weight.width));
    std::vector<float> scales(groups_of_row), minima(groups_of_row);
    // Codes of 4 bits begin at 0.
    const int shift = codes.bits == 4 ? -codes.lowest : 0;
    const auto code_of = [&](int8_t integer) {
      return codes.e2m1 ? F4Code(integer) : static_cast<uint8_t>(integer + shift);
    };
    for (int64_t row = begin; row < end; ++row) {
      Unpack(weight.type(), weight.RowBlocks(RowOf(part, row)).data(),
             weight.width / weight.tensor->info().block_elements, integers.data(), scales.data(),
             minima.data());
      std::transform(integers.begin() + first, integers.begin() + first + to.in_features,
                     to.codes.begin() + row * to.in_features, code_of);
      for (int64_t group = 0; group < num_groups; ++group) {
        const auto whole_group = static_cast<size_t>(
            to.format.indexed ? group : (first + group * to.format.group) / codes.group);
        const float scale = scales[whole_group], minimum = minima[whole_group];
        // Twice the scale is kept of E2M1, and no other type has one near the largest number.
        if (!std::isfinite(2 * scale) || !std::isfinite(minimum)) {
          damaged_row = row;
          return;
        }
        const auto at = static_cast<size_t>(row * num_groups + group);
        to.scales[at] = codes.e2m1 ? 2 * scale : scale;
        if (codes.has_minima) to.minima[at] = minimum;
      }
    }
  };
  if (team != nullptr)
    team->ParallelFor(to.out_features, 1, unpack);
  else
    unpack(0, to.out_features);
  if (damaged_row < 0) return OkStatus();
  return InvalidArgument(fmt::format(
      "tensor {} has a scale in row {} that is not a finite number; the file is damaged",
      weight.tensor->name, weight.TensorRow(RowOf(part, damaged_row))));
}

}  // namespace lamina
