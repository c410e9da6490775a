// Runs kernels that are written for a GPU on the CPU, to test them where there is no GPU. Blocks
// run one after another, and each thread of a block is a fiber that runs until it has to wait for
// others. Nothing here is fast.
//
// A launch fails, and says why, with: a barrier that not all threads of the block reach, or that
// they reach in different places; warp functions that lack a lane of their mask; a launch that
// hardware would refuse. Other mistakes show in results or under AddressSanitizer: dynamic shared
// memory is a heap allocation for each block, filled with NaN, and so are fresh allocations
// (emulation/runtime.h). A missing barrier between uses of shared memory shows when results change
// with the order of threads (SetOrder).
//
// Not emulated: communication between running blocks, static __shared__ variables, and threads of
// a warp that diverge in ways that these functions do not show.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

struct uint3 {
  unsigned x = 0, y = 0, z = 0;
};
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned dx = 1, unsigned dy = 1, unsigned dz = 1)
      : x(dx), y(dy), z(dz) {}  // NOLINT(google-explicit-constructor)
};

namespace lamina::cuda::emulation {

// Sets the order in which threads run, for all launches from now on. Order 0: threads in ascending
// order, and asynchronous copies as late as allowed. Any other value is a seed by which threads are
// shuffled in each pass over the block; odd values also make asynchronous copies as early as
// possible. Thread: any.
void SetOrder(uint64_t order);

// Runs `thread` for every thread of every block, each block with `shared_bytes` of shared memory.
// Returns "" or what went wrong; blocks after a failure do not run.
std::string RunGrid(dim3 grid, dim3 block, size_t shared_bytes,
                    const std::function<void()>& thread);

// Why hardware refuses such a launch; "" if it does not. (Limits of compute capability 9.0, CUDA
// C++ Programming Guide, "Technical Specifications per Compute Capability".)
std::string RefusedLaunch(dim3 grid, dim3 block, size_t shared_bytes);

// Which thread of the launch is running. RunGrid sets them.
struct Coordinates {
  uint3 thread, block;
  dim3 block_size, grid_size;
  std::byte* shared = nullptr;
};
inline constinit thread_local Coordinates coordinates;

// A line of a kernel. Here() as a default argument is the caller's line. (std::source_location
// would do the same, but clang 14 does not have it.)
struct SourceLine {
  const char* file = "";
  int line = 0;
};
constexpr SourceLine Here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  return {file, line};
}

// What the functions of CUDA C++ below are made of. Only inside of a kernel.
enum class WarpFunction { kSync, kShuffle, kBallot, kGather };
// Waits until all threads of the block have called it from the same place.
void WaitForBlock(SourceLine where);
// Waits until all lanes of `mask` have called it with the same function and mask from the same
// place. Returns what the function gives: of kShuffle the value of source_lane, of kBallot a bit
// for each lane with a value other than 0, of kGather a pointer to all values.
uint64_t WaitForWarp(WarpFunction function, unsigned mask, uint64_t value, unsigned source_lane,
                     SourceLine where);
// Starts an asynchronous copy of this thread.
void StartCopy(void* to, const void* from, size_t bytes);
// Makes a group of the copies that this thread has started since the last commit.
void CommitCopies();
// Waits until at most `groups` of this thread's groups are in flight.
void WaitForCopies(int groups);

// The value of `source_lane`.
template <typename T>
T Shuffle(unsigned mask, T value, unsigned source_lane, SourceLine where) {
  static_assert(std::is_trivially_copyable_v<T> && (sizeof(T) == 4 || sizeof(T) == 8));
  using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  return std::bit_cast<T>(static_cast<Bits>(
      WaitForWarp(WarpFunction::kShuffle, mask, std::bit_cast<Bits>(value), source_lane, where)));
}

// The values of all 32 lanes of the warp. Valid until the next function that all lanes call.
using WarpValues = std::span<const uint64_t, 32>;
inline WarpValues Gather(uint64_t value, SourceLine where) {
  return WarpValues(reinterpret_cast<const uint64_t*>(
                        WaitForWarp(WarpFunction::kGather, 0xffffffffu, value, 0, where)),
                    32);
}

// The running thread's lane in its warp.
inline unsigned Lane() {
  const Coordinates& at = coordinates;
  return (at.thread.x + at.block_size.x * (at.thread.y + at.block_size.y * at.thread.z)) % 32;
}

}  // namespace lamina::cuda::emulation

// The names of CUDA C++, as far as kernels use them.
#define __global__
#define __grid_constant__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define threadIdx (::lamina::cuda::emulation::coordinates.thread)
#define blockIdx (::lamina::cuda::emulation::coordinates.block)
#define blockDim (::lamina::cuda::emulation::coordinates.block_size)
#define gridDim (::lamina::cuda::emulation::coordinates.grid_size)

inline void __syncthreads(
    lamina::cuda::emulation::SourceLine where = lamina::cuda::emulation::Here()) {
  lamina::cuda::emulation::WaitForBlock(where);
}
inline void __syncwarp(unsigned mask = 0xffffffffu, lamina::cuda::emulation::SourceLine where =
                                                        lamina::cuda::emulation::Here()) {
  lamina::cuda::emulation::WaitForWarp(lamina::cuda::emulation::WarpFunction::kSync, mask, 0, 0,
                                       where);
}
template <typename T>
T __shfl_sync(unsigned mask, T value, int lane,
              lamina::cuda::emulation::SourceLine where = lamina::cuda::emulation::Here()) {
  return lamina::cuda::emulation::Shuffle(mask, value, static_cast<unsigned>(lane) % 32, where);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask,
                  lamina::cuda::emulation::SourceLine where = lamina::cuda::emulation::Here()) {
  return lamina::cuda::emulation::Shuffle(
      mask, value, lamina::cuda::emulation::Lane() ^ static_cast<unsigned>(lane_mask), where);
}
inline unsigned __ballot_sync(
    unsigned mask, int predicate,
    lamina::cuda::emulation::SourceLine where = lamina::cuda::emulation::Here()) {
  using namespace lamina::cuda::emulation;
  return static_cast<unsigned>(WaitForWarp(WarpFunction::kBallot, mask, predicate != 0, 0, where));
}
inline int __any_sync(unsigned mask, int predicate,
                      lamina::cuda::emulation::SourceLine where = lamina::cuda::emulation::Here()) {
  return __ballot_sync(mask, predicate, where) != 0;
}
// Fibers switch only where they wait, so this is atomic.
inline unsigned atomicAdd(unsigned* sum, unsigned value) {
  return std::exchange(*sum, *sum + value);
}
