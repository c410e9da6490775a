// What was busy when, over a run whose length is not known in advance.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/clock.h"

namespace lamina {

// Sums over equal pieces of time. Pieces are merged in pairs as the run gets longer, so that there
// are never more than kMaxPieces. Thread: owner.
class UsageTimeline {
 public:
  static constexpr size_t kMaxPieces = 512;

  // Sums over one piece of time.
  struct Piece {
    // Busy time of all nodes of a pool together, in node-seconds.
    double compute_s = 0, memory_s = 0, network_s = 0;
    double tokens = 0;  // generated
    // Seconds of the piece that AddState has covered. A mean is one of the three sums below divided
    // by it.
    double weight = 0;
    // Sequences that ran, sequences that waited, and the share of all token slots in use: each
    // times seconds.
    double running = 0, waiting = 0, used_share = 0;
  };

  // The piece that `at` lies in. Makes room for it; references to other pieces are invalid then.
  Piece& At(TimePoint at);

  // One more node of a pool (&Piece::compute_s, for example) was busy from `from` until `until`.
  void AddBusy(double Piece::*pool, TimePoint from, TimePoint until);

  // From `from` until `until` so many sequences ran and waited, and that share of the token slots
  // was in use.
  void AddState(TimePoint from, TimePoint until, double running, double waiting, double used_share);

  Clock::duration piece_length() const { return length_; }
  const std::vector<Piece>& pieces() const { return pieces_; }

 private:
  // Calls add(piece, seconds) for each piece, with the seconds of [from, until) that lie in it.
  template <typename Add>
  void ForEachPiece(TimePoint from, TimePoint until, Add add);

  Clock::duration length_ = milliseconds(1);
  std::vector<Piece> pieces_;
};

}  // namespace lamina
