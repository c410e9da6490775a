#include "transport/loopback/loopback_endpoint.h"

#include <cstring>

#include "base/mutex.h"
#include "transport/checks.h"

namespace lamina {

LoopbackEndpoint::LoopbackEndpoint(std::shared_ptr<LoopbackConnection> connection, int self,
                                   std::string peer_name, const Limits& limits,
                                   std::vector<LoopbackEndpoint*>& siblings)
    : connection_(std::move(connection)),
      mine_(connection_->ends[self]),
      theirs_(connection_->ends[1 - self]),
      peer_name_(std::move(peer_name)),
      limits_(limits),
      siblings_(siblings),
      sent_(limits.max_outstanding) {
  siblings_.push_back(this);
}

LoopbackEndpoint::~LoopbackEndpoint() {
  std::erase(siblings_, this);
  {
    MutexLock lock(connection_->mutex);
    mine_.closed = true;
  }
  theirs_.waker->Notify();
}

Status LoopbackEndpoint::Post(std::span<const WriteOp> ops, std::optional<uint32_t> notify,
                              uint64_t tag) {
  LAMINA_RETURN_IF_ERROR(CheckOps(ops, limits_, peer_window_bytes()));
  if (sent_.full()) return TryAgain();
  {
    MutexLock lock(connection_->mutex);
    if (theirs_.closed) return PeerLost(peer_name_ + " closed the connection");
    if (notify.has_value() && theirs_.notifications.size() >= kLoopbackOutstanding) {
      mine_.wants_room = true;
      return TryAgain();
    }
  }
  // Copies without the lock, so that the peer can poll meanwhile. The room that was found stays, as
  // only this end adds notifications.
  for (const WriteOp& op : ops) {
    if (!op.source.empty())
      std::memcpy(theirs_.window.bytes().data() + op.peer_offset, op.source.data(),
                  op.source.size());
  }
  if (notify.has_value()) {
    {
      MutexLock lock(connection_->mutex);
      theirs_.notifications.push_back(*notify);
      mine_.wants_room = false;
    }
    theirs_.waker->Notify();
  }
  sent_.PushSlot() = tag;
  return OkStatus();
}

size_t LoopbackEndpoint::Poll(std::span<Event> out) {
  size_t count = 0;
  for (; count < out.size() && !sent_.empty(); sent_.Pop())
    out[count++] = {.kind = Event::Kind::kSent, .tag = sent_.front()};
  bool gave_room = false;
  {
    MutexLock lock(connection_->mutex);
    for (; count < out.size() && !mine_.notifications.empty(); mine_.notifications.pop_front()) {
      out[count++] = {.kind = Event::Kind::kNotification, .value = mine_.notifications.front()};
      gave_room = theirs_.wants_room;
    }
    if (theirs_.closed && !said_lost_ && count < out.size()) {
      said_lost_ = true;
      out[count++] = {.kind = Event::Kind::kPeerLost, .status = StatusCode::kPeerLost};
    }
  }
  if (gave_room) theirs_.waker->Notify();
  return count;
}

std::string LoopbackEndpoint::last_error() const {
  MutexLock lock(connection_->mutex);
  return theirs_.closed ? peer_name_ + " closed the connection" : "";
}

bool LoopbackEndpoint::HasWork() {
  MutexLock lock(connection_->mutex);
  const bool has_room = mine_.wants_room && theirs_.notifications.size() < kLoopbackOutstanding;
  // Reported once: a caller that has given up the post must be able to sleep.
  if (has_room) mine_.wants_room = false;
  return !sent_.empty() || !mine_.notifications.empty() || has_room ||
         (theirs_.closed && !said_lost_);
}

}  // namespace lamina
