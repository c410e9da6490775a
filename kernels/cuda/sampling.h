// From logits to tokens on a CUDA device: greedy only. Everything else of kernels/sampling.h needs sorted prefixes, penalties and double
// precision; the caller copies the row of logits to the host (CopyToHost) and calls lamina::Sample.
#pragma once

#include <cstdint>

#include "base/ids.h"
#include "kernels/cuda/device.h"

namespace lamina::cuda {

// tokens[r] = the likeliest token of row r (ties: lowest id), as lamina::Sample at temperature 0 without bias, bans and penalties. A NaN, a
// +inf or a row without any finite logit gives -1. logits: [rows, vocab] fp32; tokens: [rows]; device memory.
void ArgMax(const float* logits, int64_t rows, int64_t vocab, TokenId* tokens, Stream& stream);

}  // namespace lamina::cuda
