// What was busy when, over a run of unknown length: sums in equal pieces of time, which grow so
// that there are never more than kMaxPieces.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/clock.h"

namespace lamina {

class UsageTimeline {
 public:
  static constexpr size_t kMaxPieces = 512;

  struct Piece {
    // Busy time, of all nodes of a pool together.
    double compute_s = 0, memory_s = 0, network_s = 0;
    double tokens = 0;  // generated
    // Of the sums below: time that they were seen for.
    double weight = 0;
    // Sequences, likewise, and of all token slots; times weight.
    double running = 0, waiting = 0, used_share = 0;
  };

  Piece& At(TimePoint at);

  // One node more of a pool, such as &Piece::compute_s, was busy meanwhile.
  void AddBusy(double Piece::*pool, TimePoint from, TimePoint until);

  // So many ran, waited and used so much from `from` until `until`.
  void AddState(TimePoint from, TimePoint until, double running, double waiting, double used_share);

  Clock::duration piece_length() const { return length_; }
  const std::vector<Piece>& pieces() const { return pieces_; }

 private:
  template <typename Add>
  void ForEachPiece(TimePoint from, TimePoint until, Add add);  // with the seconds that lie in it

  Clock::duration length_ = milliseconds(1);
  std::vector<Piece> pieces_;
};

}  // namespace lamina
