// Flags in device memory, by which devices tell each other that data is there. Kernels that were
// launched ahead wait for flags and raise them, without a host in between.
//
// Memory order. The device that raises a flag first makes everything that its stream did before
// visible to the whole system (a fence), then writes the flag's number (release). The device that
// waits reads the number (acquire, system scope), so what its stream does behind the wait sees all
// that was written before the flag was raised. The same holds for flags that a NIC writes if the
// NIC writes in the order of its work requests and the device sees that order
// (SharedBuffer::reached_by_nics); whether a given link keeps it is not checked here.
//
// No wait is endless. It ends when the flag is there, when the host gives up, or after a time
// limit. After a wait that ended without its flag no later wait of the stream waits, and no later
// flag of it is raised. Kernels behind such a wait still run, on whatever the memory holds.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "base/status.h"
#include "kernels/cuda/device.h"

namespace lamina::cuda {

// A flag. It lies in the memory of the device that waits for it, alone in its cache line.
// Little-endian, as devices are: number at byte 0, about at 8, status at 16, detail at 20.
struct alignas(64) Flag {
  uint64_t number = 0;  // of the latest data that is there; only grows
  uint64_t about = 0;   // identifies that data; both ends know the value
  uint32_t status = 0;  // of the data, for the host of the device that waits
  uint32_t detail = 0;  // more about the status
};
static_assert(sizeof(Flag) == 64);

// What has become of a stream's waits so far.
struct WaitLog {
  bool gave_up = false;    // a wait ended without its flag, or found another value of `about`
  uint64_t waited_ns = 0;  // in all waits together
  uint64_t worked_ns = 0;  // from the ends of waits to the flags that were raised behind them
};

// The waits and flags of one stream; once one wait was given up, all are. Owns the memory in which
// device and host keep track of them. Thread: the stream's owner; GiveUp and log: any.
class Waits {
 public:
  // For a stream of the calling thread's device, which is waited for. kOutOfSpace if there is no
  // device memory or no pinned memory left; else the stream's failure.
  static Result<std::unique_ptr<Waits>> Create(Stream& stream);

  // Makes the stream wait until flag->number is `number` or more. If flag->about is not `about`
  // then, or if the wait takes longer than `limit`, it is given up.
  void Await(const Flag* flag, uint64_t number, uint64_t about, Clock::duration limit,
             Stream& stream);

  // Sets `flag` to `becomes` for other devices, in the stream's order, unless a wait was given up.
  // The flag may be in the memory of another device that this one has mapped. Afterwards the number
  // is written to `told`, in pinned memory, for this host, unless that is null.
  void Raise(Flag* flag, const Flag& becomes, Stream& stream, uint64_t* told = nullptr);

  // Gives up every wait, now and later, that does not find its flag at once. Cannot be undone.
  void GiveUp();

  // The log as of now. Its values only grow.
  WaitLog log() const;

 private:
  Waits(DeviceBuffer state, PinnedBuffer host) : state_(std::move(state)), host_(std::move(host)) {}

  DeviceBuffer state_;  // a WaitState: what kernels leave for later ones
  PinnedBuffer host_;   // a HostLog: what the device and the host tell each other
};

}  // namespace lamina::cuda
