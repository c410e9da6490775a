#include "kernels/cuda/host/upload_quantized.h"

#include <algorithm>
#include <vector>

#include "kernels/elementwise.h"

namespace lamina::cuda {
namespace {

constexpr int64_t kMostScratch = 1 << 20;  // bytes of codes that are on the device in plain order

// Which input each place holds (-1: none), and which group each step belongs to.
struct Places {
  std::vector<int32_t> inputs, groups;
};

Places PlacesOf(const QuantizedMatrix& matrix, const QuantizedLayout& layout) {
  std::vector<std::vector<int32_t>> of_group(static_cast<size_t>(layout.num_groups));
  for (int64_t i = 0; i < matrix.in_features; ++i)
    of_group[static_cast<size_t>(matrix.GroupOf(i))].push_back(static_cast<int32_t>(i));
  Places places;
  for (size_t group = 0; group < of_group.size(); ++group) {
    std::vector<int32_t>& inputs = of_group[group];
    const size_t steps = (inputs.size() + kStepPlaces - 1) / kStepPlaces;
    inputs.resize(steps * kStepPlaces, -1);
    places.inputs.insert(places.inputs.end(), inputs.begin(), inputs.end());
    places.groups.resize(places.groups.size() + steps, static_cast<int32_t>(group));
  }
  places.inputs.resize(static_cast<size_t>(layout.num_places), -1);
  places.groups.resize(static_cast<size_t>(layout.num_places / kStepPlaces),
                       static_cast<int32_t>(layout.num_groups - 1));
  return places;
}

// [outputs, groups] as [tiles, groups, 16 outputs], with 0 where there is no such output.
template <typename T>
std::vector<T> ByTiles(const std::vector<T>& of_outputs, int64_t out_features,
                       const QuantizedLayout& layout) {
  std::vector<T> by_tiles(static_cast<size_t>(layout.num_tiles * layout.num_groups * kTileOutputs));
  for (int64_t o = 0; o < out_features; ++o) {
    for (int64_t g = 0; g < layout.num_groups; ++g) {
      const int64_t at = (o / kTileOutputs * layout.num_groups + g) * kTileOutputs;
      by_tiles[static_cast<size_t>(at + o % kTileOutputs)] =
          of_outputs[static_cast<size_t>(o * layout.num_groups + g)];
    }
  }
  return by_tiles;
}

template <typename T>
void CopyAll(const std::vector<T>& values, std::byte* device, StagedStream& stream) {
  stream.Copy(values.data(), values.size() * sizeof(T), device);
}

// Numbers of the format's type: scales or minima.
void CopyNumbers(const std::vector<float>& of_outputs, int64_t out_features, DType dtype,
                 const QuantizedLayout& layout, std::byte* device, StagedStream& stream) {
  const std::vector<float> numbers = ByTiles(of_outputs, out_features, layout);
  std::vector<std::byte> encoded(numbers.size() * ElementSize(dtype));
  ConvertFromFloat(numbers.data(), std::ssize(numbers), dtype, encoded.data());
  CopyAll(encoded, device, stream);
}

}  // namespace

LinearWeights UploadQuantized(const QuantizedMatrix& matrix, std::byte* place,
                              DeviceBuffer& scratch, StagedStream& stream) {
  const WeightFormat& format = matrix.format;
  const int64_t out = matrix.out_features, in = matrix.in_features;
  const QuantizedLayout layout(format, out, in);
  const Places places = PlacesOf(matrix, layout);
  CopyAll(places.inputs, place + layout.inputs, stream);
  CopyAll(places.groups, place + layout.groups, stream);
  CopyNumbers(matrix.scales, out, format.dtype, layout, place + layout.scales, stream);
  if (format.offset == WeightOffset::kZero)
    CopyAll(ByTiles(matrix.zeros, out, layout), place + layout.offsets, stream);
  if (format.offset == WeightOffset::kMinimum)
    CopyNumbers(matrix.minima, out, format.dtype, layout, place + layout.offsets, stream);

  const QuantizedWeights weights = layout.At(place, format);
  constexpr int64_t kPair = 2 * kTileOutputs;
  const int64_t at_a_time = std::clamp<int64_t>(kMostScratch / (in * kPair), 1, 1024) * kPair;
  GrowTo(static_cast<size_t>(std::min(at_a_time, out) * in), stream, scratch);
  for (int64_t first = 0; first < out; first += at_a_time) {
    const int64_t count = std::min(at_a_time, out - first);
    stream.Copy(matrix.codes.data() + first * in, static_cast<size_t>(count * in), scratch.data());
    PackCodes(weights, scratch.as<uint8_t>(), in, first, count, place, stream.stream());
  }
  return {.out_features = out, .in_features = in, .quantized = weights};
}

}  // namespace lamina::cuda
