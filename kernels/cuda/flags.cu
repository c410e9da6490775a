#include "kernels/cuda/flags.h"

#include <algorithm>

#include "kernels/cuda/platform.cuh"

namespace lamina::cuda {
namespace {

// A wait reads the host's memory only after so many polls of its flag, since that is a microsecond
// away.
constexpr int kPollsPerLook = 32;

// What kernels leave for later ones of the stream, in device memory, so that a wait need not read
// the host's memory when its flag is there.
struct WaitState {
  uint64_t gave_up;     // not 0: a wait ended without its flag
  uint64_t arrived_ns;  // when the latest wait's flag was there; 0: a flag was raised since
  uint64_t waited_ns, worked_ns;
};

// What the device and the host tell each other, in pinned memory. Every field is a word of 64 bits,
// which is read and written as a whole.
struct HostLog {
  uint64_t gave_up, waited_ns, worked_ns;  // the device writes
  alignas(64) uint64_t gives_up;           // the host writes
};

__device__ void GiveUpWaiting(WaitState* state, HostLog* log) {
  state->gave_up = 1;
  StoreRelease(1, &log->gave_up);
}

// Polls the flag with one thread. After a wait that was given up it ends at once.
__global__ void AwaitKernel(const Flag* flag, uint64_t number, uint64_t about, uint64_t limit_ns,
                            WaitState* state, HostLog* log) {
  if (threadIdx.x != 0 || state->gave_up != 0) return;
  const uint64_t began = Nanoseconds();
  for (unsigned polls = 1; LoadAcquire(&flag->number) < number; ++polls) {
    if (polls % kPollsPerLook == 0 &&
        (LoadAcquire(&log->gives_up) != 0 || Nanoseconds() - began > limit_ns))
      return GiveUpWaiting(state, log);
    Pause();
    FenceAliases();
  }
  if (LoadAcquire(&flag->about) != about) return GiveUpWaiting(state, log);
  const uint64_t now = Nanoseconds();
  state->arrived_ns = now;
  state->waited_ns += now - began;
  StoreRelease(state->waited_ns, &log->waited_ns);
}

// Writes the flag, its number last: whoever reads the number then sees the rest.
__global__ void RaiseKernel(Flag* flag, Flag becomes, uint64_t* told, WaitState* state,
                            HostLog* log) {
  if (threadIdx.x != 0 || state->gave_up != 0) return;
  flag->about = becomes.about;
  flag->status = becomes.status;
  flag->detail = becomes.detail;
  FenceAliases();
  StoreRelease(becomes.number, &flag->number);
  if (told != nullptr) StoreRelease(becomes.number, told);
  if (state->arrived_ns == 0) return;
  state->worked_ns += Nanoseconds() - state->arrived_ns;
  state->arrived_ns = 0;
  StoreRelease(state->worked_ns, &log->worked_ns);
}

// One thread does the work; blocks are multiples of a warp.
LaunchShape OneThread() { return {dim3(1), dim3(kWarpSize), 0}; }

uint64_t Read(const uint64_t& word) { return __atomic_load_n(&word, __ATOMIC_ACQUIRE); }

}  // namespace

Result<std::unique_ptr<Waits>> Waits::Create(Stream& stream) {
  LAMINA_ASSIGN_OR_RETURN(DeviceBuffer state, DeviceBuffer::Create(sizeof(WaitState)));
  LAMINA_ASSIGN_OR_RETURN(PinnedBuffer host, PinnedBuffer::Create(sizeof(HostLog)));
  *host.as<HostLog>() = {};
  FillOnDevice(state.data(), 0, sizeof(WaitState), stream);
  LAMINA_RETURN_IF_ERROR(stream.Synchronize());
  return std::unique_ptr<Waits>(new Waits(std::move(state), std::move(host)));
}

void Waits::Await(const Flag* flag, uint64_t number, uint64_t about, Clock::duration limit,
                  Stream& stream) {
  const auto limit_ns = static_cast<uint64_t>(
      std::max<int64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(limit).count(), 0));
  Launch(AwaitKernel, OneThread(), stream, flag, number, about, limit_ns, state_.as<WaitState>(),
         host_.as<HostLog>());
}

void Waits::Raise(Flag* flag, const Flag& becomes, Stream& stream, uint64_t* told) {
  Launch(RaiseKernel, OneThread(), stream, flag, becomes, told, state_.as<WaitState>(),
         host_.as<HostLog>());
}

void Waits::GiveUp() {
  __atomic_store_n(&host_.as<HostLog>()->gives_up, uint64_t{1}, __ATOMIC_RELEASE);
}

WaitLog Waits::log() const {
  const HostLog& log = *host_.as<HostLog>();
  return {Read(log.gave_up) != 0, Read(log.waited_ns), Read(log.worked_ns)};
}

}  // namespace lamina::cuda
