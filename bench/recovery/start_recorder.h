// Writes down when and where an engine's sequences start. What an engine tells of a request does
// not say which nodes hold its KV, nor that it lost it: the steps that it has nodes run do.
//
//   StartRecorder recorder;
//   options.reconnect = Recorded(ReconnectTo(config, model), recorder);
//   ServingEngine engine(options, recorder.Watch(std::move(executor)));
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "bench/recovery/recovery_timeline.h"
#include "manager/reconnect.h"
#include "manager/step_executor.h"

namespace lamina {

// What request number `request` of a stream is submitted with as its seed, by which the recorder
// knows it again. REQUIRES: stream < num_streams.
uint64_t SeedOf(size_t stream, size_t request, size_t num_streams);

// Outlives the executors that it watches. Thread: any.
class StartRecorder {
 public:
  explicit StartRecorder(size_t num_streams) : num_streams_(num_streams) {}

  // The same executor, whose steps are written down.
  std::unique_ptr<StepExecutor> Watch(std::unique_ptr<StepExecutor> nodes);

  // A step is submitted, in which the sequences of `added` start. REQUIRES: these have seeds of
  // SeedOf.
  void Take(const StepPlan& plan, std::span<const NewSequence> added, TimePoint now);

  std::vector<SequenceStart> TakeStarts();

 private:
  const size_t num_streams_;
  Mutex mutex_;
  std::vector<SequenceStart> starts_ GUARDED_BY(mutex_);
  // The last start of each sequence, as an index into starts_.
  std::unordered_map<SequenceId, size_t> last_ GUARDED_BY(mutex_);
};

// Has the executors that `reconnect` makes watched too. Borrows the recorder.
Reconnect Recorded(Reconnect reconnect, StartRecorder& recorder);

}  // namespace lamina
