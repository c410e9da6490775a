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

// To be counted up whenever the order of panels (PackedWeights) changes.
constexpr int kLayout = 1;

std::string FormatText(const WeightFormat& format) {
  return fmt::format("{} {} {} {}", static_cast<int>(format.dtype), static_cast<int>(format.code),
                     static_cast<int>(format.offset), format.group);
}

bool HasWeights(std::string_view description) {
  const std::string_view name = description.substr(0, description.find(' '));
  return name == "config.json" || name.ends_with(".safetensors") ||
         name.ends_with(".safetensors.index.json") || name.ends_with(".gguf");
}

std::string WhatToDo(const std::string& model) {
  return "`lamina pack " + model + "` makes it anew";
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

std::string PackedSourceOf(const std::string& model) {
  std::string text = fmt::format("lamina's packed weights, layout {}\n", kLayout);
  for (const std::string& file : DescribeModelFiles(model)) {
    if (HasWeights(file)) text += file + "\n";
  }
  return text;
}

Result<std::unique_ptr<PackedFile>> PackedFile::Open(const std::string& model) {
  const std::string path = PackedPath(model);
  Result<std::unique_ptr<SafetensorsFile>> file = SafetensorsFile::Open(path);
  if (!file.ok()) {
    if (file.status().code() == StatusCode::kNotFound) return std::unique_ptr<PackedFile>();
    return Status(file.status().code(), file.status().message() + "; " + WhatToDo(model));
  }
  const std::optional<RawTensor> source = (*file)->FindRaw(kPackedSource);
  if (!source) return Corrupt(path + " does not say what it was made of; " + WhatToDo(model));
  const std::string_view says(reinterpret_cast<const char*>(source->data.data()),
                              source->data.size());
  if (says != PackedSourceOf(model)) {
    return InvalidArgument(path +
                           " was made of other files than those of the model, or by another "
                           "version of lamina; " +
                           WhatToDo(model));
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
