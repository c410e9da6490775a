#include "kernels/cuda/emulation/runtime.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/cuda/emulation/simt.h"

using lamina::cuda::emulation::Enqueue;

// Recorded work; each piece returns "" or what went wrong.
struct EmulatedGraph {
  std::vector<std::function<std::string()>> work;
  bool invalid = false;  // something was refused while it was recorded
};

struct EmulatedStream {
  std::deque<std::function<std::string()>> work;  // not yet begun
  bool failed = false;
  EmulatedGraph* recording = nullptr;  // null: no graph is recorded

  // For streams that run on threads of their own.
  std::thread thread;
  bool working = false;  // on a piece that is no longer in `work`
  bool ends = false;     // the thread is to end when `work` is empty
  bool ahead() const { return thread.joinable(); }
};

struct EmulatedEvent {
  EmulatedStream* stream = nullptr;  // the one that recorded it last
  uint64_t recorded = 0;             // how often it was recorded
  uint64_t reached = 0;              // the latest recording that was reached
};

namespace {

constexpr int kNumDevices = 2;
constexpr size_t kDeviceBytes = size_t{4} << 30;

struct Allocation {
  size_t bytes;
  int device;
};

using Lock = std::unique_lock<std::recursive_mutex>;

// Guards everything below up to `failure`, and all streams and events. Recursive, because a lazy
// stream does its work while it is held, and that work takes it again.
std::recursive_mutex mutex;
// Notified when a stream that runs on its own thread has got work or has done some.
std::condition_variable_any changed;
bool streams_run_ahead =
    std::string_view(std::getenv("LAMINA_EMULATED_STREAMS") == nullptr
                         ? ""
                         : std::getenv("LAMINA_EMULATED_STREAMS")) == "threads";
std::map<uintptr_t, Allocation> allocations;  // device memory, by address
std::set<void*> registered;                   // host memory, by cudaHostRegister
std::set<EmulatedStream*> streams;
size_t used_bytes[kNumDevices];
std::string failure;  // what went wrong in the latest kernel that failed
thread_local int device = 0;
thread_local cudaError_t last_error = cudaSuccess;

// Notes the error for cudaGetLastError.
cudaError_t Return(cudaError_t error) {
  if (error != cudaSuccess && error != cudaErrorNotReady) last_error = error;
  return error;
}

bool OnDevice(const void* memory, size_t bytes) {
  const auto at = reinterpret_cast<uintptr_t>(memory);
  const auto next = allocations.upper_bound(at);
  if (next == allocations.begin()) return false;
  const auto& [begin, allocation] = *std::prev(next);
  return at + bytes <= begin + allocation.bytes;
}

void NoteFailure(EmulatedStream& stream, std::string wrong) {
  if (wrong.empty()) return;
  stream.failed = true;
  failure = std::move(wrong);
}

// Does the next piece of a lazy stream's work.
void Step(EmulatedStream& stream) {
  const std::function<std::string()> next = std::move(stream.work.front());
  stream.work.pop_front();
  NoteFailure(stream, next());
}

// What the thread of a stream runs. Work is done without the mutex, so that other streams go on.
void GoOn(EmulatedStream& stream) {
  Lock lock(mutex);
  while (true) {
    changed.wait(lock, [&] { return stream.ends || !stream.work.empty(); });
    if (stream.work.empty()) return;
    std::function<std::string()> next = std::move(stream.work.front());
    stream.work.pop_front();
    stream.working = true;
    lock.unlock();
    std::string wrong = next();
    next = nullptr;
    lock.lock();
    stream.working = false;
    NoteFailure(stream, std::move(wrong));
    changed.notify_all();
  }
}

// For calls that cannot be recorded: whether the stream is recording, which makes the graph
// invalid.
bool Refuses(EmulatedStream& stream) {
  if (stream.recording == nullptr) return false;
  stream.recording->invalid = true;
  return true;
}

// Waits until the stream has no work left. REQUIRES: this thread holds the mutex once, by `lock`:
// waiting would not release it otherwise.
cudaError_t Drain(EmulatedStream& stream, Lock& lock) {
  if (stream.ahead()) changed.wait(lock, [&] { return stream.work.empty() && !stream.working; });
  while (!stream.work.empty()) Step(stream);
  return stream.failed ? cudaErrorLaunchFailure : cudaSuccess;
}

// Drains all streams that there are now. Other threads may destroy some of them meanwhile.
void DrainAll(Lock& lock) {
  for (EmulatedStream* stream : std::set<EmulatedStream*>(streams)) {
    changed.wait(lock, [&] {
      return !streams.contains(stream) || !stream->ahead() ||
             (stream->work.empty() && !stream->working);
    });
    if (streams.contains(stream)) Drain(*stream, lock);
  }
}

// Waits until the event's recording number `times` was reached, or cannot be.
void Reach(const EmulatedEvent& event, EmulatedStream& stream, uint64_t times, Lock& lock) {
  if (stream.ahead()) return changed.wait(lock, [&] { return event.reached >= times; });
  while (event.reached < times && !stream.work.empty()) Step(stream);
}

}  // namespace

namespace lamina::cuda::emulation {

void Enqueue(cudaStream_t stream, std::function<std::string()> work) {
  const std::lock_guard lock(mutex);
  if (stream->recording != nullptr)
    stream->recording->work.push_back(std::move(work));
  else
    stream->work.push_back(std::move(work));
  changed.notify_all();
}

void SetStreamsRunAhead(bool ahead) {
  const std::lock_guard lock(mutex);
  streams_run_ahead = ahead;
}

bool StreamsRunAhead() {
  const std::lock_guard lock(mutex);
  return streams_run_ahead;
}

void AddDeviceMemory(void* memory, size_t bytes) {
  const std::lock_guard lock(mutex);
  allocations[reinterpret_cast<uintptr_t>(memory)] = {bytes, device};
}

void ForgetDeviceMemory(void* memory) {
  Lock lock(mutex);
  DrainAll(lock);
  allocations.erase(reinterpret_cast<uintptr_t>(memory));
}

}  // namespace lamina::cuda::emulation

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidConfiguration: return "invalid configuration argument";
    case cudaErrorNoDevice: return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case cudaErrorInsufficientDriver:
      return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorHostMemoryAlreadyRegistered:
      return "part or all of the requested memory range is already mapped";
    case cudaErrorNotReady: return "device not ready";
    case cudaErrorLaunchFailure: return failure.c_str();
    case cudaErrorStreamCaptureUnsupported:
      return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureInvalidated:
      return "operation failed due to a previous error during capture";
  }
  return "unknown error";
}

cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }

cudaError_t cudaGetDeviceCount(int* count) {
  *count = kNumDevices;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int of) {
  if (of < 0 || of >= kNumDevices) return Return(cudaErrorInvalidDevice);
  *properties = {"emulated GPU", {"emulated GPU"}, kDeviceBytes};
  properties->uuid.bytes[15] = static_cast<char>(of);
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int to) {
  if (to < 0 || to >= kNumDevices) return Return(cudaErrorInvalidDevice);
  device = to;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* now) {
  *now = device;
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  const std::lock_guard lock(mutex);
  *total_bytes = kDeviceBytes;
  *free_bytes = kDeviceBytes - used_bytes[device];
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  const std::lock_guard lock(mutex);
  if (bytes > kDeviceBytes - used_bytes[device] || posix_memalign(memory, 256, bytes) != 0)
    return Return(cudaErrorMemoryAllocation);
  std::memset(*memory, 0xff, bytes);  // NaN in every type
  allocations[reinterpret_cast<uintptr_t>(*memory)] = {bytes, device};
  used_bytes[device] += bytes;
  return cudaSuccess;
}

cudaError_t cudaFree(void* memory) {
  if (memory == nullptr) return cudaSuccess;
  Lock lock(mutex);
  DrainAll(lock);  // CUDA's cudaFree waits for the device too
  const auto found = allocations.find(reinterpret_cast<uintptr_t>(memory));
  if (found == allocations.end()) return Return(cudaErrorInvalidValue);
  used_bytes[found->second.device] -= found->second.bytes;
  allocations.erase(found);
  std::free(memory);
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned /*flags*/) {
  if (posix_memalign(memory, 4096, bytes) != 0) return Return(cudaErrorMemoryAllocation);
  std::memset(*memory, 0xff, bytes);
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* memory) {
  Lock lock(mutex);
  DrainAll(lock);
  std::free(memory);
  return cudaSuccess;
}

cudaError_t cudaHostRegister(void* memory, size_t bytes, unsigned /*flags*/) {
  const std::lock_guard lock(mutex);
  if (memory == nullptr || bytes == 0) return Return(cudaErrorInvalidValue);
  return registered.insert(memory).second ? cudaSuccess
                                          : Return(cudaErrorHostMemoryAlreadyRegistered);
}

cudaError_t cudaHostUnregister(void* memory) {
  const std::lock_guard lock(mutex);
  return registered.erase(memory) == 1 ? cudaSuccess : Return(cudaErrorInvalidValue);
}

// A copy across the bus takes its time: what is written to its source meanwhile is missed, and what
// is written to its destination is lost.
static void CopySlowly(void* to, const void* from, size_t bytes) {
  std::vector<std::byte> read(bytes);
  std::memcpy(read.data(), from, bytes);
  std::this_thread::sleep_for(
      std::min(std::chrono::nanoseconds(10 * bytes), std::chrono::nanoseconds(2'000'000)));
  std::memcpy(to, read.data(), bytes);
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  const std::lock_guard lock(mutex);
  if (OnDevice(to, bytes) != (kind != cudaMemcpyDeviceToHost) ||
      OnDevice(from, bytes) != (kind != cudaMemcpyHostToDevice))
    return Return(cudaErrorInvalidValue);
  if (kind != cudaMemcpyDeviceToDevice && Refuses(*stream))
    return Return(cudaErrorStreamCaptureUnsupported);
  const bool slowly = stream->ahead() && kind == cudaMemcpyHostToDevice;
  Enqueue(stream, [=] {
    if (slowly)
      CopySlowly(to, from, bytes);
    else
      std::memcpy(to, from, bytes);
    return std::string();
  });
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* memory, int byte, size_t bytes, cudaStream_t stream) {
  const std::lock_guard lock(mutex);
  if (!OnDevice(memory, bytes)) return Return(cudaErrorInvalidValue);
  Enqueue(stream, [=] {
    std::memset(memory, byte, bytes);
    return std::string();
  });
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned /*flags*/) {
  const std::lock_guard lock(mutex);
  *stream = new EmulatedStream;
  streams.insert(*stream);
  if (streams_run_ahead) (*stream)->thread = std::thread(GoOn, std::ref(**stream));
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  Lock lock(mutex);
  Drain(*stream, lock);
  streams.erase(stream);
  stream->ends = true;
  changed.notify_all();
  lock.unlock();
  if (stream->ahead()) stream->thread.join();
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  Lock lock(mutex);
  if (Refuses(*stream)) return Return(cudaErrorStreamCaptureUnsupported);
  return Return(Drain(*stream, lock));
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned /*flags*/) {
  const std::lock_guard lock(mutex);
  if (Refuses(*stream)) return Return(cudaErrorStreamCaptureUnsupported);
  // The recording that is the latest now, whatever is recorded later.
  const uint64_t point = event->recorded;
  EmulatedStream* const other = event->stream;
  if (other == nullptr) return cudaSuccess;  // never recorded
  Enqueue(stream, [=] {
    Lock waiting(mutex);
    Reach(*event, *other, point, waiting);
    return std::string();
  });
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned /*flags*/) {
  *event = new EmulatedEvent;
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  Lock lock(mutex);
  DrainAll(lock);  // work of any stream may still refer to the event
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const std::lock_guard lock(mutex);
  if (Refuses(*stream)) return Return(cudaErrorStreamCaptureUnsupported);
  event->stream = stream;
  const uint64_t point = ++event->recorded;
  Enqueue(stream, [=] {
    const std::lock_guard reaching(mutex);
    event->reached = point;
    return std::string();
  });
  return cudaSuccess;
}

// Each call does a piece of a lazy stream's work, so that a caller that polls sees the event in the
// end.
cudaError_t cudaEventQuery(cudaEvent_t event) {
  Lock lock(mutex);
  if (event->recorded == 0) return cudaSuccess;
  if (event->reached < event->recorded && !event->stream->ahead()) Step(*event->stream);
  if (event->stream->failed) return Return(cudaErrorLaunchFailure);
  if (event->reached == event->recorded) return cudaSuccess;
  const bool ahead = event->stream->ahead();
  lock.unlock();
  // The caller polls; leave its core to the stream's thread for a moment.
  if (ahead) std::this_thread::sleep_for(std::chrono::microseconds(20));
  return cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  Lock lock(mutex);
  if (event->recorded > 0) Reach(*event, *event->stream, event->recorded, lock);
  return Return(event->recorded > 0 && event->stream->failed ? cudaErrorLaunchFailure
                                                             : cudaSuccess);
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode /*mode*/) {
  const std::lock_guard lock(mutex);
  if (Refuses(*stream)) return Return(cudaErrorStreamCaptureUnsupported);
  stream->recording = new EmulatedGraph;
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const std::lock_guard lock(mutex);
  EmulatedGraph* const recorded = std::exchange(stream->recording, nullptr);
  if (recorded == nullptr) return Return(cudaErrorInvalidValue);
  *graph = recorded->invalid ? nullptr : recorded;
  if (!recorded->invalid) return cudaSuccess;
  delete recorded;
  return Return(cudaErrorStreamCaptureInvalidated);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long /*flags*/) {
  *executable = new EmulatedGraph(*graph);
  return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t /*executable*/, cudaStream_t /*stream*/) {
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  return cudaGraphDestroy(executable);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  for (const auto& work : executable->work) Enqueue(stream, work);
  return cudaSuccess;
}
