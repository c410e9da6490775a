// What comes of streams' requests: the engine's thread tells it, and who serves the streams waits
// for requests that are over.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "bench/recovery/recovery_timeline.h"
#include "manager/engine.h"

namespace lamina {

// Outlives the engine. Thread: any.
class StreamLog {
 public:
  explicit StreamLog(size_t num_streams) : streams_(num_streams) {}

  // The stream submits its next request now. To be called before the engine hears of it.
  void Begin(size_t stream, TimePoint now);

  // What the engine told of the stream's last request, which came just now.
  void Take(size_t stream, const TokenEvent& event);

  // The engine refused the stream's last request.
  void Refuse(size_t stream, const std::string& why, TimePoint now);

  // The stream has all that it was to get.
  void Finish(size_t stream, TimePoint now);

  // The streams whose request has ended since the last call. Waits until there is one or until
  // `latest`.
  std::vector<size_t> AwaitEnded(TimePoint latest);

  // When the last token came; the beginning of time if none did.
  TimePoint last_token();

  // REQUIRES: the engine is gone.
  std::vector<StreamRecord> TakeStreams();

 private:
  Mutex mutex_;
  CondVar changed_;
  std::vector<StreamRecord> streams_ GUARDED_BY(mutex_);
  std::vector<size_t> ended_ GUARDED_BY(mutex_);
  TimePoint last_token_ GUARDED_BY(mutex_);
};

}  // namespace lamina
