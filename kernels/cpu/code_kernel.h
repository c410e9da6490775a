// Panels of codes (CodePanel in kernel_table.h) as numbers, written once over `class V`. Included
// by linear_kernel.h, whose tiles multiply by them.
#pragma once

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/simd_math.h"

namespace lamina {

constexpr int kCodeStep = 8;  // inputs that are decoded together

// Where the codes of an input begin, in bytes from those of input 0. REQUIRES: input % kCodeStep ==
// 0.
template <WeightCode kCode>
LAMINA_SIMD constexpr int64_t CodeBytes(int64_t inputs) {
  return inputs * kPanelWidth / (HasFourBits(kCode) ? 2 : 1);
}

// The i-th codes of words of 4 bits, as numbers.
template <class V, WeightCode kCode, int i>
LAMINA_SIMD V FourBits(const typename V::Words& words) {
  if constexpr (kCode == WeightCode::kF4)
    return V::template NibbleF4<i>(words);
  else
    return V::template Nibble<i>(words);
}

// Sixteen numbers of `dtype`.
template <class V>
LAMINA_SIMD V LoadNumbers(const std::byte* p, DType dtype) {
  if (dtype == DType::kF16) return V::Load(reinterpret_cast<const F16*>(p));
  if (dtype == DType::kBF16) return V::Load(reinterpret_cast<const BF16*>(p));
  return V::Load(reinterpret_cast<const float*>(p));
}

// What makes numbers of the codes of a panel's outputs in one group.
template <class V>
struct CodeScale {
  V scale;  // with kF8: over kF8Scale, since such codes are loaded times kF8Scale
  V offset;
};

template <class V, WeightCode kCode>
LAMINA_SIMD CodeScale<V> LoadCodeScale(const WeightFormat& format, const CodePanel& parts,
                                       const std::byte* panel, int64_t group) {
  const int64_t bytes = kPanelWidth * (format.dtype == DType::kF32 ? 4 : 2);
  const V scale = LoadNumbers<V>(panel + parts.scales + group * bytes, format.dtype);
  CodeScale<V> loaded = {scale, V::Zero()};
  const std::byte* const offsets = panel + parts.offsets;
  switch (format.offset) {
    case WeightOffset::kNone: break;
    case WeightOffset::kMinus8: loaded.offset = scale * V::Set(-8); break;
    case WeightOffset::kZero:
      loaded.offset = V::Zero() - scale * V::Load(reinterpret_cast<const int8_t*>(offsets) +
                                                  group * kPanelWidth);
      break;
    case WeightOffset::kMinimum:
      loaded.offset = LoadNumbers<V>(offsets + group * bytes, format.dtype);
      break;
  }
  if constexpr (kCode == WeightCode::kF8) loaded.scale = scale * V::Set(1 / kF8Scale);
  return loaded;
}

// Decodes 8 inputs of a panel. to: [8, kPanelWidth].
template <class V, WeightCode kCode>
LAMINA_SIMD void DecodeEight(const std::byte* codes, const CodeScale<V>& s, float* to) {
  if constexpr (HasFourBits(kCode)) {
    const typename V::Words words = V::LoadWords(reinterpret_cast<const uint32_t*>(codes));
    Fma(FourBits<V, kCode, 0>(words), s.scale, s.offset).Store(to);
    Fma(FourBits<V, kCode, 1>(words), s.scale, s.offset).Store(to + 1 * kPanelWidth);
    Fma(FourBits<V, kCode, 2>(words), s.scale, s.offset).Store(to + 2 * kPanelWidth);
    Fma(FourBits<V, kCode, 3>(words), s.scale, s.offset).Store(to + 3 * kPanelWidth);
    Fma(FourBits<V, kCode, 4>(words), s.scale, s.offset).Store(to + 4 * kPanelWidth);
    Fma(FourBits<V, kCode, 5>(words), s.scale, s.offset).Store(to + 5 * kPanelWidth);
    Fma(FourBits<V, kCode, 6>(words), s.scale, s.offset).Store(to + 6 * kPanelWidth);
    Fma(FourBits<V, kCode, 7>(words), s.scale, s.offset).Store(to + 7 * kPanelWidth);
  } else if constexpr (kCode == WeightCode::kInt8) {
    const auto* c = reinterpret_cast<const int8_t*>(codes);
#pragma GCC unroll 8
    for (int i = 0; i < kCodeStep; ++i, c += kPanelWidth)
      Fma(V::Load(c), s.scale, s.offset).Store(to + i * kPanelWidth);
  } else {
    const auto* c = reinterpret_cast<const F8*>(codes);
#pragma GCC unroll 4
    for (int i = 0; i < kCodeStep; i += 2, c += 2 * kPanelWidth) {
      Fma(V::LoadFirstScaled(c), s.scale, s.offset).Store(to + i * kPanelWidth);
      Fma(V::LoadSecondScaled(c), s.scale, s.offset).Store(to + (i + 1) * kPanelWidth);
    }
  }
}

// The same where each input names its group. groups: [num].
template <class V, WeightCode kCode>
LAMINA_SIMD void DecodeIndexed(const WeightFormat& format, const CodePanel& parts,
                               const std::byte* panel, const std::byte* codes,
                               const int32_t* groups, int64_t num, float* to) {
  DecodeEight<V, kCode>(codes, {V::Set(kCode == WeightCode::kF8 ? 1 / kF8Scale : 1), V::Zero()},
                        to);
  for (int64_t i = 0; i < num; ++i, to += kPanelWidth) {
    const CodeScale<V> s = LoadCodeScale<V, WeightCode::kInt8>(format, parts, panel, groups[i]);
    Fma(V::Load(to), s.scale, s.offset).Store(to);
  }
}

// Decodes inputs [first, first + depth) of a panel. Where in_features is no multiple of 8, as many
// more are written as make one. REQUIRES: first % 8 == 0. index: the layer's groups, [in_features],
// if the format is indexed. to: [depth rounded up to a multiple of 8, kPanelWidth].
template <class V, WeightCode kCode>
void DecodePanel(const WeightFormat& format, const CodePanel& parts, const std::byte* panel,
                 const int32_t* index, int64_t first, int64_t depth, float* to) {
  const std::byte* codes = panel + CodeBytes<kCode>(first);
  const int64_t end = first + depth;
  for (int64_t k = first; k < end;) {
    const int64_t group = format.indexed || format.group == 0 ? 0 : k / format.group;
    int64_t group_end = format.indexed || format.group == 0 ? end : (group + 1) * format.group;
    if (group_end > end) group_end = end;
    const CodeScale<V> scale = LoadCodeScale<V, kCode>(format, parts, panel, group);
    for (; k < group_end; k += kCodeStep, to += kCodeStep * kPanelWidth) {
      if (format.indexed) {
        DecodeIndexed<V, kCode>(format, parts, panel, codes, index + k,
                                end - k < kCodeStep ? end - k : kCodeStep, to);
      } else {
        DecodeEight<V, kCode>(codes, scale, to);
      }
      codes += CodeBytes<kCode>(kCodeStep);
    }
  }
}

}  // namespace lamina
