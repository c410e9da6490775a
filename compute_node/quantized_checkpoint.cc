#include "compute_node/quantized_checkpoint.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "compute_node/weight_part.h"

namespace lamina {
namespace {

using Layout = QuantizationConfig::Layout;

// The kernels multiply scales by 256, and sums must stay finite: no real scale is near it.
constexpr float kMostScale = 0x1p64f;

// Where AutoAWQ puts the codes of 8 consecutive outputs in a word, counted from its lowest 4 bits.
constexpr int kAwqPlace[8] = {0, 4, 1, 5, 2, 6, 3, 7};

int64_t Ceil(int64_t n, int64_t by) { return (n + by - 1) / by; }

std::string In(const RawTensor& tensor) {
  return "tensor " + std::string(tensor.name) + " in " + std::string(tensor.path);
}

Status CheckShape(const RawTensor& tensor, std::vector<int64_t> expected) {
  if (std::ranges::equal(tensor.shape, expected)) return OkStatus();
  return InvalidArgument(In(tensor) + " has shape " + ShapeText(tensor.shape) + ", expected " +
                         ShapeText(expected) + " as config.json says");
}

Status CheckType(const RawTensor& tensor, std::initializer_list<std::string_view> types) {
  if (std::ranges::find(types, tensor.dtype) != types.end()) return OkStatus();
  std::string names;
  for (const std::string_view type : types)
    names += (names.empty() ? "" : " or ") + std::string(type);
  return Unimplemented(In(tensor) + " has dtype " + std::string(tensor.dtype) + ", expected " +
                       names);
}

Result<RawTensor> Require(const Checkpoint& checkpoint, const std::string& name) {
  if (std::optional<RawTensor> tensor = checkpoint.FindRaw(name)) return *tensor;
  return NotFound("tensor " + name + " is not in " + checkpoint.where() +
                  ", although the layer is quantized as quantization_config in config.json says");
}

template <typename T>
T At(const RawTensor& tensor, int64_t i) {
  T value;
  std::memcpy(&value, tensor.data.data() + static_cast<size_t>(i) * sizeof(T), sizeof(T));
  return value;
}

float NumberAt(const RawTensor& tensor, DType dtype, int64_t i) {
  if (dtype == DType::kF16) return ToFloat(F16{At<uint16_t>(tensor, i)});
  if (dtype == DType::kBF16) return ToFloat(BF16{At<uint16_t>(tensor, i)});
  return At<float>(tensor, i);
}

int64_t NumGroups(const QuantizedSource& s) {
  return s.config.scale_inputs == 0 ? 1 : Ceil(s.in, s.config.scale_inputs);
}

// [groups, out], and not [out, groups].
bool GroupsComeFirst(const QuantizedSource& s) {
  return s.config.layout == Layout::kAwq || s.config.layout == Layout::kGptq;
}

// Number `index` of the tensors of a stack follows the ones before it.
int64_t RowInStack(const QuantizedSource& s, int64_t output) {
  return s.stack.index * s.out + output;
}

Status FindMxfp4(const Checkpoint& checkpoint, const std::string& name, QuantizedSource& s) {
  constexpr int64_t kGroup = 32;
  LAMINA_ASSIGN_OR_RETURN(s.codes, Require(checkpoint, name + "_blocks"));
  LAMINA_RETURN_IF_ERROR(CheckType(s.codes, {"U8"}));
  LAMINA_RETURN_IF_ERROR(CheckShape(s.codes, {s.stack.size, s.out, s.in / kGroup, kGroup / 2}));
  if (s.in % kGroup != 0)
    return InvalidArgument(In(s.codes) + ": rows of " + std::to_string(s.in) +
                           " inputs, expected a multiple of 32");
  LAMINA_ASSIGN_OR_RETURN(s.scales, Require(checkpoint, name + "_scales"));
  LAMINA_RETURN_IF_ERROR(CheckType(s.scales, {"U8"}));
  return CheckShape(s.scales, {s.stack.size, s.out, s.in / kGroup});
}

Status FindCodes(const Checkpoint& checkpoint, const std::string& module, QuantizedSource& s) {
  const char* const suffix = s.config.layout == Layout::kPacked ? ".weight_packed"
                             : GroupsComeFirst(s)               ? ".qweight"
                                                                : ".weight";
  LAMINA_ASSIGN_OR_RETURN(s.codes, Require(checkpoint, module + suffix));
  const int64_t per_word = 32 / s.config.bits;
  switch (s.config.layout) {
    case Layout::kPacked:
      LAMINA_RETURN_IF_ERROR(CheckType(s.codes, {"I32"}));
      return CheckShape(s.codes, {s.out, Ceil(s.in, per_word)});
    case Layout::kScaled:
      LAMINA_RETURN_IF_ERROR(CheckType(s.codes, {"I8", "F8_E4M3"}));
      return CheckShape(s.codes, {s.out, s.in});
    case Layout::kScaleInverse:
      LAMINA_RETURN_IF_ERROR(CheckType(s.codes, {"F8_E4M3"}));
      return CheckShape(s.codes, {s.out, s.in});
    case Layout::kAwq:
      LAMINA_RETURN_IF_ERROR(CheckType(s.codes, {"I32"}));
      return CheckShape(s.codes, {s.in, Ceil(s.out, per_word)});
    case Layout::kGptq:
      LAMINA_RETURN_IF_ERROR(CheckType(s.codes, {"I32"}));
      return CheckShape(s.codes, {Ceil(s.in, per_word), s.out});
    case Layout::kMxfp4: break;  // FindMxfp4
  }
  return OkStatus();
}

Status FindScales(const Checkpoint& checkpoint, const std::string& module, QuantizedSource& s) {
  const char* const suffix = s.config.layout == Layout::kScaleInverse ? ".weight_scale_inv"
                             : GroupsComeFirst(s)                     ? ".scales"
                                                                      : ".weight_scale";
  LAMINA_ASSIGN_OR_RETURN(s.scales, Require(checkpoint, module + suffix));
  LAMINA_RETURN_IF_ERROR(CheckType(s.scales, {"F32", "BF16", "F16"}));
  if (GroupsComeFirst(s)) return CheckShape(s.scales, {NumGroups(s), s.out});
  const auto size = static_cast<size_t>(
      std::accumulate(s.scales.shape.begin(), s.scales.shape.end(), int64_t{1}, std::multiplies()));
  const bool is_flat = s.scales.shape.size() < 2 || s.scales.shape[1] == 1;
  // What is written as a scale of each output may be one of the tensor, and the other way round.
  if (s.config.layout == Layout::kScaled && is_flat && s.config.scale_inputs == 0) {
    if (size == 1) s.config.scale_outputs = 0;
    if (size == static_cast<size_t>(s.out) && size > 1) s.config.scale_outputs = 1;
  }
  const int64_t rows = s.config.scale_outputs == 0 ? 1 : Ceil(s.out, s.config.scale_outputs);
  if (NumGroups(s) == 1 && is_flat && size == static_cast<size_t>(rows)) return OkStatus();
  return CheckShape(s.scales, {rows, NumGroups(s)});
}

Status FindZeros(const Checkpoint& checkpoint, const std::string& module, QuantizedSource& s) {
  if (s.config.symmetric) return OkStatus();
  const char* const suffix = GroupsComeFirst(s) ? ".qzeros" : ".weight_zero_point";
  LAMINA_ASSIGN_OR_RETURN(s.zeros, Require(checkpoint, module + suffix));
  const int64_t per_word = 32 / s.config.bits;
  if (GroupsComeFirst(s)) {
    LAMINA_RETURN_IF_ERROR(CheckType(*s.zeros, {"I32"}));
    return CheckShape(*s.zeros, {NumGroups(s), Ceil(s.out, per_word)});
  }
  if (s.codes.dtype == "F8_E4M3")
    return Unimplemented(In(*s.zeros) + ": zero points of FP8 weights");
  if (s.config.layout == Layout::kPacked && s.zeros->dtype == "I32")
    return CheckShape(*s.zeros, {Ceil(s.out, per_word), NumGroups(s)});
  LAMINA_RETURN_IF_ERROR(CheckType(*s.zeros, {"I8"}));
  return CheckShape(*s.zeros, {s.scales.shape.begin(), s.scales.shape.end()});
}

// The groups of inputs where they do not follow each other ("act-order").
Status FindGroups(const Checkpoint& checkpoint, const std::string& module, QuantizedSource& s) {
  const bool may_be = s.config.layout == Layout::kPacked || s.config.layout == Layout::kGptq;
  if (!may_be || s.config.scale_inputs == 0) return OkStatus();
  const std::optional<RawTensor> index = checkpoint.FindRaw(
      module + (s.config.layout == Layout::kPacked ? ".weight_g_idx" : ".g_idx"));
  if (!index) return OkStatus();
  LAMINA_RETURN_IF_ERROR(CheckType(*index, {"I32"}));
  LAMINA_RETURN_IF_ERROR(CheckShape(*index, {s.in}));
  bool in_order = true;
  s.group_of.resize(static_cast<size_t>(s.in));
  for (int64_t i = 0; i < s.in; ++i) {
    const auto group = At<int32_t>(*index, i);
    if (group < 0 || group >= NumGroups(s)) {
      return InvalidArgument(In(*index) + ": input " + std::to_string(i) + " is in group " +
                             std::to_string(group) + ", of which there are " +
                             std::to_string(NumGroups(s)));
    }
    s.group_of[static_cast<size_t>(i)] = group;
    in_order = in_order && group == i / s.config.scale_inputs;
  }
  if (in_order) s.group_of.clear();
  return OkStatus();
}

// The part's place in the whole matrix.
Status PlacePart(const WeightRef& weight, QuantizedSource& s) {
  // That has the outputs first whatever the plain tensor of the same name has.
  const bool is_mxfp4 = s.config.layout == Layout::kMxfp4;
  if ((weight.transposed && !is_mxfp4) || weight.shape.size() != 2) {
    return Unimplemented("tensor " + weight.name +
                         ": a quantized matrix that a model holds transposed");
  }
  s.out = WholeShape(weight)[0];
  s.in = WholeShape(weight)[1];
  s.stack = weight.stack;
  for (int64_t row = 0; row < weight.shape[0]; ++row) s.rows.push_back(RowOf(weight, row));
  s.first_input = FirstOf(weight, 1);
  s.num_inputs = weight.shape[1];
  return OkStatus();
}

// The format of the part.
void ChooseFormat(QuantizedSource& s) {
  if (s.config.layout == Layout::kMxfp4) {
    s.format = WeightFormat(WeightCode::kF4, DType::kBF16, s.config.scale_inputs);
    SetGroups(s.config.scale_inputs, s.first_input, s.in, s.format);
    return;
  }
  const DType scales = s.scales.dtype == "F16"    ? DType::kF16
                       : s.scales.dtype == "BF16" ? DType::kBF16
                                                  : DType::kF32;
  const WeightCode code = s.codes.dtype == "F8_E4M3" ? WeightCode::kF8
                          : s.config.bits == 4       ? WeightCode::kInt4
                                                     : WeightCode::kInt8;
  const WeightOffset offset = s.zeros                     ? WeightOffset::kZero
                              : code == WeightCode::kInt4 ? WeightOffset::kMinus8
                                                          : WeightOffset::kNone;
  s.format = WeightFormat(code, scales, s.config.scale_inputs, offset);
  SetGroups(s.config.scale_inputs, s.first_input, s.in, s.format);
  if (s.group_of.empty()) return;
  s.format.indexed = true;
  s.format.group = 0;
  s.format.num_groups = NumGroups(s);
}

// Fills `codes` with code(output, input) of the part.
template <typename Code>
void Fill(const QuantizedSource& s, std::vector<uint8_t>& codes, Code code) {
  const auto width = static_cast<size_t>(s.num_inputs);
  // Blocks of inputs, so that tensors in the order of inputs are read in pieces as well.
  constexpr int64_t kBlock = 64;
  for (int64_t begin = 0; begin < s.num_inputs; begin += kBlock) {
    for (size_t r = 0; r < s.rows.size(); ++r) {
      uint8_t* const to = codes.data() + r * width;
      for (int64_t i = begin; i < std::min(begin + kBlock, s.num_inputs); ++i)
        to[i] = code(s.rows[r], s.first_input + i);
    }
  }
}

void ReadCodes(const QuantizedSource& s, std::vector<uint8_t>& codes) {
  const int bits = s.config.bits;
  const int64_t per = 32 / bits, words = Ceil(s.in, per), out_words = Ceil(s.out, per);
  const uint32_t mask = bits == 4 ? 15 : 255;
  // Codes of 8 bits are stored as 0 to 255.
  const uint32_t flip = bits == 4 ? 0 : 0x80;
  switch (s.config.layout) {
    case Layout::kPacked:
      return Fill(s, codes, [&](int64_t o, int64_t i) {
        const auto word = At<uint32_t>(s.codes, o * words + i / per);
        return static_cast<uint8_t>((word >> (i % per * bits) & mask) ^ flip);
      });
    case Layout::kGptq:
      return Fill(s, codes, [&](int64_t o, int64_t i) {
        const auto word = At<uint32_t>(s.codes, i / per * s.out + o);
        return static_cast<uint8_t>((word >> (i % per * bits) & mask) ^ flip);
      });
    case Layout::kAwq:
      return Fill(s, codes, [&](int64_t o, int64_t i) {
        const auto word = At<uint32_t>(s.codes, i * out_words + o / 8);
        return static_cast<uint8_t>(word >> (4 * kAwqPlace[o % 8]) & 15);
      });
    case Layout::kScaled:
    case Layout::kScaleInverse:
      return Fill(s, codes,
                  [&](int64_t o, int64_t i) { return At<uint8_t>(s.codes, o * s.in + i); });
    case Layout::kMxfp4:
      return Fill(s, codes, [&](int64_t o, int64_t i) {
        const auto two = At<uint8_t>(s.codes, (RowInStack(s, o) * s.in + i) / 2);
        return static_cast<uint8_t>(i % 2 == 0 ? two & 15 : two >> 4);
      });
  }
}

// Which of the scales an output has in a group of the whole matrix.
int64_t ScaleIndex(const QuantizedSource& s, int64_t output, int64_t group) {
  if (GroupsComeFirst(s)) return group * s.out + output;
  return (s.config.scale_outputs == 0 ? 0 : output / s.config.scale_outputs) * NumGroups(s) + group;
}

// The scale of an output in a group of the whole matrix; not a number where the file holds none.
float ScaleAt(const QuantizedSource& s, int64_t output, int64_t group) {
  if (s.config.layout != Layout::kMxfp4)
    return NumberAt(s.scales, s.format.dtype, ScaleIndex(s, output, group));
  // E8M0: an exponent with bias 127.
  const auto exponent = At<uint8_t>(s.scales, RowInStack(s, output) * NumGroups(s) + group);
  return exponent == 255 ? std::numeric_limits<float>::quiet_NaN()
                         : std::ldexp(1.0f, exponent - 127);
}

// The zero point there.
int8_t ZeroAt(const QuantizedSource& s, int64_t output, int64_t group) {
  const int bits = s.config.bits;
  const int64_t per = 32 / bits, groups = NumGroups(s);
  const uint32_t mask = bits == 4 ? 15 : 255;
  const RawTensor& zeros = *s.zeros;
  uint32_t zero = 0;
  if (s.config.layout == Layout::kAwq) {
    zero = At<uint32_t>(zeros, group * Ceil(s.out, 8) + output / 8) >> (4 * kAwqPlace[output % 8]);
  } else if (s.config.layout == Layout::kGptq) {
    zero = At<uint32_t>(zeros, group * Ceil(s.out, per) + output / per) >> (output % per * bits);
    if (s.config.zeros_minus_one) ++zero;
  } else if (zeros.dtype == "I32") {
    zero = At<uint32_t>(zeros, output / per * groups + group) >> (output % per * bits);
  } else {
    // Relative to codes around 0, which those of 4 bits are not here.
    return static_cast<int8_t>(At<int8_t>(zeros, ScaleIndex(s, output, group)) +
                               (bits == 4 ? 8 : 0));
  }
  return static_cast<int8_t>((zero & mask) ^ (bits == 4 ? 0 : 0x80));
}

}  // namespace

Result<std::optional<QuantizedSource>> FindQuantized(const Checkpoint& checkpoint,
                                                     const QuantizationConfig& config,
                                                     const WeightRef& weight) {
  std::optional<QuantizedSource> source;
  if (const std::optional<RawTensor> plain = checkpoint.FindRaw(weight.name);
      plain && plain->dtype != "I8" && plain->dtype != "F8_E4M3")
    return source;
  if (config.layout == Layout::kMxfp4) {
    if (weight.stack.size == 0) return source;
    source.emplace().config = config;
    LAMINA_RETURN_IF_ERROR(PlacePart(weight, *source));
    LAMINA_RETURN_IF_ERROR(FindMxfp4(checkpoint, weight.name, *source));
    ChooseFormat(*source);
    return source;
  }
  constexpr std::string_view kSuffix = ".weight";
  if (!weight.name.ends_with(kSuffix)) return source;
  const std::string module = weight.name.substr(0, weight.name.size() - kSuffix.size());
  QuantizedSource& s = source.emplace();
  s.config = config;
  LAMINA_RETURN_IF_ERROR(PlacePart(weight, s));
  LAMINA_RETURN_IF_ERROR(FindCodes(checkpoint, module, s));
  LAMINA_RETURN_IF_ERROR(FindScales(checkpoint, module, s));
  LAMINA_RETURN_IF_ERROR(FindZeros(checkpoint, module, s));
  LAMINA_RETURN_IF_ERROR(FindGroups(checkpoint, module, s));
  ChooseFormat(s);
  return source;
}

Result<QuantizedMatrix> ReadQuantized(const QuantizedSource& s) {
  QuantizedMatrix m{
      .format = s.format, .out_features = std::ssize(s.rows), .in_features = s.num_inputs};
  m.codes.resize(s.rows.size() * static_cast<size_t>(s.num_inputs));
  ReadCodes(s, m.codes);
  for (int64_t i = 0; s.format.indexed && i < s.num_inputs; ++i) {
    const int64_t input = s.first_input + i;
    m.group_of.push_back(s.group_of.empty() ? static_cast<int32_t>(input / s.config.scale_inputs)
                                            : s.group_of[static_cast<size_t>(input)]);
  }
  const int64_t groups = m.num_groups();
  for (const int64_t row : s.rows) {
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t whole_group =
          s.format.indexed || s.config.scale_inputs == 0
              ? g
              : (s.first_input + g * s.format.group) / s.config.scale_inputs;
      const float scale = ScaleAt(s, row, whole_group);
      if (!(std::abs(scale) <= kMostScale)) {
        return InvalidArgument(In(s.scales) + ": the scale of output " + std::to_string(row) +
                               " is " + std::to_string(scale) + ", expected a finite number");
      }
      m.scales.push_back(scale);
      if (s.format.offset == WeightOffset::kZero) m.zeros.push_back(ZeroAt(s, row, whole_group));
    }
  }
  return m;
}

}  // namespace lamina
