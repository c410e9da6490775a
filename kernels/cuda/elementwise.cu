#include "kernels/cuda/elementwise.h"

#include <math.h>

#include "kernels/cuda/platform.cuh"
#include "kernels/cuda/reduce.cuh"

namespace lamina::cuda {
namespace {

constexpr int kThreads = 256;

// As many blocks as the elements need, but no more than keep every multiprocessor busy several
// times over; then each thread takes several elements.
constexpr int64_t kMaxBlocks = 8192;
LaunchShape OverElements(int64_t n) {
  const int64_t blocks = (n + kThreads - 1) / kThreads;
  return {dim3(static_cast<unsigned>(blocks < kMaxBlocks ? blocks : kMaxBlocks)), dim3(kThreads),
          0};
}

__device__ int64_t FirstElement() {
  return static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
}
__device__ int64_t ElementStep() { return static_cast<int64_t>(gridDim.x) * kThreads; }

// Map and ForEach: y[i] = f(x[i]); MapPairs and ForEachPair: y[i] = f(a[i], b[i]). All arrays: [n].
template <class F>
__global__ void Map(const float* x, int64_t n, float* y, F f) {
  for (int64_t i = FirstElement(); i < n; i += ElementStep()) y[i] = f(x[i]);
}
template <class F>
__global__ void MapPairs(const float* a, const float* b, int64_t n, float* y, F f) {
  for (int64_t i = FirstElement(); i < n; i += ElementStep()) y[i] = f(a[i], b[i]);
}
template <class F>
void ForEach(const float* x, int64_t n, float* y, F f, Stream& stream) {
  if (n > 0) Launch(Map<F>, OverElements(n), stream, x, n, y, f);
}
template <class F>
void ForEachPair(const float* a, const float* b, int64_t n, float* y, F f, Stream& stream) {
  if (n > 0) Launch(MapPairs<F>, OverElements(n), stream, a, b, n, y, f);
}

__device__ float SiluOf(float x) { return x / (1.0f + expf(-x)); }
// (1 + tanh(u)) / 2 is 1 / (1 + e^-2u), with u = sqrt(2 / pi) * (x + 0.044715 x^3).
__device__ float GeluTanhOf(float x) {
  return x / (1.0f + expf(-1.5957691216f * (x + 0.044715f * x * x * x)));
}
// erfc keeps its relative precision where 1 + erf would cancel. At -inf it is 0, and -inf * 0 would
// be NaN.
__device__ float GeluOf(float x) {
  return x == -INFINITY ? -0.0f : 0.5f * x * erfcf(-0.70710678f * x);
}

struct SiluFunction {
  __device__ float operator()(float x) const { return SiluOf(x); }
  __device__ float operator()(float gate, float up) const { return SiluOf(gate) * up; }
};
struct SwigluOaiFunction {
  float limit;
  // A NaN is neither more than the limit nor less.
  __device__ float operator()(float gate, float up) const {
    const float g = gate > limit ? limit : gate;
    const float u = up > limit ? limit : up < -limit ? -limit : up;
    return g / (1.0f + expf(-1.702f * g)) * (u + 1.0f);
  }
};
struct GeluTanhFunction {
  __device__ float operator()(float x) const { return GeluTanhOf(x); }
  __device__ float operator()(float gate, float up) const { return GeluTanhOf(gate) * up; }
};
struct GeluFunction {
  __device__ float operator()(float x) const { return GeluOf(x); }
};
struct ReluFunction {
  __device__ float operator()(float x) const { return x < 0 ? 0.0f : x; }  // NaN is not less
};
struct ScaleFunction {
  float factor;
  __device__ float operator()(float x) const { return x * factor; }
};
struct SoftCapFunction {
  float cap;
  __device__ float operator()(float x) const { return cap * tanhf(x / cap); }
};
struct AddFunction {
  __device__ float operator()(float a, float b) const { return a + b; }
};
struct MulFunction {
  __device__ float operator()(float a, float b) const { return a * b; }
};

// The following kernels take the arguments of the functions in elementwise.h, with the same shapes.
__global__ void EmbedRows(const void* table, DType dtype, int64_t dim, const TokenId* tokens,
                          float* y) {
  const int64_t from = static_cast<int64_t>(tokens[blockIdx.x]) * dim,
                to = static_cast<int64_t>(blockIdx.x) * dim;
  for (int64_t d = threadIdx.x; d < dim; d += blockDim.x)
    y[to + d] = LoadAs(table, dtype, from + d);
}

__global__ void Convert(const void* x, DType from, int64_t n, void* y, DType to) {
  for (int64_t i = FirstElement(); i < n; i += ElementStep())
    StoreKvAs(LoadKvAs(x, from, i), y, to, i);
}

// One block for each row, in this and the following kernels. Every thread takes every kThreads-th
// element, so sums are added up in the same order whatever the number of rows.
__global__ void NormRows(const float* x, const float* weight, float eps, int64_t dim, float* y) {
  x += static_cast<int64_t>(blockIdx.x) * dim;
  y += static_cast<int64_t>(blockIdx.x) * dim;
  float squares = 0;
  for (int64_t d = threadIdx.x; d < dim; d += kThreads) squares = fmaf(x[d], x[d], squares);
  const float scale = 1.0f / sqrtf(BlockSum<kThreads>(squares) / static_cast<float>(dim) + eps);
  for (int64_t d = threadIdx.x; d < dim; d += kThreads)
    y[d] = x[d] * scale * (weight == nullptr ? 1.0f : weight[d]);
}

// A thread reads back only elements of `sum` that it wrote itself, so that sum and y may be inputs.
__global__ void AddNormRows(const float* a, const float* b, const float* weight, float eps,
                            int64_t dim, float* sum, float* y) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * dim;
  float squares = 0;
  for (int64_t d = threadIdx.x; d < dim; d += kThreads) {
    const float both = a[row + d] + b[row + d];
    sum[row + d] = both;
    squares = fmaf(both, both, squares);
  }
  const float scale = 1.0f / sqrtf(BlockSum<kThreads>(squares) / static_cast<float>(dim) + eps);
  for (int64_t d = threadIdx.x; d < dim; d += kThreads)
    y[row + d] = sum[row + d] * scale * (weight == nullptr ? 1.0f : weight[d]);
}

// In two passes, the mean first: E[x^2] - E[x]^2 would lose digits where the mean is large.
__global__ void LayerNormRows(const float* x, LayerNormWeights weights, float eps, int64_t dim,
                              float* y) {
  x += static_cast<int64_t>(blockIdx.x) * dim;
  y += static_cast<int64_t>(blockIdx.x) * dim;
  float sum = 0;
  for (int64_t d = threadIdx.x; d < dim; d += kThreads) sum += x[d];
  const float mean = BlockSum<kThreads>(sum) / static_cast<float>(dim);
  float squares = 0;
  for (int64_t d = threadIdx.x; d < dim; d += kThreads)
    squares = fmaf(x[d] - mean, x[d] - mean, squares);
  const float scale = 1.0f / sqrtf(BlockSum<kThreads>(squares) / static_cast<float>(dim) + eps);
  const int64_t set = static_cast<int64_t>(blockIdx.x) % weights.sets * dim;
  for (int64_t d = threadIdx.x; d < dim; d += kThreads) {
    const float weight = weights.weight == nullptr ? 1.0f : weights.weight[set + d],
                bias = weights.bias == nullptr ? 0.0f : weights.bias[set + d];
    y[d] = fmaf((x[d] - mean) * scale, weight, bias);
  }
}

// One block for each row. A thread takes pairs of its heads, or single elements beyond the pairs.
// Each pair is read and written by one thread, so y may be x.
__global__ void RotateRows(const float* x, const int32_t* positions, const float* inv_freq,
                           RopeShape shape, float* y) {
  const int half = shape.rotary_dim / 2, rest = shape.head_dim - shape.rotary_dim,
            per_head = half + rest;
  const auto position = static_cast<float>(positions[blockIdx.x]);
  const int64_t row = static_cast<int64_t>(blockIdx.x) * shape.num_heads * shape.head_dim;
  for (int i = static_cast<int>(threadIdx.x); i < shape.num_heads * per_head; i += kThreads) {
    const int64_t head = row + static_cast<int64_t>(i / per_head) * shape.head_dim;
    const int j = i % per_head;
    if (j >= half) {
      y[head + half + j] = x[head + half + j];
      continue;
    }
    float sine, cosine;
    sincosf(position * inv_freq[j], &sine, &cosine);
    sine *= shape.scale;
    cosine *= shape.scale;
    const int64_t first = head + (shape.interleaved ? 2 * j : j),
                  second = shape.interleaved ? first + 1 : first + half;
    const float a = x[first], b = x[second];
    y[first] = a * cosine - b * sine;
    y[second] = b * cosine + a * sine;
  }
}

__global__ void GateRows(const float* gate, const float* x, int64_t dim, float* y) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * dim;
  const float factor = 1.0f / (1.0f + expf(-gate[blockIdx.x]));
  for (int64_t d = threadIdx.x; d < dim; d += kThreads) y[row + d] = x[row + d] * factor;
}

__global__ void GrowRows(const float* x, const int32_t* positions, PositionGrowth growth,
                         int64_t dim, float* y) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * dim;
  const float steps = floorf((static_cast<float>(positions[blockIdx.x]) + 1.0f) / growth.period);
  const float factor = log1pf(steps) * growth.scale + 1.0f;
  for (int64_t d = threadIdx.x; d < dim; d += kThreads) y[row + d] = x[row + d] * factor;
}

LaunchShape OverRows(int64_t rows) {
  return {dim3(static_cast<unsigned>(rows)), dim3(kThreads), 0};
}
LaunchShape OverRowsWithSums(int64_t rows) {
  return {dim3(static_cast<unsigned>(rows)), dim3(kThreads), kBlockSumBytes<kThreads>};
}

}  // namespace

void Embedding(const void* table, DType dtype, int64_t dim, const TokenId* tokens, int64_t rows,
               float* y, Stream& stream) {
  if (rows > 0) Launch(EmbedRows, OverRows(rows), stream, table, dtype, dim, tokens, y);
}

void RmsNorm(const float* x, const float* weight, float eps, int64_t rows, int64_t dim, float* y,
             Stream& stream) {
  if (rows > 0) Launch(NormRows, OverRowsWithSums(rows), stream, x, weight, eps, dim, y);
}

void AddRmsNorm(const float* a, const float* b, const float* weight, float eps, int64_t rows,
                int64_t dim, float* sum, float* y, Stream& stream) {
  if (rows > 0) Launch(AddNormRows, OverRowsWithSums(rows), stream, a, b, weight, eps, dim, sum, y);
}

void LayerNorm(const float* x, const LayerNormWeights& weights, float eps, int64_t rows,
               int64_t dim, float* y, Stream& stream) {
  if (rows > 0) Launch(LayerNormRows, OverRowsWithSums(rows), stream, x, weights, eps, dim, y);
}

void Rope(const float* x, const int32_t* positions, const float* inv_freq, const RopeShape& shape,
          int64_t rows, float* y, Stream& stream) {
  if (rows > 0) Launch(RotateRows, OverRows(rows), stream, x, positions, inv_freq, shape, y);
}

void SiluMul(const float* gate, const float* up, int64_t n, float* y, Stream& stream) {
  ForEachPair(gate, up, n, y, SiluFunction{}, stream);
}
void SwigluOai(const float* gate, const float* up, float limit, int64_t n, float* y,
               Stream& stream) {
  ForEachPair(gate, up, n, y, SwigluOaiFunction{limit}, stream);
}
void GeluMul(const float* gate, const float* up, int64_t n, float* y, Stream& stream) {
  ForEachPair(gate, up, n, y, GeluTanhFunction{}, stream);
}
void Silu(const float* x, int64_t n, float* y, Stream& stream) {
  ForEach(x, n, y, SiluFunction{}, stream);
}
void GeluTanh(const float* x, int64_t n, float* y, Stream& stream) {
  ForEach(x, n, y, GeluTanhFunction{}, stream);
}
void Gelu(const float* x, int64_t n, float* y, Stream& stream) {
  ForEach(x, n, y, GeluFunction{}, stream);
}
void Relu(const float* x, int64_t n, float* y, Stream& stream) {
  ForEach(x, n, y, ReluFunction{}, stream);
}
void Scale(const float* x, float factor, int64_t n, float* y, Stream& stream) {
  ForEach(x, n, y, ScaleFunction{factor}, stream);
}
void SoftCap(const float* x, float cap, int64_t n, float* y, Stream& stream) {
  ForEach(x, n, y, SoftCapFunction{cap}, stream);
}
void Add(const float* a, const float* b, int64_t n, float* y, Stream& stream) {
  ForEachPair(a, b, n, y, AddFunction{}, stream);
}
void Mul(const float* a, const float* b, int64_t n, float* y, Stream& stream) {
  ForEachPair(a, b, n, y, MulFunction{}, stream);
}

void SigmoidGate(const float* gate, const float* x, int64_t rows, int64_t dim, float* y,
                 Stream& stream) {
  if (rows > 0) Launch(GateRows, OverRows(rows), stream, gate, x, dim, y);
}

void GrowByPosition(const float* x, const int32_t* positions, const PositionGrowth& growth,
                    int64_t rows, int64_t dim, float* y, Stream& stream) {
  if (rows > 0) Launch(GrowRows, OverRows(rows), stream, x, positions, growth, dim, y);
}

void ConvertFromFloat(const float* x, int64_t n, DType dtype, void* y, Stream& stream) {
  if (n > 0) Launch(Convert, OverElements(n), stream, x, DType::kF32, n, y, dtype);
}

void ConvertToFloat(const void* x, DType dtype, int64_t n, float* y, Stream& stream) {
  if (n > 0) Launch(Convert, OverElements(n), stream, x, dtype, n, y, DType::kF32);
}

}  // namespace lamina::cuda
