// Sums over a block, and searches in running sums. Amounts are integers, so that no result depends
// on the order in which they are added.
//
// All threads of the block call each function together, with the same arguments but for what is
// called a thread's own, and all get the result. The block has kSearchThreads threads, and
// SearchMemory at the beginning of its shared memory.
#pragma once

#include "kernels/cuda/platform.cuh"

namespace lamina::cuda {

inline constexpr int kSearchThreads = 1024;

struct SearchMemory {
  static constexpr int kBins = 2 * kSearchThreads;

  uint64_t of_warp[kSearchThreads / kWarpSize];
  uint64_t found[2];
  unsigned low[kBins], high[kBins];  // halves of sums
  uint64_t of_thread[kSearchThreads];
};

__device__ inline SearchMemory& MemoryOfSearch() {
  return *reinterpret_cast<SearchMemory*>(SharedMemory());
}

// body(i, at(i)) for every i below n, each on one thread; some values are fetched at a time.
template <class At, class Body>
__device__ void ForEach(int64_t n, At at, Body body) {
  constexpr int kAtATime = 8;
  for (int64_t begin = threadIdx.x; begin < n; begin += kAtATime * kSearchThreads) {
    decltype(at(n)) values[kAtATime] = {};
    for (int k = 0; k < kAtATime; ++k) {
      if (begin + k * kSearchThreads < n) values[k] = at(begin + k * kSearchThreads);
    }
    for (int k = 0; k < kAtATime; ++k) {
      if (begin + k * kSearchThreads < n) body(begin + k * kSearchThreads, values[k]);
    }
  }
}

// Sum and maximum of the threads' own x.
__device__ inline uint64_t SumOfBlock(uint64_t x) {
  SearchMemory& memory = MemoryOfSearch();
  for (int lanes = kWarpSize / 2; lanes > 0; lanes /= 2) x += __shfl_xor_sync(kAllLanes, x, lanes);
  __syncthreads();  // of_warp may still be read for the call before
  if (threadIdx.x % kWarpSize == 0) memory.of_warp[threadIdx.x / kWarpSize] = x;
  __syncthreads();
  x = 0;
  for (const uint64_t sum : memory.of_warp) x += sum;
  return x;
}
__device__ inline uint64_t LargestOfBlock(uint64_t x) {
  SearchMemory& memory = MemoryOfSearch();
  const auto larger = [](uint64_t a, uint64_t b) { return a > b ? a : b; };
  for (int lanes = kWarpSize / 2; lanes > 0; lanes /= 2)
    x = larger(x, __shfl_xor_sync(kAllLanes, x, lanes));
  __syncthreads();
  if (threadIdx.x % kWarpSize == 0) memory.of_warp[threadIdx.x / kWarpSize] = x;
  __syncthreads();
  for (const uint64_t largest : memory.of_warp) x = larger(x, largest);
  return x;
}

// The first thread with which the threads' own amounts, added up in their order, reach `enough`.
// REQUIRES: 0 < enough <= all of them.
struct ThreadReached {
  unsigned thread;
  uint64_t before;  // what the threads before it have
};
__device__ inline ThreadReached FindThread(uint64_t own, uint64_t enough) {
  SearchMemory& memory = MemoryOfSearch();
  const int lane = static_cast<int>(threadIdx.x % kWarpSize),
            warp = static_cast<int>(threadIdx.x / kWarpSize);
  uint64_t sum = own;
  for (int lanes = 1; lanes < kWarpSize; lanes *= 2) {
    const uint64_t before = __shfl_sync(kAllLanes, sum, (lane - lanes) & (kWarpSize - 1));
    if (lane >= lanes) sum += before;
  }
  __syncthreads();
  if (lane == kWarpSize - 1) memory.of_warp[warp] = sum;
  __syncthreads();
  for (int i = 0; i < warp; ++i) sum += memory.of_warp[i];
  if (sum >= enough && sum - own < enough) {
    memory.found[0] = threadIdx.x;
    memory.found[1] = sum - own;
  }
  __syncthreads();
  return {static_cast<unsigned>(memory.found[0]), memory.found[1]};
}

// The greatest key with which amount_of(key) of keys key_at(0), ..., key_at(n - 1), added up from
// the greatest key downwards, reach `enough`. A radix search by histograms of 11, 11 and 10 bits.
// REQUIRES: 0 < enough <= all of them.
struct KeyReached {
  uint32_t key;
  uint64_t above;  // what greater keys have
  uint64_t equal;  // what those that equal it have
};
template <class KeyAt, class AmountOf>
__device__ KeyReached FindKey(int64_t n, KeyAt key_at, AmountOf amount_of, uint64_t enough) {
  SearchMemory& memory = MemoryOfSearch();
  const auto sum_of = [&](unsigned bin) {
    return static_cast<uint64_t>(memory.high[bin]) << 32 | memory.low[bin];
  };
  KeyReached reached = {};
  for (int above = 32, shift = 21; above > 0; above = shift, shift = shift > 10 ? 10 : 0) {
    __syncthreads();  // bins may still be read for the digit before
    for (unsigned bin = threadIdx.x; bin < SearchMemory::kBins; bin += kSearchThreads)
      memory.low[bin] = memory.high[bin] = 0;
    __syncthreads();
    ForEach(n, key_at, [&](int64_t, uint32_t key) {
      if ((static_cast<uint64_t>(key) ^ reached.key) >> above != 0) return;
      const uint64_t amount = amount_of(key);
      if (amount == 0) return;
      const unsigned digit = (key >> shift) & ((1u << (above - shift)) - 1),
                     bin = SearchMemory::kBins - 1 - digit;
      // Atomic sums of 32 bits are faster than those of 64; what the lower half carries over is
      // known from what it was.
      const auto low = static_cast<unsigned>(amount);
      const unsigned carry = low > ~atomicAdd(&memory.low[bin], low) ? 1 : 0;
      const unsigned high = static_cast<unsigned>(amount >> 32) + carry;
      if (high != 0) atomicAdd(&memory.high[bin], high);
    });
    __syncthreads();
    const auto [thread, before] =
        FindThread(sum_of(2 * threadIdx.x) + sum_of(2 * threadIdx.x + 1), enough - reached.above);
    reached.above += before;
    unsigned bin = 2 * thread;
    if (reached.above + sum_of(bin) < enough) reached.above += sum_of(bin++);
    reached.equal = sum_of(bin);
    reached.key |= (SearchMemory::kBins - 1 - bin) << shift;
  }
  return reached;
}

// The first index with which amount_at(0), ..., amount_at(n - 1), added up in their order, reach
// enough_of(all of them). REQUIRES: that is greater than 0 and at most all of them.
template <class AmountAt, class EnoughOf>
__device__ int64_t FindIndex(int64_t n, AmountAt amount_at, EnoughOf enough_of) {
  constexpr int64_t kWarps = kSearchThreads / kWarpSize;
  const auto least = [](int64_t a, int64_t b) { return a < b ? a : b; };
  // A part for each warp, first to last.
  const int64_t part = (n + kWarps - 1) / kWarps, lane = threadIdx.x % kWarpSize;
  int64_t begin = threadIdx.x / kWarpSize * part, end = least(begin + part, n);
  uint64_t sum = 0;
  for (int64_t i = begin + lane; i < end; i += kWarpSize) sum += amount_at(i);
  for (int lanes = kWarpSize / 2; lanes > 0; lanes /= 2)
    sum += __shfl_xor_sync(kAllLanes, sum, lanes);
  if (lane != 0) sum = 0;
  const uint64_t enough = enough_of(SumOfBlock(sum));
  const ThreadReached warp = FindThread(sum, enough);
  // Of the part in which they do, one for each thread.
  begin = warp.thread / kWarpSize * part;
  end = least(begin + part, n);
  const int64_t few = (part + kSearchThreads - 1) / kSearchThreads;
  sum = 0;
  for (int64_t i = begin + threadIdx.x * few; i < least(begin + (threadIdx.x + 1) * few, end); ++i)
    sum += amount_at(i);
  const ThreadReached thread = FindThread(sum, enough - warp.before);
  sum = warp.before + thread.before;
  int64_t i = begin + thread.thread * few;
  while ((sum += amount_at(i)) < enough) ++i;
  return i;
}

}  // namespace lamina::cuda
