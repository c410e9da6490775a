#include "plan/simulate/usage.h"

#include <algorithm>

namespace lamina {
namespace {

void AddPiece(const UsageTimeline::Piece& from, UsageTimeline::Piece& to) {
  to.compute_s += from.compute_s;
  to.memory_s += from.memory_s;
  to.network_s += from.network_s;
  to.tokens += from.tokens;
  to.weight += from.weight;
  to.running += from.running;
  to.waiting += from.waiting;
  to.used_share += from.used_share;
}

}  // namespace

UsageTimeline::Piece& UsageTimeline::At(TimePoint at) {
  // Pieces of twice the length, until `at` lies in one of the first kMaxPieces.
  while (at.time_since_epoch() / length_ >= static_cast<int64_t>(kMaxPieces)) {
    std::vector<Piece> merged((pieces_.size() + 1) / 2);
    for (size_t i = 0; i < pieces_.size(); ++i) AddPiece(pieces_[i], merged[i / 2]);
    pieces_ = std::move(merged);
    length_ *= 2;
  }
  const auto index = static_cast<size_t>(at.time_since_epoch() / length_);
  if (index >= pieces_.size()) pieces_.resize(index + 1);
  return pieces_[index];
}

template <typename Add>
void UsageTimeline::ForEachPiece(TimePoint from, TimePoint until, Add add) {
  // After this the pieces are long enough for all of the range, and merge no more.
  At(until);
  while (from < until) {
    const TimePoint end =
        std::min(until, TimePoint(length_ * (from.time_since_epoch() / length_ + 1)));
    add(At(from), std::chrono::duration<double>(end - from).count());
    from = end;
  }
}

void UsageTimeline::AddBusy(double Piece::*pool, TimePoint from, TimePoint until) {
  ForEachPiece(from, until, [pool](Piece& piece, double seconds) { piece.*pool += seconds; });
}

void UsageTimeline::AddState(TimePoint from, TimePoint until, double running, double waiting,
                             double used_share) {
  ForEachPiece(from, until, [=](Piece& piece, double seconds) {
    piece.weight += seconds;
    piece.running += seconds * running;
    piece.waiting += seconds * waiting;
    piece.used_share += seconds * used_share;
  });
}

}  // namespace lamina
