// Converts times of another process to this process's clock. Processes of one host share
// steady_clock. The clocks of different hosts are unrelated, so their offset is estimated from
// exchanges of messages, as NTP does (RFC 5905).
#pragma once

#include <cstdint>

#include "base/clock.h"

namespace lamina {

// Now by steady_clock, in nanoseconds.
inline int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch())
      .count();
}

// Identifies the steady_clock of this process: processes with the same id read the same clock. Made
// from the kernel's boot id and the time namespace. 0 if that is unknown, which equals no other id.
uint64_t ClockId();

// The four times of one exchange: a message sent here and received there, its answer sent there and
// received here.
struct ClockExchange {
  int64_t sent_ns = 0;      // our clock
  int64_t received_ns = 0;  // their clock
  int64_t answered_ns = 0;  // their clock
  int64_t taken_ns = 0;     // our clock
};

// The offset of another process's clock. If the clock is not shared, it is that of the exchange
// with the shortest round trip among the last 128 to 256, and wrong by at most half of that round
// trip. Older exchanges are forgotten because clocks drift. Value type. Thread: one owner.
class ClockOffset {
 public:
  // `clock` is the ClockId of the other process. Exchanges whose times contradict each other are
  // ignored.
  void Add(uint64_t clock, const ClockExchange& exchange);

  // Their time on our clock. REQUIRES: known().
  int64_t ToHere(int64_t there_ns) const { return there_ns - best().offset_ns; }

  bool known() const { return best().round_trip_ns != kNone; }
  // Upper bound of the error of ToHere; 0 if the clock is shared. REQUIRES: known().
  int64_t error_ns() const { return shared_ ? 0 : best().round_trip_ns / 2; }

 private:
  static constexpr int64_t kNone = INT64_MAX;
  // Exchanges per window. A decode step of a large model has one for each of its tens of layers.
  static constexpr int kWindow = 128;
  struct Estimate {
    int64_t round_trip_ns = kNone;
    int64_t offset_ns = 0;  // theirs minus ours
  };
  const Estimate& best() const {
    return now_.round_trip_ns <= before_.round_trip_ns ? now_ : before_;
  }

  Estimate before_, now_;  // the best of the last window and of the present one
  int count_ = 0;          // exchanges in the present window
  bool shared_ = false;
};

}  // namespace lamina
