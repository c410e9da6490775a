// Times of another process on this process's clock. Processes of one host share steady_clock;
// clocks of different hosts are unrelated, so the distance is estimated from exchanges of messages,
// as NTP does.
#pragma once

#include <cstdint>

#include "base/clock.h"

namespace lamina {

// Now by steady_clock, in nanoseconds.
inline int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch())
      .count();
}

// Names the steady_clock of this process: processes with the same id read the same clock. Made from
// the kernel's boot id and the time namespace. 0: unknown, and never the same.
uint64_t ClockId();

// One exchange: sent here, received there, answered there, taken here.
struct ClockExchange {
  int64_t sent_ns = 0;      // our clock
  int64_t received_ns = 0;  // theirs
  int64_t answered_ns = 0;  // theirs
  int64_t taken_ns = 0;     // ours
};

// Where the other clock stands. Without a shared clock: from the exchange with the shortest round
// trip of the last 128 to 256, half of which is how wrong it may be; a longer memory would keep
// what drift has made wrong. Value type. Thread: one owner.
class ClockOffset {
 public:
  // `clock`: ClockId of the other process. Times that contradict themselves are ignored.
  void Add(uint64_t clock, const ClockExchange& exchange);

  // On our clock. REQUIRES: known().
  int64_t ToHere(int64_t there_ns) const { return there_ns - best().offset_ns; }

  bool known() const { return best().round_trip_ns != kNone; }
  // At most; 0: the clock is shared. REQUIRES: known().
  int64_t error_ns() const { return shared_ ? 0 : best().round_trip_ns / 2; }

 private:
  static constexpr int64_t kNone = INT64_MAX;
  // Exchanges; a decode step of a large model has one for each of its tens of layers.
  static constexpr int kWindow = 128;
  struct Estimate {
    int64_t round_trip_ns = kNone;
    int64_t offset_ns = 0;  // theirs minus ours
  };
  const Estimate& best() const {
    return now_.round_trip_ns <= before_.round_trip_ns ? now_ : before_;
  }

  Estimate before_, now_;  // of the window before, and of this one
  int count_ = 0;          // in now_
  bool shared_ = false;
};

}  // namespace lamina
