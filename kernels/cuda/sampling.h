// Chooses tokens from logits on a CUDA device: kernels/sampling.h, for all rows of a step in one
// launch. host/sampler.h does the host's part of it.
//
// A row's result depends on nothing but the row, and has the same bits each time. The weights
// exp((logit - max) / temperature) are those of lamina::Sample, truncated to multiples of 2^-43,
// which makes all sums exact. So the borders of the draw and of top-p are off by at most vocab *
// 2^-43 of the likeliest token's weight (2e-8 of the total, with a vocabulary of 128k), and the
// token is that of lamina::Sample except for draws that close to a border. Both samplers' borders
// differ from exact arithmetic by at most 4e-6 of the total. Logits are changed, sorted and
// filtered exactly.
#pragma once

#include <cstdint>
#include <limits>

#include "base/ids.h"
#include "kernels/cuda/device.h"
#include "kernels/sampling.h"

namespace lamina::cuda {

inline constexpr int64_t kMaxSampledVocab = int64_t{1} << 20;
inline constexpr int32_t kMaxTopLogprobs = 20;
inline constexpr double kWeightUnit = 0x1p-43;  // weights are multiples of this

// A row of logits and its SamplingParams, as the device takes them.
struct SampleRow {
  int64_t row = 0;                // of the logits
  double random = 0;              // [0, 1): what the token is drawn with
  float inverse_temperature = 0;  // 0: greedy
  float top_p = 1;
  // temperature * -log(min_p): how far below the largest logit a token may be.
  float min_p_distance = std::numeric_limits<float>::infinity();
  float repetition_penalty = 1;
  int32_t top_k = 0;          // 0: off
  int32_t num_logprobs = -1;  // at most kMaxTopLogprobs; the meaning is that of SamplingParams
  // The row's LogitEdits: biases edits[first_edit, first_edit + num_biases), then its penalties.
  int32_t first_edit = 0;
  int32_t num_biases = 0;
  int32_t num_penalties = 0;
};

// A chosen token. Log-probabilities are left to the host: logit - max - log(sum * kWeightUnit).
struct SampleOutput {
  struct Top {
    TokenId token;
    float logit;
  };

  TokenId token;  // -1: the logits were unusable (see lamina::Sample)
  // The following are set if num_logprobs >= 0 and there is a token. Logits are the raw ones.
  int32_t rank;              // of the token, 1: the most likely
  float logit;               // of the token
  float max;                 // the largest logit of the row
  uint64_t sum;              // of exp(logit - max) over the row, in kWeightUnit
  Top top[kMaxTopLogprobs];  // the num_logprobs most likely tokens, the most likely first
};

// Sets outputs[i] to what lamina::Sample makes of rows[i]. logits: [any, vocab] fp32; rows,
// outputs: [num_rows]; edits: [all that `rows` name]; all device memory. Overwrites the edits, and
// logits of rows that have edits. REQUIRES: no row of logits occurs twice; 0 < vocab <=
// kMaxSampledVocab.
void SampleTokens(float* logits, int64_t vocab, const SampleRow* rows, int64_t num_rows,
                  LogitEdit* edits, SampleOutput* outputs, Stream& stream);

}  // namespace lamina::cuda
