// Runs kernels written for a GPU on the CPU, to test them where there is none: one block after
// another, each thread of a block a fiber that runs until it has to wait for others. Nothing here
// is fast.
//
// What it finds, and a launch then fails with: a barrier that not all threads of the block reach,
// or reach in different places; warp functions that lack a lane of their mask; a launch that
// hardware would refuse. What shows in results or under AddressSanitizer: dynamic shared memory is
// a heap block of each thread block, filled with NaN; so are fresh allocations
// (emulation/runtime.h). What changes results with the order (SetOrder): threads that use shared
// memory without the barriers that they need.
//
// Not emulated: memory that is shared between running blocks, static __shared__ variables, threads
// of a warp that run apart in ways that these functions do not show.
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

// Order 0: threads in their order, asynchronous copies as late as allowed. Others: threads shuffled
// anew after each barrier, by this seed; odd ones with asynchronous copies as early as possible.
// For all launches from now on. Thread: any.
void SetOrder(uint64_t order);

// Kernels that have several ways take that of such a GPU: 80, or 90 as from the beginning. For all
// launches from now on. Thread: any.
void SetComputeCapability(int capability);
int ComputeCapability();

// Runs `thread` for every thread of every block. "" or what went wrong; blocks behind a failure do
// not run. `shared_bytes` of shared memory.
std::string RunGrid(dim3 grid, dim3 block, size_t shared_bytes,
                    const std::function<void()>& thread);

// Why hardware refuses such a launch; "" if it does not. (Limits of compute capability 9.0, CUDA
// C++ Programming Guide, "Technical Specifications per Compute Capability".)
std::string RefusedLaunch(dim3 grid, dim3 block, size_t shared_bytes);

// Where the running thread is. Set by RunGrid.
struct Coordinates {
  uint3 thread, block;
  dim3 block_size, grid_size;
  std::byte* shared = nullptr;
};
inline constinit thread_local Coordinates coordinates;

// A line of a kernel; Here() as a default argument is the caller's. (std::source_location, which
// clang 14 lacks.)
struct SourceLine {
  const char* file = "";
  int line = 0;
};
constexpr SourceLine Here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  return {file, line};
}

// What the functions below are made of. Only inside of a kernel.
enum class WarpFunction { kSync, kShuffle, kBallot, kGather };
void WaitForBlock(SourceLine where);
uint64_t WaitForWarp(WarpFunction function, unsigned mask, uint64_t value, unsigned source_lane,
                     SourceLine where);
void StartCopy(void* to, const void* from, size_t bytes);  // asynchronous, of this thread
// Those since the last commit are a group.
void CommitCopies();
// Until at most so many groups are under way.
void WaitForCopies(int groups);

template <typename T>
T Shuffle(unsigned mask, T value, unsigned source_lane, SourceLine where) {
  static_assert(std::is_trivially_copyable_v<T> && (sizeof(T) == 4 || sizeof(T) == 8));
  using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  return std::bit_cast<T>(static_cast<Bits>(
      WaitForWarp(WarpFunction::kShuffle, mask, std::bit_cast<Bits>(value), source_lane, where)));
}

// What all 32 lanes of the warp gave, until the next function of the warp that they all call.
using WarpValues = std::span<const uint64_t, 32>;
inline WarpValues Gather(uint64_t value, SourceLine where) {
  return WarpValues(reinterpret_cast<const uint64_t*>(
                        WaitForWarp(WarpFunction::kGather, 0xffffffffu, value, 0, where)),
                    32);
}

inline unsigned Lane() {
  const Coordinates& at = coordinates;
  return (at.thread.x + at.block_size.x * (at.thread.y + at.block_size.y * at.thread.z)) % 32;
}

}  // namespace lamina::cuda::emulation

// The names of CUDA C++.
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
// Threads switch only where they wait, so this one is atomic.
inline unsigned atomicAdd(unsigned* sum, unsigned value) {
  return std::exchange(*sum, *sum + value);
}
