// Linear layers: one thread's share of the panels (LinearArgs in kernel_table.h), written once over
// `class V`.
//
// A tile holds rows x panels of sums in registers and adds input after input to them, converting
// weights as it reads them: with few rows it is bound by reading the weights, with many rows the
// conversion disappears among the multiplications. Rows are taken in blocks whose inputs are packed
// to fit the L2 cache, a block's rows in tiles, and every sum gets its inputs in ascending order.
//
// Quantized weights are decoded in registers where a block has one tile, which is then bound by
// reading the codes. With several tiles they are decoded once to the scratch memory.
#pragma once

#include <type_traits>

#include "kernels/cpu/code_kernel.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/simd_math.h"

namespace lamina {

// The sizes of tiles and blocks. The sums of a tile, its weights and one x must fit the registers.
template <class V>
struct TileLimits {
  static constexpr bool kWide = V::kRegisters >= 32;
  static constexpr int kMaxRows = kWide ? 12 : 5;
  // Panels that a tile of so many rows takes. Few rows take several at once, so that the chains of
  // dependent additions overlap. All tiles of a block with more than kMaxRows rows have at least
  // half of kMaxRows, and so the same number of panels.
  static constexpr int Panels(int rows) {
    if (kWide) return rows <= 5 ? 4 : 2;
    return rows == 1 ? 4 : rows == 2 ? 2 : 1;
  }
  // With so few rows a block of x has room for 2,048 inputs: sums are stored to y and loaded again
  // only every 2,048 inputs, and those of a panel soon after each other. With blocks of 180 rows,
  // which leave room for 512 inputs, a call with 512 rows takes a tenth longer.
  static constexpr int64_t kMaxBlockRows = 48;
  // Inputs per step of a block with several tiles, which all read the same weights in turn: 16 KiB
  // of a panel in 16 bits.
  static constexpr int64_t kDepth = 512;
  // How far ahead of their use weights are prefetched where a block has one tile, in elements of a
  // panel. Hardware prefetch alone loses up to 15 % at 3 to 12 rows, and a third where the last
  // tile of a step prefetches the weights of the next step (see BlockPanels).
  static constexpr int64_t kPrefetch = 1024;
  // The same for codes, in bytes of a panel.
  static constexpr int64_t kPrefetchCodes = 2048;
};

// The element type of weights.
template <DType kDType>
struct WeightsOf;
template <>
struct WeightsOf<DType::kF32> {
  using Element = float;
};
template <>
struct WeightsOf<DType::kBF16> {
  using Element = BF16;
};
template <>
struct WeightsOf<DType::kF16> {
  using Element = F16;
};

// What one tile computes: `depth` inputs of kRows rows and kPanels panels.
struct TileArgs {
  const void* weights;   // the first panel, at the first of these inputs
  int64_t panel_stride;  // elements from one panel to the next
  const float* x;        // [depth, kRows]
  int64_t depth;
  bool add_to_y;      // continue the sums in y, else begin with 0
  const float* bias;  // [outputs], at the tile's first one; added if not null
  float* y;           // [rows, y_stride], at the tile's first row and output
  int64_t y_stride;
  int last_width;    // outputs of the last panel, at most kPanelWidth
  int64_t prefetch;  // weights are prefetched this many elements ahead of their use
};

// Begins the sums of a tile: 0 or those in y.
template <class V, int kRows, int kPanels>
LAMINA_SIMD void LoadSums(const TileArgs& a, V (&sum)[kRows][kPanels]) {
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int p = 0; p < kPanels; ++p) {
      const float* y = a.y + r * a.y_stride + p * kPanelWidth;
      if (!a.add_to_y) {
        sum[r][p] = V::Zero();
      } else if (p == kPanels - 1 && a.last_width < kPanelWidth) {
        sum[r][p] = LoadFirst<V>(y, a.last_width);
      } else {
        sum[r][p] = V::Load(y);
      }
    }
  }
}

// Stores the sums of a tile to y, plus bias if that is not null.
template <class V, int kRows, int kPanels>
LAMINA_SIMD void StoreSums(const TileArgs& a, const V (&sum)[kRows][kPanels]) {
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int p = 0; p < kPanels; ++p) {
      float* y = a.y + r * a.y_stride + p * kPanelWidth;
      const float* bias = a.bias == nullptr ? nullptr : a.bias + p * kPanelWidth;
      if (p == kPanels - 1 && a.last_width < kPanelWidth) {
        StoreFirst(bias == nullptr ? sum[r][p] : sum[r][p] + LoadFirst<V>(bias, a.last_width), y,
                   a.last_width);
      } else {
        (bias == nullptr ? sum[r][p] : sum[r][p] + V::Load(bias)).Store(y);
      }
    }
  }
}

// sum[r][p] += x[r] * w[p], one input. x: [kRows].
template <class V, int kRows, int kPanels>
LAMINA_SIMD void AddInput(const float* x, const V (&w)[kPanels], V (&sum)[kRows][kPanels]) {
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    const V xr = V::Set(x[r]);
#pragma GCC unroll 8
    for (int p = 0; p < kPanels; ++p) sum[r][p] = Fma(xr, w[p], sum[r][p]);
  }
}

// Two inputs, k and k + 1, of bf16 panels. The odd weights are loaded after the even ones are used,
// so that never more than one vector of weights per panel is live: one more would spill sums. x:
// [2, kRows]; w: the first panel, at input k.
template <class V, int kRows, int kPanels>
LAMINA_SIMD void AddTwoInputs(const float* x, const BF16* w, int64_t panel_stride,
                              V (&sum)[kRows][kPanels]) {
  V wk[kPanels];
#pragma GCC unroll 8
  for (int p = 0; p < kPanels; ++p) wk[p] = V::LoadEven(w + p * panel_stride);
  AddInput(x, wk, sum);
#pragma GCC unroll 8
  for (int p = 0; p < kPanels; ++p) wk[p] = V::LoadOdd(w + p * panel_stride);
  AddInput(x + kRows, wk, sum);
}

template <int kPanels, typename T>
LAMINA_SIMD void PrefetchWeights(const T* w, int64_t panel_stride) {
#pragma GCC unroll 8
  for (int p = 0; p < kPanels; ++p) __builtin_prefetch(w + p * panel_stride);
}

// Computes one tile.
template <class V, DType kDType, int kRows, int kPanels>
[[gnu::noinline]] void Tile(const TileArgs& a) {
  const auto* w = static_cast<const typename WeightsOf<kDType>::Element*>(a.weights);
  const float* x = a.x;
  V sum[kRows][kPanels];
  LoadSums(a, sum);
  int64_t k = 0;
  if constexpr (kDType == DType::kBF16) {
    for (; k + 2 <= a.depth; k += 2, w += 2 * kPanelWidth, x += 2 * kRows) {
      PrefetchWeights<kPanels>(w + a.prefetch, a.panel_stride);
      AddTwoInputs(x, w, a.panel_stride, sum);
    }
    // An odd last input: its weights are the even ones of a pair, which is padded by zeros.
    if (k < a.depth) {
      V last[kPanels];
#pragma GCC unroll 8
      for (int p = 0; p < kPanels; ++p) last[p] = V::LoadEven(w + p * a.panel_stride);
      AddInput(x, last, sum);
    }
  } else {
    for (; k < a.depth; ++k, w += kPanelWidth, x += kRows) {
      PrefetchWeights<kPanels>(w + a.prefetch, a.panel_stride);
      V wk[kPanels];
#pragma GCC unroll 8
      for (int p = 0; p < kPanels; ++p) wk[p] = V::Load(w + p * a.panel_stride);
      AddInput(x, wk, sum);
    }
  }
  StoreSums(a, sum);
}

// What one tile of a quantized layer computes. `weights` is where the first panel begins, and
// panel_stride and prefetch are in bytes.
struct CodeTileArgs : TileArgs {
  const WeightFormat* format;
  CodePanel parts;
  int64_t first;  // input, a multiple of 8
};

// Adds inputs i to 7 of 8.
template <class V, WeightCode kCode, int i, int kRows, int kPanels>
LAMINA_SIMD void AddNibbles(const typename V::Words (&words)[kPanels], const float* x,
                            const CodeScale<V> (&s)[kPanels], V (&sum)[kRows][kPanels]) {
  V w[kPanels];
#pragma GCC unroll 8
  for (int p = 0; p < kPanels; ++p)
    w[p] = Fma(FourBits<V, kCode, i>(words[p]), s[p].scale, s[p].offset);
  AddInput(x + i * kRows, w, sum);
  if constexpr (i + 1 < kCodeStep) AddNibbles<V, kCode, i + 1>(words, x, s, sum);
}

// Adds 8 inputs of codes. codes: of the first panel; x: [8, kRows].
template <class V, WeightCode kCode, int kRows, int kPanels>
LAMINA_SIMD void AddEightInputs(const std::byte* codes, int64_t panel_stride, const float* x,
                                const CodeScale<V> (&s)[kPanels], V (&sum)[kRows][kPanels]) {
  if constexpr (HasFourBits(kCode)) {
    typename V::Words words[kPanels];
#pragma GCC unroll 8
    for (int p = 0; p < kPanels; ++p)
      words[p] = V::LoadWords(reinterpret_cast<const uint32_t*>(codes + p * panel_stride));
    AddNibbles<V, kCode, 0>(words, x, s, sum);
  } else {
    V w[kPanels];
#pragma GCC unroll 8
    for (int i = 0; i < kCodeStep; ++i) {
#pragma GCC unroll 8
      for (int p = 0; p < kPanels; ++p) {
        const std::byte* const c = codes + p * panel_stride;
        V code;
        if constexpr (kCode == WeightCode::kInt8) {
          code = V::Load(reinterpret_cast<const int8_t*>(c) + i * kPanelWidth);
        } else if (i % 2 == 0) {
          code = V::LoadFirstScaled(reinterpret_cast<const F8*>(c) + i * kPanelWidth);
        } else {
          code = V::LoadSecondScaled(reinterpret_cast<const F8*>(c) + (i - 1) * kPanelWidth);
        }
        w[p] = Fma(code, s[p].scale, s[p].offset);
      }
      AddInput(x + i * kRows, w, sum);
    }
  }
}

// Adds the last inputs of the layer, fewer than 8.
template <class V, WeightCode kCode, int kRows, int kPanels>
LAMINA_SIMD void AddLastInputs(const std::byte* codes, int64_t panel_stride, const float* x,
                               int64_t num, const CodeScale<V> (&s)[kPanels],
                               V (&sum)[kRows][kPanels]) {
  alignas(64) float decoded[kPanels][kCodeStep * kPanelWidth];
#pragma GCC unroll 8
  for (int p = 0; p < kPanels; ++p)
    DecodeEight<V, kCode>(codes + p * panel_stride, s[p], decoded[p]);
  for (int64_t i = 0; i < num; ++i) {
    V w[kPanels];
#pragma GCC unroll 8
    for (int p = 0; p < kPanels; ++p) w[p] = V::Load(decoded[p] + i * kPanelWidth);
    AddInput(x + i * kRows, w, sum);
  }
}

// Computes one tile of a quantized layer whose format is not indexed.
template <class V, WeightCode kCode, int kRows, int kPanels>
[[gnu::noinline]] void CodeTile(const CodeTileArgs& a) {
  const auto* const panel = static_cast<const std::byte*>(a.weights);
  const std::byte* codes = panel + CodeBytes<kCode>(a.first);
  const float* x = a.x;
  V sum[kRows][kPanels];
  LoadSums(a, sum);
  const int64_t end = a.first + a.depth;
  for (int64_t k = a.first; k < end;) {
    const int64_t group = a.format->group == 0 ? 0 : k / a.format->group;
    int64_t group_end = a.format->group == 0 ? end : (group + 1) * a.format->group;
    if (group_end > end) group_end = end;
    CodeScale<V> s[kPanels];
#pragma GCC unroll 8
    for (int p = 0; p < kPanels; ++p)
      s[p] = LoadCodeScale<V, kCode>(*a.format, a.parts, panel + p * a.panel_stride, group);
    for (; k + kCodeStep <= group_end; k += kCodeStep, x += kCodeStep * kRows) {
      PrefetchWeights<kPanels>(codes + a.prefetch, a.panel_stride);
      if constexpr (!HasFourBits(kCode))
        PrefetchWeights<kPanels>(codes + a.prefetch + 64, a.panel_stride);
      AddEightInputs<V, kCode>(codes, a.panel_stride, x, s, sum);
      codes += CodeBytes<kCode>(kCodeStep);
    }
    if (k < group_end) {
      AddLastInputs<V, kCode>(codes, a.panel_stride, x, group_end - k, s, sum);
      break;
    }
  }
  StoreSums(a, sum);
}

using CodeTileFunction = void (*)(const CodeTileArgs&);

// As FindTile.
template <class V, WeightCode kCode, int kRows = TileLimits<V>::kMaxRows>
LAMINA_SIMD CodeTileFunction FindCodeTile(int64_t rows, bool one_panel) {
  if (rows == kRows)
    return one_panel ? &CodeTile<V, kCode, kRows, 1>
                     : &CodeTile<V, kCode, kRows, TileLimits<V>::Panels(kRows)>;
  if constexpr (kRows > 1) {
    return FindCodeTile<V, kCode, kRows - 1>(rows, one_panel);
  } else {
    return nullptr;
  }
}

using TileFunction = void (*)(const TileArgs&);

// The tile for `rows` rows and TileLimits::Panels(rows) panels, or for one panel. Null if there is
// none: rows must be in [1, kMaxRows].
template <class V, DType kDType, int kRows = TileLimits<V>::kMaxRows>
LAMINA_SIMD TileFunction FindTile(int64_t rows, bool one_panel) {
  if (rows == kRows)
    return one_panel ? &Tile<V, kDType, kRows, 1>
                     : &Tile<V, kDType, kRows, TileLimits<V>::Panels(kRows)>;
  if constexpr (kRows > 1) {
    return FindTile<V, kDType, kRows - 1>(rows, one_panel);
  } else {
    return nullptr;
  }
}

// How the rows of a block are divided into `count` tiles, whose sizes differ by one at most.
struct RowTiles {
  int64_t rows;
  int64_t count;
  LAMINA_SIMD int64_t Begin(int64_t tile) const { return rows * tile / count; }
};

// Packs a block of x for its tiles, one after the other: to[k][r] = x[r][k] for each. x: [rows,
// x_stride]; to: for each tile [depth, its rows].
template <class V>
void PackX(const float* x, int64_t x_stride, const RowTiles& tiles, int64_t depth, float* to) {
  for (int64_t t = 0; t < tiles.count; ++t) {
    const int64_t begin = tiles.Begin(t), n = tiles.Begin(t + 1) - begin;
    for (int64_t r = 0; r < n; ++r) {
      const float* from = x + (begin + r) * x_stride;
      for (int64_t k = 0; k < depth; ++k) to[k * n + r] = from[k];
    }
    to += n * depth;
  }
}

// Rows [row, row + tiles.rows) and inputs [k_begin, k_begin + depth) of a linear layer.
struct LinearBlock {
  int64_t row;
  RowTiles tiles;
  int64_t k_begin;
  int64_t depth;
  const float* x;  // packed: for each tile [depth, its rows]
};

// The part of a tile's arguments that all tiles of a block's inputs [k, k + depth) share, but for
// what says where the weights are.
template <class Tile>
LAMINA_SIMD void BeginTiles(const LinearArgs& args, const LinearBlock& block, int64_t panel,
                            int64_t n, int64_t k, int64_t depth, Tile& tile) {
  const int64_t left = args.out_features - (panel + n - 1) * kPanelWidth;
  tile.y_stride = args.out_features;
  tile.last_width = static_cast<int>(left < kPanelWidth ? left : kPanelWidth);
  tile.depth = depth;
  tile.add_to_y = block.k_begin + k > 0;
  // The bias is added last, after the last input.
  const bool ends_sum = block.k_begin + k + depth == args.in_features;
  tile.bias = args.bias != nullptr && ends_sum ? args.bias + panel * kPanelWidth : nullptr;
}

// The rows of tile `t` of these. Returns their number.
template <class Tile>
LAMINA_SIMD int64_t PlaceTile(const LinearArgs& args, const LinearBlock& block, int64_t panel,
                              int64_t k, int64_t t, Tile& tile) {
  const int64_t first = block.tiles.Begin(t), rows = block.tiles.Begin(t + 1) - first;
  tile.x = block.x + first * block.depth + k * rows;
  tile.y = args.y + (block.row + first) * args.out_features + panel * kPanelWidth;
  return rows;
}

// Computes all rows of a block against `n` panels from `panel` on. With several tiles, inputs go in
// steps, so that the weights that one tile has read are in L1 or L2 for the others.
template <class V, DType kDType>
void BlockPanels(const LinearArgs& args, const LinearBlock& block, int64_t panel, int64_t n) {
  using Element = typename WeightsOf<kDType>::Element;
  const int64_t stride = PanelElements(kDType, args.in_features);
  const int64_t step = block.tiles.count == 1 ? block.depth : TileLimits<V>::kDepth;
  TileArgs tile = {};
  tile.panel_stride = stride;
  for (int64_t k = 0; k < block.depth; k += step) {
    BeginTiles(args, block, panel, n, k, block.depth - k < step ? block.depth - k : step, tile);
    tile.weights = static_cast<const Element*>(args.panels) + panel * stride +
                   (block.k_begin + k) * kPanelWidth;
    for (int64_t t = 0; t < block.tiles.count; ++t) {
      const int64_t rows = PlaceTile(args, block, panel, k, t, tile);
      // With several tiles the weights of this step come from a cache but for the first tile; the
      // last tile prefetches those of the next step.
      tile.prefetch = block.tiles.count == 1       ? TileLimits<V>::kPrefetch
                      : t + 1 == block.tiles.count ? step * kPanelWidth
                                                   : 0;
      FindTile<V, kDType>(rows, n == 1)(tile);
    }
  }
}

// The same with quantized weights that are decoded in the tile. REQUIRES: the block has one tile
// and the format is not indexed.
template <class V, WeightCode kCode>
void BlockInCodes(const LinearArgs& args, const LinearBlock& block, int64_t panel, int64_t n,
                  const CodePanel& parts) {
  CodeTileArgs tile = {};
  BeginTiles(args, block, panel, n, 0, block.depth, tile);
  const int64_t rows = PlaceTile(args, block, panel, 0, 0, tile);
  tile.weights = static_cast<const std::byte*>(args.panels) + panel * parts.size;
  tile.panel_stride = parts.size;
  tile.prefetch = TileLimits<V>::kPrefetchCodes;
  tile.format = &args.format;
  tile.parts = parts;
  tile.first = block.k_begin;
  FindCodeTile<V, kCode>(rows, n == 1)(tile);
}

// The same with quantized weights that are decoded to `decoded` before.
template <class V, WeightCode kCode>
void BlockDecoded(const LinearArgs& args, const LinearBlock& block, int64_t panel, int64_t n,
                  const CodePanel& parts, float* decoded) {
  const auto* const panels = static_cast<const std::byte*>(args.panels);
  const int64_t num_panels = (args.out_features + kPanelWidth - 1) / kPanelWidth;
  const auto* const index = reinterpret_cast<const int32_t*>(panels + num_panels * parts.size);
  constexpr int64_t kRoom = LinearScratch::kWFloats / kPanelWidth;  // inputs of all n panels
  const int64_t step = kRoom / n < TileLimits<V>::kDepth ? kRoom / n : TileLimits<V>::kDepth;
  TileArgs tile = {};
  tile.weights = decoded;
  tile.panel_stride = step * kPanelWidth;
  for (int64_t k = 0; k < block.depth; k += step) {
    BeginTiles(args, block, panel, n, k, block.depth - k < step ? block.depth - k : step, tile);
    for (int64_t p = 0; p < n; ++p) {
      DecodePanel<V, kCode>(args.format, parts, panels + (panel + p) * parts.size, index,
                            block.k_begin + k, tile.depth, decoded + p * tile.panel_stride);
    }
    for (int64_t t = 0; t < block.tiles.count; ++t) {
      const int64_t rows = PlaceTile(args, block, panel, k, t, tile);
      FindTile<V, DType::kF32>(rows, n == 1)(tile);
    }
  }
}

// Panels [begin, end) with weights of kWeights, a DType or a WeightCode.
template <class V, auto kWeights>
void LinearPanelsOf(const LinearArgs& args, int64_t begin, int64_t end, LinearScratch& scratch) {
  using Limits = TileLimits<V>;
  [[maybe_unused]] const CodePanel parts = CodePanel::Of(args.format, args.in_features);
  const int64_t blocks = (args.rows + Limits::kMaxBlockRows - 1) / Limits::kMaxBlockRows;
  for (int64_t b = 0; b < blocks; ++b) {
    const int64_t row = args.rows * b / blocks, rows = args.rows * (b + 1) / blocks - row;
    const RowTiles tiles = {rows, (rows + Limits::kMaxRows - 1) / Limits::kMaxRows};
    // A single row is not packed: as it stands it is [depth, 1].
    const int64_t step = rows == 1
                             ? args.in_features
                             : LinearScratch::kXFloats / rows / Limits::kDepth * Limits::kDepth;
    const int64_t wide = Limits::Panels(static_cast<int>(tiles.Begin(1)));
    for (int64_t k = 0; k < args.in_features; k += step) {
      LinearBlock block = {row, tiles, k, args.in_features - k < step ? args.in_features - k : step,
                           args.x + row * args.in_features + k};
      if (rows > 1) {
        PackX<V>(block.x, args.in_features, tiles, block.depth, scratch.x);
        block.x = scratch.x;
      }
      // As many panels at a time as a tile takes, and what is left one by one.
      for (int64_t p = begin, n; p < end; p += n) {
        n = p + wide <= end ? wide : 1;
        if constexpr (std::is_same_v<decltype(kWeights), DType>) {
          BlockPanels<V, kWeights>(args, block, p, n);
        } else if (tiles.count == 1 && !args.format.indexed) {
          BlockInCodes<V, kWeights>(args, block, p, n, parts);
        } else {
          BlockDecoded<V, kWeights>(args, block, p, n, parts, scratch.w);
        }
      }
    }
  }
}

// KernelTable::linear.
template <class V>
void LinearPanels(const LinearArgs& args, int64_t begin, int64_t end, LinearScratch& scratch) {
  switch (args.format.code) {
    case WeightCode::kNone: break;
    case WeightCode::kInt4: return LinearPanelsOf<V, WeightCode::kInt4>(args, begin, end, scratch);
    case WeightCode::kInt8: return LinearPanelsOf<V, WeightCode::kInt8>(args, begin, end, scratch);
    case WeightCode::kF8: return LinearPanelsOf<V, WeightCode::kF8>(args, begin, end, scratch);
    case WeightCode::kF4: return LinearPanelsOf<V, WeightCode::kF4>(args, begin, end, scratch);
  }
  switch (args.format.dtype) {
    case DType::kF32: return LinearPanelsOf<V, DType::kF32>(args, begin, end, scratch);
    case DType::kBF16: return LinearPanelsOf<V, DType::kBF16>(args, begin, end, scratch);
    case DType::kF16: return LinearPanelsOf<V, DType::kF16>(args, begin, end, scratch);
    case DType::kF8:
    case DType::kI8Scaled:
    case DType::kF8Scaled: return;  // PackedWeights requires another type
  }
}

}  // namespace lamina
