// From logits to tokens on a CUDA device: kernels/sampling.h, for all rows of a step in one launch.
// What the host has to do with it stands in host/sampler.h.
//
// A row's result depends on nothing but the row, and is the same bits each time. Weights exp((logit
// - max) / temperature) are those of lamina::Sample, cut to multiples of 2^-43; then all sums are
// exact. So the borders of the draw and of top-p are off by at most vocab * 2^-43 of the likeliest
// token's weight (2e-8 of all, with a vocabulary of 128k), and the token is lamina::Sample's but
// for draws that close to a border. Both are within 4e-6 of all from exact arithmetic. Logits are
// changed, sorted and filtered exactly.
#pragma once

#include <cstdint>
#include <limits>

#include "base/ids.h"
#include "kernels/cuda/device.h"
#include "kernels/sampling.h"

namespace lamina::cuda {

inline constexpr int64_t kMaxSampledVocab = int64_t{1} << 20;
inline constexpr int32_t kMaxTopLogprobs = 20;
inline constexpr double kWeightUnit = 0x1p-43;

// A row of logits, and SamplingParams as the device takes them.
struct SampleRow {
  int64_t row = 0;                // of the logits
  double random = 0;              // [0, 1)
  float inverse_temperature = 0;  // 0: greedy
  float top_p = 1;
  // From the largest logit: temperature * -log(min_p).
  float min_p_distance = std::numeric_limits<float>::infinity();
  float repetition_penalty = 1;
  int32_t top_k = 0;
  int32_t num_logprobs = -1;  // at most kMaxTopLogprobs
  int32_t first_edit = 0;     // of the edits: LogitEdits of this row, biases, then penalties
  int32_t num_biases = 0;
  int32_t num_penalties = 0;
};

// As SampledToken; logprobs are left to the host: logit - max - log(sum * kWeightUnit).
struct SampleOutput {
  struct Top {
    TokenId token;
    float logit;
  };

  TokenId token;
  // The others are set if num_logprobs >= 0 and there is a token. Logits are raw.
  int32_t rank;
  float logit;
  float max;
  uint64_t sum;  // of exp(logit - max) over the row, in kWeightUnit
  Top top[kMaxTopLogprobs];
};

// outputs[i] is what lamina::Sample makes of rows[i]. logits: [any, vocab] fp32; rows, outputs:
// [num_rows]; device memory. Overwrites edits, and logits where there are edits. REQUIRES: no row
// of logits twice; 0 < vocab <= kMaxSampledVocab.
void SampleTokens(float* logits, int64_t vocab, const SampleRow* rows, int64_t num_rows,
                  LogitEdit* edits, SampleOutput* outputs, Stream& stream);

}  // namespace lamina::cuda
