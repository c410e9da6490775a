// A peer on this machine: posts are copies into its window, and notifications go through a ring in
// shared memory (shm_segment.h). While neither end sleeps a post or poll makes no system call, but
// for a look at the sockets every few thousand polls.
#pragma once

#include <string>
#include <vector>

#include "base/inbox.h"
#include "transport/bounded_queue.h"
#include "transport/mapping.h"
#include "transport/poll_set.h"
#include "transport/shm/shm_socket.h"
#include "transport/transport.h"

namespace lamina {

inline constexpr Limits kShmLimits{.max_ops = 64,
                                   .max_outstanding = kShmRingSlots,
                                   .max_window_bytes = uint64_t{1} << 40,
                                   .registered_sources = false,
                                   .one_sided = true};

class ShmEndpoint;

// What the endpoints and listeners of a fabric share. Outlives them. Thread: owner of the fabric.
struct ShmContext {
  ShmContext();

  // Finds out which peers are gone, and tells their endpoints.
  void CheckSockets();

  PollSet poll_set;
  WakeFd wake;  // signalled by the peers of all endpoints
  std::vector<ShmEndpoint*> endpoints;
  // Set by Arm: the owner may sleep, and a socket may be what wakes it, so the next Poll looks at
  // the sockets.
  bool may_have_slept = false;
};

// Owns both mappings and the socket. Adds itself to the context and leaves it in its destructor.
// Thread: owner of the fabric.
class ShmEndpoint final : public Endpoint {
 public:
  // Maps the peer's segment. `segment` is this end's own, which the peer has been given. kPeerLost
  // if the peer's segment cannot be mapped. REQUIRES: the greetings have been exchanged on
  // `socket`, which is not in the poll set.
  static Result<std::unique_ptr<Endpoint>> Create(ShmContext& context, UniqueFd socket,
                                                  Mapping segment, ShmPeer peer);
  ~ShmEndpoint() override;

  Status Post(std::span<const WriteOp> ops, std::optional<uint32_t> notify, uint64_t tag) override;
  size_t Poll(std::span<Event> out) override;
  std::span<std::byte> window() override { return own_segment_.bytes().subspan(kShmControlBytes); }
  uint64_t peer_window_bytes() const override { return peer_.window_bytes; }
  std::span<std::byte> peer_window() override {
    return peer_segment_.bytes().subspan(kShmControlBytes);
  }
  DeviceWindow peer_device_window() const override { return peer_.described_window; }
  const std::string& peer_hello() const override { return peer_.hello; }
  const std::string& peer_name() const override { return peer_.name; }
  std::string last_error() const override { return last_error_; }

  // Called when the socket is readable. The peer is lost then, as nothing is ever sent there.
  void OnSocket();

  // For Fabric::Arm, called in this order. AnnounceSleep says in shared memory that this end
  // sleeps; HasWork then looks whether there is something to poll, or room for a post, after all.
  void AnnounceSleep();
  bool HasWork();

 private:
  ShmEndpoint(ShmContext& context, UniqueFd socket, Mapping own_segment, Mapping peer_segment,
              ShmPeer peer);

  size_t TakeNotifications(std::span<Event> out);
  bool Rings() const;  // whether the next notification is in own_
  void CheckUnused(uint64_t slot);
  void TellTail();
  // Whether theirs_ has no room for a notification. True also if the peer has written an impossible
  // tail, which ends the connection.
  bool RingIsFull();
  void WakePeerIf(std::atomic<uint32_t>& announced);
  void Lose(const std::string& cause);

  ShmContext& context_;
  UniqueFd socket_;
  Mapping own_segment_;
  Mapping peer_segment_;
  const ShmPeer peer_;
  ShmControl& own_;     // in own_segment_: the peer writes its ring
  ShmControl& theirs_;  // in peer_segment_: this end writes its ring

  BoundedQueue<uint64_t> sent_;  // tags whose kSent Poll has not returned
  // These five counters wrap, as the numbers in the ring do.
  uint32_t num_notified_ = 0;   // notifications written to theirs_
  uint32_t known_tail_ = 0;     // theirs_.tail, as last read
  uint32_t num_taken_ = 0;      // notifications read from own_
  uint32_t taken_at_post_ = 0;  // num_taken_ at the last post
  uint32_t told_tail_ = 0;      // own_.tail, as last written
  bool announced_ = false;      // own_.owner_sleeps was set
  bool wants_room_ = false;     // a post got kTryAgain because the ring was full
  uint32_t polls_since_check_ = 0;
  uint32_t empty_polls_ = 0;  // in a row

  bool lost_ = false;
  bool ring_broken_ = false;  // own_.ring has an impossible slot
  bool said_lost_ = false;    // Poll has returned kPeerLost
  std::string last_error_;
};

}  // namespace lamina
