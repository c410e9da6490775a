#include "transport/shm/shm_endpoint.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/log.h"
#include "transport/checks.h"

namespace lamina {
namespace {

// An owner that never sleeps looks at the sockets after so many polls, which takes it some
// microseconds to a millisecond; then it notices a dead peer.
constexpr uint32_t kPollsPerCheck = 4096;

// After so many empty polls in a row (about a microsecond) each further one executes a pause, which
// leaves the core to its other hyperthread: the peer may run there. The reply to a small message
// has come by then.
constexpr uint32_t kPollsBeforePause = 256;

// After so many notifications without a post of its own in between, an owner reads a stream and
// waits for no single answer. While it polls in vain then, it leaves the line of the next slots to
// the peer for some 0.2 to 1 us: each poll would take it away while the peer fills it.
constexpr uint32_t kNotificationsOfStream = 8;
constexpr int kPausesInStream = 24;

void PauseCore() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb");
#endif
}

constexpr uint64_t SlotOf(uint32_t number, uint32_t value) {
  return uint64_t{number} << 32 | value;
}
constexpr uint32_t NumberIn(uint64_t slot) { return static_cast<uint32_t>(slot >> 32); }

ShmControl& ControlOf(const Mapping& segment) {
  return *reinterpret_cast<ShmControl*>(segment.bytes().data());
}

}  // namespace

ShmContext::ShmContext() { poll_set.Add(wake.fd(), EPOLLIN, nullptr); }

void ShmContext::CheckSockets() {
  std::array<void*, 64> owners;
  const size_t count = poll_set.Ready(owners);
  for (size_t i = 0; i < count; ++i) {
    if (owners[i] != nullptr) static_cast<ShmEndpoint*>(owners[i])->OnSocket();
  }
}

Result<std::unique_ptr<Endpoint>> ShmEndpoint::Create(ShmContext& context, UniqueFd socket,
                                                      Mapping segment, ShmPeer peer) {
  Result<Mapping> theirs =
      Mapping::Shared(peer.segment.get(), kShmControlBytes + peer.window_bytes);
  if (!theirs.ok()) return PeerLost("mapping the peer's segment: " + theirs.status().message());
  peer.segment.Reset();  // the mapping keeps it alive
  return std::unique_ptr<Endpoint>(new ShmEndpoint(context, std::move(socket), std::move(segment),
                                                   std::move(theirs).value(), std::move(peer)));
}

ShmEndpoint::ShmEndpoint(ShmContext& context, UniqueFd socket, Mapping own_segment,
                         Mapping peer_segment, ShmPeer peer)
    : context_(context),
      socket_(std::move(socket)),
      own_segment_(std::move(own_segment)),
      peer_segment_(std::move(peer_segment)),
      peer_(std::move(peer)),
      own_(ControlOf(own_segment_)),
      theirs_(ControlOf(peer_segment_)),
      sent_(kShmLimits.max_outstanding) {
  context_.endpoints.push_back(this);
  context_.poll_set.Add(socket_.get(), EPOLLIN | EPOLLRDHUP, this);
}

ShmEndpoint::~ShmEndpoint() {
  std::erase(context_.endpoints, this);
  if (!lost_) context_.poll_set.Remove(socket_.get());  // else Lose has removed it
}

Status ShmEndpoint::Post(std::span<const WriteOp> ops, std::optional<uint32_t> notify,
                         uint64_t tag) {
  LAMINA_RETURN_IF_ERROR(CheckOps(ops, kShmLimits, peer_.window_bytes));
  if (lost_) return PeerLost(last_error_);
  if (sent_.full()) return TryAgain();
  if (notify.has_value() && RingIsFull()) {
    if (lost_) return PeerLost(last_error_);
    wants_room_ = true;
    return TryAgain();
  }
  std::byte* window = peer_segment_.bytes().data() + kShmControlBytes;
  for (const WriteOp& op : ops) {
    std::byte* const place = window + op.peer_offset;
    // A source at its own place was written through peer_window() and is there already.
    if (!op.source.empty() && op.source.data() != place)
      std::memcpy(place, op.source.data(), op.source.size());
  }
  if (notify.has_value()) {
    std::atomic<uint64_t>& slot = theirs_.ring[num_notified_ % kShmRingSlots];
    // Publishes the bytes in the window too: the peer's load of the slot acquires them.
    slot.store(SlotOf(++num_notified_, *notify), std::memory_order_seq_cst);
    WakePeerIf(theirs_.owner_sleeps);
    wants_room_ = false;
  }
  sent_.PushSlot() = tag;
  taken_at_post_ = num_taken_;
  return OkStatus();
}

bool ShmEndpoint::RingIsFull() {
  if (num_notified_ - known_tail_ < kShmRingSlots) return false;
  known_tail_ = theirs_.tail.load(std::memory_order_seq_cst);
  if (num_notified_ - known_tail_ > kShmRingSlots)
    Lose("the peer has corrupted its ring: it claims to have read more than was written");
  return lost_ || num_notified_ - known_tail_ == kShmRingSlots;
}

void ShmEndpoint::WakePeerIf(std::atomic<uint32_t>& announced) {
  // The load first: an exchange would take the cache line away from the peer with every post.
  if (announced.load(std::memory_order_seq_cst) == 0 ||
      announced.exchange(0, std::memory_order_seq_cst) == 0)
    return;
  const uint64_t one = 1;
  // EAGAIN means that the eventfd is signalled already.
  [[maybe_unused]] const ssize_t written = write(peer_.wake.get(), &one, sizeof(one));
}

size_t ShmEndpoint::Poll(std::span<Event> out) {
  if (announced_) {
    announced_ = false;
    // Only spares the peer a needless wake-up, so the order does not matter.
    own_.owner_sleeps.store(0, std::memory_order_relaxed);
  }
  if (context_.may_have_slept || (!lost_ && ++polls_since_check_ >= kPollsPerCheck)) {
    polls_since_check_ = 0;
    context_.may_have_slept = false;
    context_.CheckSockets();
  }
  size_t count = 0;
  for (; count < out.size() && !sent_.empty(); sent_.Pop())
    out[count++] = {.kind = Event::Kind::kSent, .tag = sent_.front()};
  // If the socket was found closed above, the ring is read afterwards: what the peer wrote before
  // its end still arrives. If the ring itself ends the connection, kPeerLost waits for the next
  // Poll.
  const bool was_lost = lost_;
  count += TakeNotifications(out.subspan(count));
  if (was_lost && !said_lost_ && count < out.size()) {
    said_lost_ = true;
    out[count++] = {.kind = Event::Kind::kPeerLost, .status = StatusCode::kPeerLost};
  }
  if (count > 0) {
    empty_polls_ = 0;
  } else if (++empty_polls_ > kPollsBeforePause) {
    PauseCore();
  } else if (num_taken_ - taken_at_post_ >= kNotificationsOfStream) {
    for (int i = 0; i < kPausesInStream; ++i) PauseCore();
  }
  return count;
}

size_t ShmEndpoint::TakeNotifications(std::span<Event> out) {
  if (ring_broken_ || said_lost_) return 0;
  size_t count = 0;
  for (; count < out.size(); ++count) {
    const uint64_t slot = own_.ring[num_taken_ % kShmRingSlots].load(std::memory_order_acquire);
    if (NumberIn(slot) != num_taken_ + 1) {
      CheckUnused(slot);
      break;
    }
    out[count] = {.kind = Event::Kind::kNotification, .value = static_cast<uint32_t>(slot)};
    ++num_taken_;
  }
  if (num_taken_ - told_tail_ >= kShmTailInterval) TellTail();
  return count;
}

bool ShmEndpoint::Rings() const {
  return NumberIn(own_.ring[num_taken_ % kShmRingSlots].load(std::memory_order_seq_cst)) ==
         num_taken_ + 1;
}

// An unused slot holds the notification that was taken from it one round ago, or 0 in the first
// round. Anything else was not written by a correct peer.
void ShmEndpoint::CheckUnused(uint64_t slot) {
  if (NumberIn(slot) == num_taken_ + 1 - kShmRingSlots || slot == 0) return;
  ring_broken_ = true;
  Lose("the peer has corrupted the ring: notification " + std::to_string(NumberIn(slot)) +
       " where " + std::to_string(num_taken_ + 1) + " belongs");
}

// Tells the peer how far this end has read, and wakes it if it waits for that. Doing so once per
// kShmTailInterval is enough: a peer that waits has filled the ring, so this end still has more
// than an interval to read.
void ShmEndpoint::TellTail() {
  told_tail_ = num_taken_;
  own_.tail.store(num_taken_, std::memory_order_seq_cst);
  WakePeerIf(own_.peer_wants_room);
}

void ShmEndpoint::OnSocket() {
  char byte;
  const ssize_t got = recv(socket_.get(), &byte, sizeof(byte), MSG_DONTWAIT);
  if (got == 0) return Lose("the peer closed the connection or its process ended");
  if (got > 0) return Lose("the peer sent something that does not belong on the socket");
  if (errno != EAGAIN && errno != EINTR) Lose(ErrnoText("recv"));
}

void ShmEndpoint::AnnounceSleep() {
  if (lost_) return;
  announced_ = true;
  own_.owner_sleeps.store(1, std::memory_order_seq_cst);
  if (wants_room_) theirs_.peer_wants_room.store(1, std::memory_order_seq_cst);
}

bool ShmEndpoint::HasWork() {
  if (said_lost_) return false;
  if (lost_ || !sent_.empty() || Rings()) return true;
  if (!wants_room_ || RingIsFull()) return false;
  // Reported once: a caller that has given up the post must be able to sleep.
  wants_room_ = false;
  return true;
}

void ShmEndpoint::Lose(const std::string& cause) {
  if (lost_) return;
  lost_ = true;
  last_error_ = peer_.name + ": " + cause;
  LAMINA_LOG_DEBUG("shm: {}", last_error_);
  context_.poll_set.Remove(socket_.get());
}

}  // namespace lamina
