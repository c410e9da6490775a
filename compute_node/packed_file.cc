#include "compute_node/packed_file.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "compute_node/weight_part.h"
#include "gguf/gguf_model.h"
#include "kernels/linear.h"
#include "model/model_files.h"

namespace lamina {
namespace {

// To be counted up whenever other bytes come of the same checkpoint: by another order of panels, or
// by another way of reading quantized weights (pack_model_test.cc notices).
constexpr int kLayout = 1;

std::string_view NameOf(WeightCode code) {
  switch (code) {
    case WeightCode::kNone: return "plain";
    case WeightCode::kInt4: return "int4";
    case WeightCode::kInt8: return "int8";
    case WeightCode::kF8: return "fp8";
    case WeightCode::kF4: return "fp4";
  }
  return "";
}

std::string_view NameOf(WeightOffset offset) {
  switch (offset) {
    case WeightOffset::kNone: return "";
    case WeightOffset::kMinus8: return "-8";
    case WeightOffset::kZero: return "-zero";
    case WeightOffset::kMinimum: return "+minimum";
  }
  return "";
}

// "plain bfloat16", "int4-8 float16 g32"
std::string FormatText(const WeightFormat& format) {
  std::string text =
      fmt::format("{}{} {}", NameOf(format.code), NameOf(format.offset), DTypeName(format.dtype));
  return format.is_quantized() ? text + fmt::format(" g{}", format.group) : text;
}

}  // namespace

std::string PackedPath(const std::string& model) {
  return IsGgufPath(model) ? model + ".packed" : model + "/weights.packed";
}

std::string PackedName(const WeightRef& weight, const WeightFormat& format) {
  std::string name =
      fmt::format("{} {}x{} {}", weight.id(), weight.shape[0], weight.shape[1], FormatText(format));
  const std::vector<int64_t>& whole = WholeShape(weight);
  if (whole != weight.shape || weight.blocks.size > 0) {
    name +=
        fmt::format(" at {},{} of {}x{}, blocks of {} each {}", FirstOf(weight, 0),
                    FirstOf(weight, 1), whole[0], whole[1], weight.blocks.size, weight.blocks.step);
  }
  if (weight.stack.size > 0)
    name += fmt::format(", {} of {}", weight.stack.index, weight.stack.size);
  return name;
}

std::string PackedSourceOf(const std::vector<std::string>& paths) {
  std::string text = fmt::format("lamina's packed weights, layout {}\n", kLayout);
  for (const std::string& path : paths) text += DescribeFile(path) + "\n";
  return text;
}

Result<std::unique_ptr<PackedFile>> PackedFile::Open(const std::string& model,
                                                     const std::string& source) {
  const std::string path = PackedPath(model);
  Result<std::unique_ptr<SafetensorsFile>> file = SafetensorsFile::Open(path, /*keep_open=*/true);
  if (!file.ok()) {
    if (file.status().code() == StatusCode::kNotFound) return std::unique_ptr<PackedFile>();
    return file.status();
  }
  const std::optional<RawTensor> made_of = (*file)->FindRaw(kPackedSource);
  if (!made_of) return Corrupt(path + " does not say what it was made of");
  const std::string_view says(reinterpret_cast<const char*>(made_of->data.data()),
                              made_of->data.size());
  if (says != source) {
    return InvalidArgument(
        path + " was made of other files than those of the model, or by another version of lamina");
  }
  return std::unique_ptr<PackedFile>(new PackedFile(*std::move(file)));
}

std::span<const std::byte> PackedFile::Find(const std::string& name, const WeightFormat& format,
                                            std::span<const int64_t> shape) const {
  const std::optional<RawTensor> found = file_->FindRaw(name);
  if (!found || !IsPackable(format)) return {};
  const auto size = std::ssize(found->data);
  const bool fits = reinterpret_cast<uintptr_t>(found->data.data()) % kPackedAlignment == 0 &&
                    size % kPackedAlignment == 0 &&
                    size >= PackedWeights::SizeBytes(format, shape[0], shape[1]);
  return fits ? found->data : std::span<const std::byte>();
}

void ReadPanels(std::span<const std::byte> panels, int64_t begin, int64_t end, std::byte* to) {
  const std::byte* const from = panels.data() + begin;
  const auto size = static_cast<size_t>(end - begin);
#ifdef MADV_POPULATE_READ
  // All pages at once, instead of a fault for each few. `begin` is a multiple of a page's size.
  madvise(const_cast<std::byte*>(from), size, MADV_POPULATE_READ);
#endif
  std::memcpy(to, from, size);
}

}  // namespace lamina
