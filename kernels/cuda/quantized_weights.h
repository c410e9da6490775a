// Quantized weights of a linear layer (kernels/weight_format.h) in the memory of a CUDA device, in
// the order in which tensor cores take them.
//
// Places. A layer's inputs are brought into the order of their groups, and each group is filled up
// to a multiple of 16 places, so that a step of a tensor core, which takes 16 places, has one scale
// for each output. Groups of 32, 64 and 128 that follow each other need no filling. At the end the
// layer is filled up to a multiple of 64 places. A place that no input has holds code 0, and x is 0
// there.
//
// Codes. 16 outputs are a tile. A lane's 16 bytes of a tile hold the codes of four steps, if they
// have 4 bits, or of two, in the order of the four registers of `a` in tensor_cores.cuh: with 4
// bits a step is a word, whose nibble j has the first element of register j and whose nibble j + 4
// the second one; with 8 bits a step is two words, of which the first has both elements of register
// 0 and then of register 1. Whole numbers of 8 bits are stored as code + 128.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device.h"
#include "kernels/weight_format.h"

namespace lamina::cuda {

inline constexpr int kTileOutputs = 16;
inline constexpr int kStepPlaces = 16;

// Owns nothing; all pointers are to device memory. Tiles are counted in pairs: there is an even
// number of them, and outputs beyond the last one have code 0 and scale 0.
struct QuantizedWeights {
  const void* codes = nullptr;   // [tiles, places, 16 outputs], ordered as above; null: plain
  const void* scales = nullptr;  // [tiles, groups, 16 outputs] of format.dtype
  const void* offsets =
      nullptr;  // the same of zero points (int8) or minima; null if there are none
  const int32_t* inputs = nullptr;  // [places], the input at each place, or -1
  const int32_t* groups = nullptr;  // [places / 16], the group of each step
  int64_t num_places = 0;
  int64_t num_groups = 0;
  WeightFormat format = DType::kBF16;
};

// Where the parts of a layer lie in one piece of memory, in bytes from its beginning.
struct QuantizedLayout {
  // For any matrix of this format and size. An indexed format gets as many places as it may need.
  QuantizedLayout(const WeightFormat& format, int64_t out_features, int64_t in_features);

  int64_t num_tiles;
  int64_t num_places;
  int64_t num_groups;
  size_t scales, offsets, inputs, groups;  // codes are at 0
  size_t size_bytes;

  // The view of a layer that lies at `memory`, which is aligned to 256 bytes.
  QuantizedWeights At(const std::byte* memory, const WeightFormat& format) const;
};

// Brings the codes of some of a layer's outputs into their places. codes: [num_outputs,
// in_features], a byte each, device; first_output and num_outputs are multiples of 32, or the
// latter goes to the layer's end. `weights.inputs` must have been written before, in the stream's
// order. to: the memory at weights.codes.
void PackCodes(const QuantizedWeights& weights, const uint8_t* codes, int64_t in_features,
               int64_t first_output, int64_t num_outputs, void* to, Stream& stream);

}  // namespace lamina::cuda
