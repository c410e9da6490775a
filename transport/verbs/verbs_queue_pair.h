// One reliable connection (RC) between two RDMA devices: a queue pair with a completion queue of
// its own, and the offer by which its ends learn of each other.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "transport/transport.h"
#include "transport/verbs/verbs_device.h"

namespace lamina {

// What each end tells the other through the rendezvous. Little-endian, copied as it lies in memory.
struct VerbsOffer {
  std::array<uint8_t, 16> gid = {};  // 0   of the sender's port
  uint64_t window_address = 0;       // 16  in the sender's address space
  uint32_t window_key = 0;           // 24  remote key; 0 if the window is empty
  uint32_t queue_pair = 0;           // 28  its number, 24 bits
  uint32_t first_packet = 0;         // 32  sequence number of the sender's first packet, 24 bits
  // 36  How many notifications the receiver of the offer may send before credits are returned.
  uint32_t credits = 0;
  uint16_t lid = 0;                    // 40  of the port; 0 on RoCE
  uint8_t mtu = 0;                     // 42  enum ibv_mtu
  uint8_t is_infiniband = 0;           // 43  else RoCE
  uint32_t device_window_key = 0;      // 44  remote key
  uint64_t device_window_address = 0;  // 48
  uint64_t device_window_bytes = 0;    // 56  0: there is none that this connection reaches
  std::array<std::byte, 16> device{};  // 64  DeviceWindow::device
};
static_assert(sizeof(VerbsOffer) == 80 && offsetof(VerbsOffer, window_key) == 24 &&
              offsetof(VerbsOffer, device_window_address) == 48 &&
              offsetof(VerbsOffer, device) == 64);

// Sizes of an endpoint's queues in work requests; the same for all endpoints of a fabric.
struct VerbsDepths {
  uint32_t sends = 0;     // for posts; kCreditSends more are kept for returning credits
  uint32_t credits = 0;   // receives for the peer's notifications
  uint32_t receives = 0;  // all receives, with those for messages that return credits
};

// How many notifications an end takes before it returns their credits in one message: a quarter of
// the credits that the peer has.
inline uint32_t CreditsPerReturn(uint32_t credits) { return credits / 4; }
inline constexpr uint32_t kReplenishBatch = 32;  // receives posted with one doorbell
// Work requests kept free for returning credits, of which at most 4 are in flight.
inline constexpr uint32_t kCreditSends = 8;

// The largest depths, up to lamina's own limits, that every one of `devices` can hold. kNotFound if
// one cannot hold even a small connection.
Result<VerbsDepths> ChooseDepths(const VerbsDevices& devices);

// The offer in `text`, which comes from a peer and is checked. kPeerLost if it is malformed or
// `port` cannot be connected with it.
Result<VerbsOffer> ParseVerbsOffer(std::string_view text, const VerbsPort& port);

// Owns the queue pair and its completion queue. The destructor ends all access of the device to
// memory through this connection. Thread: owner.
class VerbsQueuePair {
 public:
  // A queue pair that can be connected, with all its receives posted. kOutOfSpace if the device has
  // no room for it.
  static Result<std::unique_ptr<VerbsQueuePair>> Create(VerbsDevices::Place place,
                                                        const VerbsDepths& depths);

  // This end's offer without its windows.
  VerbsOffer Offer() const;

  // Connects to the peer: from now on this end receives what the peer sends and can send. kPeerLost
  // if the device refuses what the peer offers.
  Status Connect(const VerbsOffer& peer);

  // Posts `count` receives with one doorbell. kOutOfSpace if the device refuses them. REQUIRES:
  // 1 <= count <= kReplenishBatch.
  Status PostReceives(uint32_t count);

  // Makes the device's channel become readable with the next completion. Without effect if that was
  // asked for already. kOutOfSpace if the device refuses.
  Status RequestEvent();

  // Takes the events that made the channel of `device` readable. Each queue pair that had one needs
  // another RequestEvent.
  static void TakeEvents(const VerbsDevice& device);

  ibv_qp* get() const { return pair_.get(); }
  ibv_cq* completions() const { return completions_.get(); }
  const VerbsPort& port() const { return place_.port; }
  const VerbsDevice& device() const { return place_.device; }
  const VerbsDepths& depths() const { return depths_; }
  uint32_t max_inline_bytes() const { return max_inline_bytes_; }

 private:
  VerbsQueuePair(VerbsDevices::Place place, const VerbsDepths& depths)
      : place_(place), depths_(depths) {}
  Status Open();
  Status Modify(ibv_qp_attr& attributes, int mask, const char* state);

  const VerbsDevices::Place place_;
  const VerbsDepths depths_;
  std::unique_ptr<ibv_cq, VerbsFree<ibv_destroy_cq>> completions_;  // outlives pair_
  std::unique_ptr<ibv_qp, VerbsFree<ibv_destroy_qp>> pair_;
  uint32_t max_inline_bytes_ = 0;
  uint32_t first_packet_ = 0;
  bool is_event_requested_ = false;
  // A list of receives without memory: a write with immediate data uses one up, but carries its own
  // address.
  std::array<ibv_recv_wr, kReplenishBatch> receives_ = {};
};

}  // namespace lamina
