#include "kernels/cuda/quantized_weights.h"

#include "kernels/cuda/platform.cuh"
#include "kernels/cuda/vectors.cuh"

namespace lamina::cuda {
namespace {

constexpr int kThreads = 128;
constexpr size_t kAlignment = 256;

int64_t Ceil(int64_t n, int64_t to) { return (n + to - 1) / to; }
size_t Aligned(int64_t bytes) { return static_cast<size_t>(Ceil(bytes, kAlignment)) * kAlignment; }

// The places of a layer, but for those that fill it up at the end.
int64_t PlacesOfGroups(const WeightFormat& format, int64_t in_features) {
  const int64_t steps = Ceil(in_features, kStepPlaces);
  // Each group may end amid a step.
  if (format.indexed) return (steps + format.num_groups) * kStepPlaces;
  const int64_t group = format.group == 0 ? in_features : format.group;
  return (in_features / group * Ceil(group, kStepPlaces) + Ceil(in_features % group, kStepPlaces)) *
         kStepPlaces;
}

// One output's code at a place.
struct CodeSource {
  const uint8_t* codes;  // [num_outputs, in_features]
  const int32_t* inputs;
  int64_t num_outputs, in_features;
  uint32_t flipped;  // bits that are stored the other way round

  __device__ uint32_t At(int64_t output, int64_t place) const {
    const int32_t input = inputs[place];
    return input < 0 || output >= num_outputs ? flipped
                                              : codes[output * in_features + input] ^ flipped;
  }
  // Both elements of register j of a step's `a`, the second one `apart` bits above the first.
  __device__ uint32_t PairAt(int64_t first_output, int64_t step, int lane, int j, int apart) const {
    const int64_t output = first_output + lane / 4 + j % 2 * 8,
                  place = step * kStepPlaces + lane % 4 * 2 + j / 2 * 8;
    return At(output, place) | At(output, place + 1) << apart;
  }
};

// One thread for each lane of a tile's pieces of 16 bytes. The grid is (pieces of threads, tiles).
// to: where the first tile's codes begin.
__global__ void Pack(CodeSource source, bool four_bits, int64_t num_places, Words4* to) {
  const int64_t lanes = num_places / (four_bits ? 64 : 32) * kWarpSize;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= lanes) return;
  const int lane = static_cast<int>(i % kWarpSize);
  const int64_t piece = i / kWarpSize, output = static_cast<int64_t>(blockIdx.y) * kTileOutputs;
  Words4 words = {};
  LAMINA_UNROLL
  for (int w = 0; w < 4; ++w) {
    if (four_bits) {
      for (int j = 0; j < 4; ++j)
        words.word[w] |= source.PairAt(output, piece * 4 + w, lane, j, 16) << 4 * j;
    } else {
      for (int j = 0; j < 2; ++j)
        words.word[w] |= source.PairAt(output, piece * 2 + w / 2, lane, w % 2 * 2 + j, 8) << 16 * j;
    }
  }
  to[static_cast<int64_t>(blockIdx.y) * lanes + i] = words;
}

}  // namespace

QuantizedLayout::QuantizedLayout(const WeightFormat& format, int64_t out_features,
                                 int64_t in_features)
    : num_tiles(Ceil(out_features, 2 * kTileOutputs) * 2),
      num_places(Ceil(PlacesOfGroups(format, in_features), 64) * 64),
      num_groups(format.NumGroups(in_features)) {
  const int64_t numbers = num_tiles * num_groups * kTileOutputs,
                number = static_cast<int64_t>(ElementSize(format.dtype));
  const int64_t offset = format.offset == WeightOffset::kZero      ? 1
                         : format.offset == WeightOffset::kMinimum ? number
                                                                   : 0;
  scales = Aligned(num_tiles * kTileOutputs * num_places / (HasFourBits(format.code) ? 2 : 1));
  offsets = scales + Aligned(numbers * number);
  inputs = offsets + Aligned(numbers * offset);
  groups = inputs + Aligned(num_places * 4);
  size_bytes = groups + Aligned(num_places / kStepPlaces * 4);
}

QuantizedWeights QuantizedLayout::At(const std::byte* memory, const WeightFormat& format) const {
  const bool has_offsets = inputs > offsets;
  return {memory,
          memory + scales,
          has_offsets ? memory + offsets : nullptr,
          reinterpret_cast<const int32_t*>(memory + inputs),
          reinterpret_cast<const int32_t*>(memory + groups),
          num_places,
          num_groups,
          format};
}

void PackCodes(const QuantizedWeights& weights, const uint8_t* codes, int64_t in_features,
               int64_t first_output, int64_t num_outputs, void* to, Stream& stream) {
  if (num_outputs == 0) return;
  const bool four_bits = HasFourBits(weights.format.code);
  const int64_t tiles = Ceil(num_outputs, 2 * kTileOutputs) * 2,
                lanes = weights.num_places / (four_bits ? 64 : 32) * kWarpSize;
  const uint32_t flipped = weights.format.code == WeightCode::kInt8 ? 0x80 : 0;
  Launch(Pack,
         {dim3(static_cast<unsigned>(Ceil(lanes, kThreads)), static_cast<unsigned>(tiles)),
          dim3(kThreads), 0},
         stream, CodeSource{codes, weights.inputs, num_outputs, in_features, flipped}, four_bits,
         weights.num_places, static_cast<Words4*>(to) + first_output / kTileOutputs * lanes);
}

}  // namespace lamina::cuda
