// A link that copies take, one after another, in modelled time.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/device_timeline.h"
#include "base/status.h"

namespace lamina {

// Thread: one owner.
class CopyLink {
 public:
  virtual ~CopyLink() = default;

  // Books a copy that could begin at `now` and takes `time`; returns when it is done. It begins
  // when all copies that were booked before are done.
  virtual TimePoint Book(TimePoint now, Clock::duration time) = 0;
};

// Of one process.
class OwnLink final : public CopyLink {
 public:
  TimePoint Book(TimePoint now, Clock::duration time) override { return line_.Book(now, time); }

 private:
  DeviceTimeline line_;
};

// A bus that several processes of one machine and one user share: whoever opens one of the same
// name has the same. It is in a file of the system's shared memory, which goes with the
// last of them.
class SharedBus final : public CopyLink {
 public:
  // `name`: letters, digits and '-'. kInvalidArgument for another one; kInternal, with the file, if
  // it cannot be had, or is somebody else's.
  static Result<std::unique_ptr<SharedBus>> Open(const std::string& name);
  ~SharedBus() override;
  SharedBus(const SharedBus&) = delete;
  SharedBus& operator=(const SharedBus&) = delete;

  TimePoint Book(TimePoint now, Clock::duration time) override;

 private:
  using FreeAt = std::atomic<int64_t>;  // ns of the system's clock, which all processes share
  SharedBus(std::string path, int file, FreeAt* free_at)
      : path_(std::move(path)), file_(file), free_at_(free_at) {}

  const std::string path_;
  const int file_;  // locked, as others also do, while it is in use
  FreeAt* const free_at_;
};

}  // namespace lamina
