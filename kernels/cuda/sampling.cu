#include "kernels/cuda/sampling.h"

#include <math.h>

#include "kernels/cuda/block_search.cuh"

namespace lamina::cuda {
namespace {

static_assert(static_cast<double>(kMaxSampledVocab) / kWeightUnit <= 0x1p63,
              "a row's weights are added up in 64 bits");

__device__ uint32_t BitsOf(float x) {
#if LAMINA_CUDA_EMULATED
  return std::bit_cast<uint32_t>(x);
#else
  return __float_as_uint(x);
#endif
}
__device__ float FloatOf(uint32_t bits) {
#if LAMINA_CUDA_EMULATED
  return std::bit_cast<float>(bits);
#else
  return __uint_as_float(bits);
#endif
}

// a * b, rounded, and never contracted with a sum to a fused multiply-add, as on the CPU.
__device__ float Product(float a, float b) {
#if LAMINA_CUDA_EMULATED
  return a * b;
#else
  return __fmul_rn(a, b);
#endif
}

// Keys are unsigned integers that sort as logits do. Both zeros have the same key.
constexpr uint32_t kSign = 0x80000000u;
__device__ uint32_t KeyOf(float logit) {
  const uint32_t bits = BitsOf(logit + 0.0f);  // -0 becomes 0
  return (bits & kSign) != 0 ? ~bits : bits | kSign;
}
__device__ float LogitOf(uint32_t key) { return FloatOf((key & kSign) != 0 ? key ^ kSign : ~key); }

// Sorts by key; of equal keys the lowest id is the greatest.
__device__ uint64_t KeyAndId(uint32_t key, int64_t id) {
  return static_cast<uint64_t>(key) << 32 | static_cast<uint32_t>(~id);
}
__device__ TokenId IdOf(uint64_t key_and_id) {
  return static_cast<TokenId>(~static_cast<uint32_t>(key_and_id));
}

// Natural exponential of x <= 0, bit for bit that of kernels/cpu/simd_math.h, so that tokens are
// drawn with the weights of the CPU's sampler.
__device__ float ExpOf(float x) {
  constexpr float kShift = 12582912.0f;
  x = x > -87.3f ? x : -87.3f;
  const float shifted = fmaf(x, 1.44269504f, kShift);
  const float n = 0.0f - (shifted - kShift);
  float r = fmaf(n, 0x1.62e4p-1f, x);
  r = fmaf(n, 0x1.7f7d1cp-20f, r);
  float y = fmaf(r, 1.0f / 5040, 1.0f / 720);
  y = fmaf(y, r, 1.0f / 120);
  y = fmaf(y, r, 1.0f / 24);
  y = fmaf(y, r, 1.0f / 6);
  y = fmaf(y, r, 0.5f);
  y = fmaf(y, r, 1.0f);
  y = fmaf(y, r, 1.0f);
  return y * FloatOf((BitsOf(shifted) + 127u) << 23);
}

// exp((logit - max) * scale) as an integer, in kWeightUnit. The likeliest token has exactly
// 1 / kWeightUnit.
struct Weights {
  float max;
  float scale;
  __device__ uint64_t operator()(float logit) const {
    return static_cast<uint64_t>(ExpOf(Product(logit - max, scale)) *
                                 static_cast<float>(1 / kWeightUnit));
  }
};

// The row of logits that this block works on.
struct Row {
  float* logits;  // [vocab], device
  int64_t vocab;

  template <class Body>
  __device__ void ForEachLogit(Body body) const {
    const float* const of = logits;
    ForEach(
        vocab, [=](int64_t id) { return of[id]; }, body);
  }
  __device__ uint32_t key(int64_t id) const { return KeyOf(logits[id]); }
};

// What is known of a row after one pass over it.
struct Summary {
  bool is_sane = false;  // no NaN, no +inf, something finite
  TokenId likeliest = -1;
  float max = 0;
  int64_t num_finite = 0;
};

__device__ Summary Summarise(const Row& row) {
  constexpr uint64_t kNotANumber = ~uint64_t{0};  // stands for NaN and +inf; no finite logit has it
  uint64_t greatest = 0, num_finite = 0;
  row.ForEachLogit([&](int64_t id, float logit) {
    if (logit == -INFINITY) return;
    const uint64_t here =
        isnan(logit) || logit == INFINITY ? kNotANumber : KeyAndId(KeyOf(logit), id);
    greatest = here > greatest ? here : greatest;
    ++num_finite;
  });
  greatest = LargestOfBlock(greatest);
  num_finite = SumOfBlock(num_finite);
  if (num_finite == 0 || greatest == kNotANumber) return {};
  return {true, IdOf(greatest), LogitOf(static_cast<uint32_t>(greatest >> 32)),
          static_cast<int64_t>(num_finite)};
}

// Edits the row's logits as lamina::Sample does. Each edit's value is replaced by the logit that
// was there, for UndoEdits.
__device__ void ApplyEdits(const Row& row, const SampleRow& params, LogitEdit* edits) {
  const int n = params.num_biases;
  for (int i = static_cast<int>(threadIdx.x); i < n; i += kSearchThreads) {
    const TokenId token = edits[i].token;
    // A token may have several biases, which are neighbours. The thread of the first one applies
    // them all, in their order.
    if (i > 0 && edits[i - 1].token == token) continue;
    const float before = row.logits[token];
    float logit = before;
    for (int k = i; k < n && edits[k].token == token; ++k)
      logit = edits[k].value == -INFINITY ? -INFINITY : logit + edits[k].value;
    row.logits[token] = logit;
    edits[i].value = before;
  }
  __syncthreads();
  edits += n;
  for (int i = static_cast<int>(threadIdx.x); i < params.num_penalties; i += kSearchThreads) {
    float& logit = row.logits[edits[i].token];
    const float before = logit;
    logit = before > 0 ? before / params.repetition_penalty
                       : Product(before, params.repetition_penalty);
    logit -= edits[i].value;
    edits[i].value = before;
  }
  __syncthreads();
}

// Restores the raw logits, from which log-probabilities are computed. A token may have a bias and a
// penalty, so the later edit is undone first.
__device__ void UndoEdits(const Row& row, const SampleRow& params, const LogitEdit* edits) {
  __syncthreads();  // some threads may still read the row
  const LogitEdit* const penalties = edits + params.num_biases;
  for (int i = static_cast<int>(threadIdx.x); i < params.num_penalties; i += kSearchThreads) {
    row.logits[penalties[i].token] = penalties[i].value;
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < params.num_biases; i += kSearchThreads) {
    if (i == 0 || edits[i - 1].token != edits[i].token) row.logits[edits[i].token] = edits[i].value;
  }
  __syncthreads();
}

// What filters leave of a row: tokens with keys greater than `key`, and those with this key up to
// id `last`.
struct Kept {
  uint32_t key;
  int64_t last;
  __device__ bool Has(uint32_t of, int64_t id) const {
    return of > key || (of == key && id <= last);
  }
};

// Keeps keys greater than `key`, and of the `all` tokens that have this key the n with the lowest
// ids.
__device__ Kept KeepEqual(const Row& row, uint32_t key, uint64_t n, uint64_t all) {
  if (n >= all) return {key, row.vocab - 1};
  return {key, FindIndex(
                   row.vocab, [&](int64_t id) { return uint64_t{row.key(id) == key}; },
                   [=](uint64_t) { return n; })};
}

// Keeps the n tokens with the largest keys. REQUIRES: 0 < n <= vocab.
__device__ Kept KeepLargest(const Row& row, uint64_t n) {
  // Each thread finds its own largest key. The n-th largest of these is a lower bound for the n-th
  // largest of the row, so only keys from there on need to be counted, which are few.
  uint32_t own = 0, least = 0;
  row.ForEachLogit([&](int64_t, float logit) { own = KeyOf(logit) > own ? KeyOf(logit) : own; });
  SearchMemory& memory = MemoryOfSearch();
  __syncthreads();
  memory.of_thread[threadIdx.x] = own;
  __syncthreads();
  if (n <= kSearchThreads) {
    const auto key_at = [&](int64_t i) { return static_cast<uint32_t>(memory.of_thread[i]); };
    least = FindKey(
                kSearchThreads, key_at, [](uint32_t) { return uint64_t{1}; }, n)
                .key;
  }
  const KeyReached reached = FindKey(
      row.vocab, [&](int64_t id) { return row.key(id); },
      [=](uint32_t key) { return uint64_t{key >= least}; }, n);
  return KeepEqual(row, reached.key, n - reached.above, reached.equal);
}

// Keeps, of what is kept so far, the fewest most likely tokens that together have top_p of its
// weight (nucleus sampling, Holtzman et al. 2020).
__device__ Kept KeepTopP(const Row& row, const Weights& weight, float top_p, const Kept& kept) {
  uint64_t total = 0;
  row.ForEachLogit(
      [&](int64_t id, float logit) { total += kept.Has(KeyOf(logit), id) ? weight(logit) : 0; });
  total = SumOfBlock(total);
  const auto share = static_cast<uint64_t>(ceil(double{top_p} * static_cast<double>(total)));
  const uint64_t enough = share > 0 ? share : 1;
  // Tokens that are lighter than `least` weigh less than total - enough together, since there are
  // at most `vocab` of them. So `enough` is reached before them, and they need not be counted.
  const uint64_t least = (total - enough) / static_cast<uint64_t>(row.vocab);
  const auto amount_of = [=](uint32_t key) {
    const uint64_t amount = key >= kept.key ? weight(LogitOf(key)) : 0;
    return amount >= least ? amount : 0;
  };
  const KeyReached reached = FindKey(
      row.vocab, [&](int64_t id) { return row.key(id); }, amount_of, enough);
  // Equal keys have equal weights: of these, as many as are needed to reach `enough`, rounded up.
  const uint64_t each = weight(LogitOf(reached.key));
  return KeepEqual(row, reached.key, (enough - reached.above + each - 1) / each,
                   reached.equal / each);
}

__device__ TokenId Draw(const Row& row, const SampleRow& params, const Summary& summary) {
  const Weights weight = {summary.max, params.inverse_temperature};
  Kept kept = {KeyOf(-INFINITY), -1};  // all finite logits
  if (params.top_k > 0 && params.top_k < summary.num_finite)
    kept = KeepLargest(row, static_cast<uint64_t>(params.top_k));
  if (params.top_p < 1) kept = KeepTopP(row, weight, params.top_p, kept);
  const uint32_t least = KeyOf(summary.max - params.min_p_distance);
  if (least > kept.key) kept = {least, row.vocab - 1};
  const auto amount_at = [&](int64_t id) {
    return kept.Has(row.key(id), id) ? weight(row.logits[id]) : 0;
  };
  // The token is the first one at which the running sum exceeds random * total. Rounding must not
  // make that the total.
  const auto enough_of = [&](uint64_t total) {
    const uint64_t more = static_cast<uint64_t>(params.random * static_cast<double>(total)) + 1;
    return more < total ? more : total;
  };
  return static_cast<TokenId>(FindIndex(row.vocab, amount_at, enough_of));
}

// Writes the `num` likeliest tokens, the likeliest first. REQUIRES: num <= kSearchThreads.
__device__ void WriteTop(const Row& row, int64_t num, SampleOutput::Top* top) {
  const Kept kept = KeepLargest(row, static_cast<uint64_t>(num));
  SearchMemory& memory = MemoryOfSearch();
  __syncthreads();
  if (threadIdx.x == 0) memory.low[0] = 0;
  __syncthreads();
  row.ForEachLogit([&](int64_t id, float logit) {
    if (kept.Has(KeyOf(logit), id))
      memory.of_thread[atomicAdd(&memory.low[0], 1)] = KeyAndId(KeyOf(logit), id);
  });
  __syncthreads();
  // They were collected in any order. A token's place is the number of tokens that come before it.
  if (threadIdx.x >= num) return;
  const uint64_t own = memory.of_thread[threadIdx.x];
  int rank = 0;
  for (int i = 0; i < num; ++i) rank += memory.of_thread[i] > own;
  top[rank] = {IdOf(own), LogitOf(static_cast<uint32_t>(own >> 32))};
}

// Writes rank, logit, max, sum and top. REQUIRES: the row holds the raw logits, and `summary` is of
// these.
__device__ void WriteLogprobs(const Row& row, const Summary& summary, TokenId token, int32_t num,
                              SampleOutput& output) {
  const Weights weight = {summary.max, 1.0f};
  const uint64_t chosen = KeyAndId(row.key(token), token);
  uint64_t sum = 0, num_before = 0;
  row.ForEachLogit([&](int64_t id, float logit) {
    sum += weight(logit);
    num_before += KeyAndId(KeyOf(logit), id) > chosen;
  });
  sum = SumOfBlock(sum);
  num_before = SumOfBlock(num_before);
  if (threadIdx.x == 0) {
    output.rank = static_cast<int32_t>(num_before) + 1;
    output.logit = row.logits[token];
    output.max = summary.max;
    output.sum = sum;
  }
  if (num > 0) WriteTop(row, num < row.vocab ? num : row.vocab, output.top);
}

// One block for each row. Arguments and shapes are those of SampleTokens.
__global__ void __launch_bounds__(kSearchThreads)
    SampleRows(float* logits, int64_t vocab, const SampleRow* rows, LogitEdit* edits,
               SampleOutput* outputs) {
  const SampleRow params = rows[blockIdx.x];
  const Row row = {logits + params.row * vocab, vocab};
  SampleOutput& output = outputs[blockIdx.x];
  edits += params.first_edit;
  const bool has_edits = params.num_biases + params.num_penalties > 0;
  const Summary raw = Summarise(row);
  Summary edited = raw;
  if (raw.is_sane && has_edits) {
    ApplyEdits(row, params, edits);
    edited = Summarise(row);
  }
  TokenId token = edited.likeliest;
  if (edited.is_sane && params.inverse_temperature > 0) token = Draw(row, params, edited);
  if (threadIdx.x == 0) output.token = token;
  if (token < 0 || params.num_logprobs < 0) return;
  if (has_edits) UndoEdits(row, params, edits);
  WriteLogprobs(row, raw, token, params.num_logprobs, output);
}

}  // namespace

void SampleTokens(float* logits, int64_t vocab, const SampleRow* rows, int64_t num_rows,
                  LogitEdit* edits, SampleOutput* outputs, Stream& stream) {
  if (num_rows == 0) return;
  Launch(SampleRows,
         {dim3(static_cast<unsigned>(num_rows)), dim3(kSearchThreads), sizeof(SearchMemory)},
         stream, logits, vocab, rows, edits, outputs);
}

}  // namespace lamina::cuda
