// Sums over a block of threads, and searches in running sums, for sampling. Amounts are integers,
// so that no result depends on the order in which they are added.
//
// All threads of the block call each function together, and all get the result. Arguments are the
// same in every thread, except those that are called the thread's own. The block has kSearchThreads
// threads, and a SearchMemory at the beginning of its shared memory.
#pragma once

#include "kernels/cuda/platform.cuh"

namespace lamina::cuda {

inline constexpr int kSearchThreads = 1024;

// What the functions exchange between threads. of_thread is for callers, and low and high are too
// between calls.
struct SearchMemory {
  static constexpr int kBins = 2 * kSearchThreads;

  uint64_t of_warp[kSearchThreads / kWarpSize];
  uint64_t found[2];
  unsigned low[kBins], high[kBins];  // lower and upper halves of sums of 64 bits
  uint64_t of_thread[kSearchThreads];
};

__device__ inline SearchMemory& MemoryOfSearch() {
  return *reinterpret_cast<SearchMemory*>(SharedMemory());
}

// Calls body(i, at(i)) for every i in [0, n), each on one thread. Eight values are loaded before
// they are used, so that a thread waits for memory once and not eight times.
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

// Sum and maximum of the threads' own values x.
__device__ inline uint64_t SumOfBlock(uint64_t x) {
  SearchMemory& memory = MemoryOfSearch();
  for (int lanes = kWarpSize / 2; lanes > 0; lanes /= 2) x += __shfl_xor_sync(kAllLanes, x, lanes);
  __syncthreads();  // some threads may still read of_warp for the call before
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

// The result of FindThread.
struct ThreadReached {
  unsigned thread;
  uint64_t before;  // the sum over the threads before it
};

// Adds up the threads' own amounts in the order of threads, and returns the first thread with which
// the sum reaches `enough`. REQUIRES: 0 < enough <= the sum of all.
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

// The result of FindKey.
struct KeyReached {
  uint32_t key;
  uint64_t above;  // the sum over greater keys
  uint64_t equal;  // the sum over keys that equal it
};

// Adds up amount_of(key) of the keys key_at(0), ..., key_at(n - 1) from the greatest key downwards,
// and returns the first key with which the sum reaches `enough`. A radix search: three passes over
// the keys, each with a histogram over their next 11, 11 and 10 bits. REQUIRES: 0 < enough <= the
// sum of all.
template <class KeyAt, class AmountOf>
__device__ KeyReached FindKey(int64_t n, KeyAt key_at, AmountOf amount_of, uint64_t enough) {
  SearchMemory& memory = MemoryOfSearch();
  const auto sum_of = [&](unsigned bin) {
    return static_cast<uint64_t>(memory.high[bin]) << 32 | memory.low[bin];
  };
  KeyReached reached = {};
  for (int above = 32, shift = 21; above > 0; above = shift, shift = shift > 10 ? 10 : 0) {
    __syncthreads();  // some threads may still read the bins of the digit before
    for (unsigned bin = threadIdx.x; bin < SearchMemory::kBins; bin += kSearchThreads)
      memory.low[bin] = memory.high[bin] = 0;
    __syncthreads();
    ForEach(n, key_at, [&](int64_t, uint32_t key) {
      // Only keys that share the bits found so far.
      if ((static_cast<uint64_t>(key) ^ reached.key) >> above != 0) return;
      const uint64_t amount = amount_of(key);
      if (amount == 0) return;
      const unsigned digit = (key >> shift) & ((1u << (above - shift)) - 1),
                     bin = SearchMemory::kBins - 1 - digit;
      // Atomic sums of 32 bits are faster than those of 64. Whether the lower half carries over
      // follows from the value that it had before.
      const auto low = static_cast<unsigned>(amount);
      const unsigned carry = low > ~atomicAdd(&memory.low[bin], low) ? 1 : 0;
      const unsigned high = static_cast<unsigned>(amount >> 32) + carry;
      if (high != 0) atomicAdd(&memory.high[bin], high);
    });
    __syncthreads();
    // Bins are in descending order of digits; each thread has two of them.
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

// Adds up amount_at(0), ..., amount_at(n - 1) in their order, and returns the first index with
// which the sum reaches enough_of(the sum of all). It finds first the warp's part of the indices,
// then the thread's, then the index. REQUIRES: what enough_of returns is in [1, the sum of all].
template <class AmountAt, class EnoughOf>
__device__ int64_t FindIndex(int64_t n, AmountAt amount_at, EnoughOf enough_of) {
  constexpr int64_t kWarps = kSearchThreads / kWarpSize;
  const auto least = [](int64_t a, int64_t b) { return a < b ? a : b; };
  // Each warp sums up one part of the indices.
  const int64_t part = (n + kWarps - 1) / kWarps, lane = threadIdx.x % kWarpSize;
  int64_t begin = threadIdx.x / kWarpSize * part, end = least(begin + part, n);
  uint64_t sum = 0;
  for (int64_t i = begin + lane; i < end; i += kWarpSize) sum += amount_at(i);
  for (int lanes = kWarpSize / 2; lanes > 0; lanes /= 2)
    sum += __shfl_xor_sync(kAllLanes, sum, lanes);
  if (lane != 0) sum = 0;
  const uint64_t enough = enough_of(SumOfBlock(sum));
  const ThreadReached warp = FindThread(sum, enough);
  // The part in which the sum reaches it is divided among all threads, `few` indices each.
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
