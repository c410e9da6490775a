// Flags in device memory, with which devices tell each other that data is there: kernels that were
// asked for ahead wait for them, and raise them, without a host in between.
//
// Order. Who raises a flag first makes everything that its stream did before visible to the whole
// system (a fence), then writes the number (release). Who waits reads it (acquire, of the whole
// system); what its stream does behind the wait sees all that was there before the flag was raised.
// For flags that a NIC writes the same holds if it writes in the order of its work requests and the
// device sees that order (SharedBuffer::reached_by_nics); that this is so on a link cannot be shown
// here.
//
// No wait is endless: it ends when the flag is there, when the host says so, or after a time; then
// nothing of the stream's later waits waits any more, and its later flags are not raised. What runs
// behind a wait that was given up works with what happens to stand there.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "base/status.h"
#include "kernels/cuda/device.h"

namespace lamina::cuda {

// In the memory of the device that waits for it; alone in its cache line.
struct alignas(64) Flag {
  uint64_t number = 0;  // of what is there; grows
  uint64_t about = 0;   // what that is, as both ends know it
  uint32_t status = 0;  // of what is there, and
  uint32_t detail = 0;  // more about it, for the host of who waits
};
static_assert(sizeof(Flag) == 64);

// What has come of waits so far.
struct WaitLog {
  bool gave_up = false;    // a wait ended without its flag, or found one about something else
  uint64_t waited_ns = 0;  // by all of them together
  uint64_t worked_ns = 0;  // from the ends of waits to the flags that were raised behind them
};

// Waits of one stream, which end together. Thread: the stream's owner; GiveUp: any.
class Waits {
 public:
  // On the calling thread's device. Errors as DeviceBuffer::Create and PinnedBuffer::Create, and
  // the stream's, which is waited for.
  static Result<std::unique_ptr<Waits>> Create(Stream& stream);

  // The stream goes on behind this when flag->number is `number` or more; then flag->about must be
  // `about`. `limit`: of this wait.
  void Await(const Flag* flag, uint64_t number, uint64_t about, Clock::duration limit,
             Stream& stream);

  // What `flag` becomes for others, in the stream's order, unless a wait was given up. It may be in
  // the memory of another device that this one has mapped. `told`, in pinned memory, gets the
  // number behind it, for this host; null: it is not told.
  void Raise(Flag* flag, const Flag& becomes, Stream& stream, uint64_t* told = nullptr);

  // Ends the waits that there are and those that will be asked for, for good, as soon as one has to
  // wait: a flag that is there is taken.
  void GiveUp();

  // As of now; everything in it only grows.
  WaitLog log() const;

 private:
  Waits(DeviceBuffer state, PinnedBuffer host) : state_(std::move(state)), host_(std::move(host)) {}

  DeviceBuffer state_;  // what kernels keep for those behind them
  PinnedBuffer host_;   // what the device and the host tell each other
};

}  // namespace lamina::cuda
