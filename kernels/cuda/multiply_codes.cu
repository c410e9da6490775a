#include "kernels/cuda/multiply_codes.h"

#include <algorithm>

#include "kernels/cuda/code_fragments.cuh"
#include "kernels/cuda/platform.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/tensor_cores.cuh"
#include "kernels/cuda/two_parts.cuh"

namespace lamina::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarpSize;
// Tiles that a block computes together: they share what is loaded of x.
constexpr int kTiles = 2;
// A multiplication has eight columns: eight rows of x, or both parts of four.
constexpr int kColumns = 8;
constexpr int kMostGroups = 8;  // groups of eight columns that a block computes together
// Floats between the sums of one column and of the next. The extra 4 put what the lanes of a warp
// write into different banks.
constexpr int kPitch = kTiles * kTileOutputs + 4;

int64_t Ceil(int64_t n, int64_t to) { return (n + to - 1) / to; }

// Groups of columns for so many rows, and how many of them a block takes: 1, 2, 4 or 8.
struct ColumnGroups {
  ColumnGroups(int64_t rows, int parts) : count(Ceil(rows * parts, kColumns)) {
    while (of_block < count && of_block < kMostGroups) of_block *= 2;
    count = Ceil(count, of_block) * of_block;
  }
  int64_t count;
  int of_block = 1;
};

struct CodeWork {
  CodeProduct product;
  Words2* x;  // [steps, column groups, lanes], the registers of b
  float* factors;
  int64_t column_groups;
};

// The column of a row's first part. The second part is four columns further on.
__device__ int64_t ColumnOf(int64_t row, int parts) {
  return parts == 1 ? row : row / 4 * kColumns + row % 4;
}

// Scales rows of x by a power of two, splits them, and puts them where lanes find them. One block
// for each row, also for those that fill up the last block's columns, which become 0.
__global__ void SplitColumns(const __grid_constant__ CodeWork work) {
  const CodeProduct& p = work.product;
  const int64_t row = blockIdx.x, column = ColumnOf(row, p.parts);
  const bool is_there = row < p.rows;
  const float* const x = p.x + row * p.in_features;
  const int exponent = is_there ? ExponentFor(LargestOf<kThreads>(x, p.in_features)) : 0;
  const float factor = ldexpf(1.0f, exponent);
  if (is_there && threadIdx.x == 0) work.factors[row] = ldexpf(1.0f, -exponent);

  Words2* const to = work.x + (column / kColumns) * kWarpSize + column % kColumns * 4;
  for (int64_t i = threadIdx.x; i < p.weights.num_places / 4; i += kThreads) {
    const int64_t step = i / 4, minor = i % 4;
    float values[4];
    LAMINA_UNROLL
    for (int j = 0; j < 4; ++j) {
      const int32_t input =
          p.weights.inputs[step * kStepPlaces + minor * 2 + j % 2 + j / 2 * kColumns];
      values[j] = is_there && input >= 0 ? x[input] * factor : 0.0f;
    }
    const TwoParts first = Split<F16>(values[0], values[1]),
                   second = Split<F16>(values[2], values[3]);
    Words2* const at = to + step * work.column_groups * kWarpSize + minor;
    at[0] = {{first.high, second.high}};
    if (p.parts == 2) at[4 * 4] = {{first.low, second.low}};
  }
}

// What a block computes: two tiles of outputs for kGroups groups of columns. Each warp takes every
// eighth piece of 16 bytes of a lane's codes.
template <WeightCode kCode, bool kMinima, int kGroups>
class CodeTiles {
 public:
  static constexpr size_t kSharedBytes =
      static_cast<size_t>(kWarps * kGroups * kColumns * kPitch) * sizeof(float);

  __device__ explicit CodeTiles(const CodeWork& work)
      : work_(work),
        weights_(work.product.weights),
        warp_(static_cast<int>(threadIdx.x) / kWarpSize),
        lane_(static_cast<int>(threadIdx.x) % kWarpSize),
        first_tile_(static_cast<int64_t>(blockIdx.x) * kTiles),
        num_pieces_(weights_.num_places / (kSteps * kStepPlaces)) {}

  __device__ void Run() {
    Words4 codes[kTiles] = {};
    if (warp_ < num_pieces_) LoadCodes(warp_, codes);
    for (int64_t piece = warp_; piece < num_pieces_; piece += kWarps) {
      // The next piece is on its way while this one is multiplied.
      Words4 next[kTiles] = {};
      if (piece + kWarps < num_pieces_) LoadCodes(piece + kWarps, next);
      AddPiece(piece, codes);
      LAMINA_UNROLL
      for (int t = 0; t < kTiles; ++t) codes[t] = next[t];
    }
    ShareSums();
    __syncthreads();
    WriteRows();
  }

 private:
  static constexpr int kSteps = HasFourBits(kCode) ? 4 : 2;  // of 16 bytes

  __device__ void LoadCodes(int64_t piece, Words4 (&codes)[kTiles]) const {
    const auto* const all = static_cast<const Words4*>(weights_.codes);
    LAMINA_UNROLL
    for (int t = 0; t < kTiles; ++t)
      codes[t] = all[((first_tile_ + t) * num_pieces_ + piece) * kWarpSize + lane_];
  }

  __device__ void AddPiece(int64_t piece, const Words4 (&codes)[kTiles]) {
    int group = -1;
    LAMINA_UNROLL
    for (int s = 0; s < kSteps; ++s) {
      const int64_t step = piece * kSteps + s;
      if (const int next = weights_.groups[step]; next != group) {
        if (s > 0) EndGroup();
        BeginGroup(group = next);
      }
      AddStep(step, s, codes);
    }
    EndGroup();
  }

  __device__ void BeginGroup(int group) {
    LAMINA_UNROLL
    for (int t = 0; t < kTiles; ++t) {
      LAMINA_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int64_t at =
            ((first_tile_ + t) * weights_.num_groups + group) * kTileOutputs + lane_ / 4 + half * 8;
        scale_[t][half] = LoadAs(weights_.scales, weights_.format.dtype, at);
        zero_[t][half] = ZeroOf<kCode>(ZeroPoint(at));
        if constexpr (kMinima)
          minimum_[t][half] = LoadAs(weights_.offsets, weights_.format.dtype, at);
      }
      LAMINA_UNROLL
      for (int c = 0; c < kGroups; ++c) Clear(in_group_[t][c]);
    }
    LAMINA_UNROLL
    for (int c = 0; c < kGroups; ++c) Clear(of_x_[kMinima ? c : 0]);
  }

  __device__ int ZeroPoint(int64_t at) const {
    switch (weights_.format.offset) {
      case WeightOffset::kMinus8: return 8;
      case WeightOffset::kZero: return static_cast<const int8_t*>(weights_.offsets)[at];
      default: return 0;
    }
  }

  __device__ void AddStep(int64_t step, int s, const Words4 (&codes)[kTiles]) {
    const Words2* const x =
        work_.x +
        (step * work_.column_groups + static_cast<int64_t>(blockIdx.y) * kGroups) * kWarpSize +
        lane_;
    uint32_t b[kGroups][2];
    LAMINA_UNROLL
    for (int c = 0; c < kGroups; ++c) {
      const Words2 words = x[c * kWarpSize];
      b[c][0] = words.word[0];
      b[c][1] = words.word[1];
    }
    LAMINA_UNROLL
    for (int t = 0; t < kTiles; ++t) {
      uint32_t a[4];
      LAMINA_UNROLL
      for (int j = 0; j < 4; ++j) a[j] = NumbersOf<kCode>(codes[t], s, j, zero_[t][j % 2]);
      LAMINA_UNROLL
      for (int c = 0; c < kGroups; ++c) MultiplyAdd<F16>(a, b[c], in_group_[t][c]);
    }
    if constexpr (kMinima) {
      // Sums of x itself, by which minima are multiplied.
      const uint32_t ones[4] = {0x3c003c00u, 0x3c003c00u, 0x3c003c00u, 0x3c003c00u};
      LAMINA_UNROLL
      for (int c = 0; c < kGroups; ++c) MultiplyAdd<F16>(ones, b[c], of_x_[c]);
    }
  }

  __device__ void EndGroup() {
    LAMINA_UNROLL
    for (int t = 0; t < kTiles; ++t) {
      LAMINA_UNROLL
      for (int c = 0; c < kGroups; ++c) {
        LAMINA_UNROLL
        for (int i = 0; i < 4; ++i) {
          sums_[t][c][i] = fmaf(scale_[t][i / 2], in_group_[t][c][i], sums_[t][c][i]);
          if constexpr (kMinima)
            sums_[t][c][i] = fmaf(minimum_[t][i / 2], of_x_[c][i], sums_[t][c][i]);
        }
      }
    }
  }

  // Where the warps leave their sums: [warps, columns, kPitch].
  __device__ static float* Shared(int warp, int column) {
    return reinterpret_cast<float*>(SharedMemory()) + (warp * kGroups * kColumns + column) * kPitch;
  }

  __device__ void ShareSums() const {
    LAMINA_UNROLL
    for (int t = 0; t < kTiles; ++t) {
      LAMINA_UNROLL
      for (int c = 0; c < kGroups; ++c) {
        LAMINA_UNROLL
        for (int i = 0; i < 4; ++i)
          Shared(warp_, c * kColumns + lane_ % 4 * 2 +
                            i % 2)[t * kTileOutputs + lane_ / 4 + i / 2 * 8] = sums_[t][c][i];
      }
    }
  }

  // Adds up the warps' sums, always in the same order, and the parts.
  __device__ void WriteRows() const {
    const CodeProduct& p = work_.product;
    const int rows = kGroups * kColumns / p.parts;
    const int64_t first_row = static_cast<int64_t>(blockIdx.y) * rows;
    const int output = static_cast<int>(threadIdx.x) % (kTiles * kTileOutputs);
    const int64_t o = first_tile_ * kTileOutputs + output;
    for (int r = static_cast<int>(threadIdx.x) / (kTiles * kTileOutputs); r < rows;
         r += kThreads / (kTiles * kTileOutputs)) {
      const int64_t row = first_row + r;
      if (row >= p.rows || o >= p.out_features) continue;
      const int column = static_cast<int>(ColumnOf(r, p.parts));
      float high = 0, low = 0;
      for (int w = 0; w < kWarps; ++w) {
        high += Shared(w, column)[output];
        if (p.parts == 2) low += Shared(w, column + 4)[output];
      }
      const float factor = work_.factors[row], sum = high + low;
      p.y[row * p.out_features + o] =
          p.bias == nullptr ? sum * factor : fmaf(sum, factor, p.bias[o]);
    }
  }

  __device__ static void Clear(float (&sums)[4]) {
    LAMINA_UNROLL
    for (int i = 0; i < 4; ++i) sums[i] = 0;
  }

  const CodeWork& work_;
  const QuantizedWeights& weights_;
  const int warp_, lane_;
  const int64_t first_tile_, num_pieces_;
  // Of the group of inputs that is being added up: for each tile, and for both of the lane's
  // outputs of a tile.
  float scale_[kTiles][2];
  uint32_t zero_[kTiles][2];
  float minimum_[kTiles][2];
  float in_group_[kTiles][kGroups][4];
  float of_x_[kMinima ? kGroups : 1][4];
  float sums_[kTiles][kGroups][4] = {};
};

template <class Tiles>
__global__ void __launch_bounds__(kThreads) RunTiles(const __grid_constant__ CodeWork work) {
  Tiles(work).Run();
}

template <WeightCode kCode, bool kMinima, int kGroups>
void LaunchTiles(const CodeWork& work, Stream& stream) {
  using Tiles = CodeTiles<kCode, kMinima, kGroups>;
  const dim3 grid(static_cast<unsigned>(Ceil(work.product.out_features, kTiles * kTileOutputs)),
                  static_cast<unsigned>(work.column_groups / kGroups));
  Launch(RunTiles<Tiles>, {grid, dim3(kThreads), Tiles::kSharedBytes}, stream, work);
}

template <WeightCode kCode, bool kMinima>
void LaunchForGroups(const CodeWork& work, int groups, Stream& stream) {
  switch (groups) {
    case 1: return LaunchTiles<kCode, kMinima, 1>(work, stream);
    case 2: return LaunchTiles<kCode, kMinima, 2>(work, stream);
    case 4: return LaunchTiles<kCode, kMinima, 4>(work, stream);
    default: return LaunchTiles<kCode, kMinima, 8>(work, stream);
  }
}

void LaunchForFormat(const CodeWork& work, int groups, Stream& stream) {
  const WeightFormat& format = work.product.weights.format;
  const bool minima = format.offset == WeightOffset::kMinimum;
  switch (format.code) {
    case WeightCode::kInt4:
      return minima ? LaunchForGroups<WeightCode::kInt4, true>(work, groups, stream)
                    : LaunchForGroups<WeightCode::kInt4, false>(work, groups, stream);
    case WeightCode::kInt8:
      return minima ? LaunchForGroups<WeightCode::kInt8, true>(work, groups, stream)
                    : LaunchForGroups<WeightCode::kInt8, false>(work, groups, stream);
    case WeightCode::kF8: return LaunchForGroups<WeightCode::kF8, false>(work, groups, stream);
    case WeightCode::kF4: return LaunchForGroups<WeightCode::kF4, false>(work, groups, stream);
    case WeightCode::kNone: break;
  }
  stream.Fail(InternalError("a product of codes with weights that are plain"));
}

}  // namespace

size_t SplitBytes(int64_t rows, int64_t num_places, int parts) {
  return static_cast<size_t>(ColumnGroups(rows, parts).count * kColumns * num_places) * sizeof(F16);
}

void MultiplyCodes(const CodeProduct& product, void* split, float* factors, Stream& stream) {
  const ColumnGroups groups(product.rows, product.parts);
  const CodeWork work{product, static_cast<Words2*>(split), factors, groups.count};
  const auto rows = static_cast<unsigned>(groups.count * kColumns / product.parts);
  Launch(SplitColumns, {dim3(rows), dim3(kThreads), kBlockSumBytes<kThreads>}, stream, work);
  LaunchForFormat(work, groups.of_block, stream);
}

}  // namespace lamina::cuda
