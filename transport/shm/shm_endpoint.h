// One peer on this machine: posts are copies into its window, notifications go through a ring in
// shared memory. No system call per post or poll while neither end sleeps.
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

// What a fabric's endpoints and listeners share. Outlives them.
struct ShmContext {
  ShmContext();

  // Finds out which peers have gone.
  void CheckSockets();

  PollSet poll_set;
  WakeFd wake;  // what peers signal
  std::vector<ShmEndpoint*> endpoints;
  bool may_have_slept = false;  // the reason to wake may have been a socket
};

class ShmEndpoint final : public Endpoint {
 public:
  // Maps the peer's segment. `segment` is this end's own, already handed to the peer. REQUIRES: the
  // greetings have been exchanged on `socket`, which is not in the poll set.
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

  // The socket has something: the peer's end, as nothing is ever sent there.
  void OnSocket();

  // For Fabric::Arm, in this order: say in shared memory that this end sleeps; look whether there
  // is something after all.
  void AnnounceSleep();
  bool HasWork();

 private:
  ShmEndpoint(ShmContext& context, UniqueFd socket, Mapping own_segment, Mapping peer_segment,
              ShmPeer peer);

  size_t TakeNotifications(std::span<Event> out);
  bool Rings() const;  // the next notification is in own_
  void CheckUnused(uint64_t slot);
  void TellTail();
  bool RingIsFull();  // also true when it is broken, which ends the connection
  void WakePeerIf(std::atomic<uint32_t>& announced);
  void Lose(const std::string& cause);

  ShmContext& context_;
  UniqueFd socket_;
  Mapping own_segment_;
  Mapping peer_segment_;
  const ShmPeer peer_;
  ShmControl& own_;     // the peer writes its ring
  ShmControl& theirs_;  // this end writes its ring

  BoundedQueue<uint64_t> sent_;  // tags not polled yet
  uint32_t num_notified_ = 0;    // in theirs_; these counters wrap
  uint32_t known_tail_ = 0;      // of theirs_, as last read
  uint32_t num_taken_ = 0;       // from own_
  uint32_t told_tail_ = 0;       // of these, told the peer
  bool announced_ = false;
  bool wants_room_ = false;  // a post got kTryAgain
  uint32_t polls_since_check_ = 0;
  uint32_t empty_polls_ = 0;  // in a row

  bool lost_ = false;
  bool ring_broken_ = false;  // own_.ring holds nonsense
  bool said_lost_ = false;
  std::string last_error_;
};

}  // namespace lamina
