// One reliable connection between two devices: a queue pair with a completion queue of its own.
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

// What each end tells the other through the rendezvous.
struct VerbsOffer {
  std::array<uint8_t, 16> gid = {};  // 0   of the port
  uint64_t window_address = 0;       // 16  as the owner of the window sees it
  uint32_t window_key = 0;           // 24  0 if the window is empty
  uint32_t queue_pair = 0;           // 28  24 bits
  uint32_t first_packet = 0;         // 32  sequence number of what this end sends, 24 bits
  // 36  notifications that the peer may send before this end returns credits.
  uint32_t credits = 0;
  uint16_t lid = 0;                    // 40  of the port; 0 on RoCE
  uint8_t mtu = 0;                     // 42  enum ibv_mtu
  uint8_t is_infiniband = 0;           // 43  else RoCE
  uint32_t device_window_key = 0;      // 44
  uint64_t device_window_address = 0;  // 48
  uint64_t device_window_bytes = 0;    // 56  0: there is none that this connection reaches
  std::array<std::byte, 16> device{};  // 64  which device has it
};
static_assert(sizeof(VerbsOffer) == 80 && offsetof(VerbsOffer, window_key) == 24 &&
              offsetof(VerbsOffer, device_window_address) == 48 &&
              offsetof(VerbsOffer, device) == 64);

// Sizes of an endpoint's queues; the same for all endpoints of a fabric.
struct VerbsDepths {
  uint32_t sends = 0;     // work requests of posts
  uint32_t credits = 0;   // receives for the peer's notifications
  uint32_t receives = 0;  // all receives: there are some for the messages that return credits too
};

// Notifications that are collected before their credits go back, in one message: a quarter of what
// the peer has.
inline uint32_t CreditsPerReturn(uint32_t credits) { return credits / 4; }
inline constexpr uint32_t kReplenishBatch = 32;  // receives posted with one doorbell
// Work requests kept free for returning credits: at most 4 are under way.
inline constexpr uint32_t kCreditSends = 8;

// As deep as all `devices` can. kNotFound if one cannot hold even a small connection.
Result<VerbsDepths> ChooseDepths(const VerbsDevices& devices);

// kPeerLost if the offer is not one that `port` can be connected with.
Result<VerbsOffer> ParseVerbsOffer(std::string_view text, const VerbsPort& port);

// Thread: owner. The destructor ends all access of the device to memory through this connection.
class VerbsQueuePair {
 public:
  // Ready to be connected, with all receives posted. kOutOfSpace if the device is full.
  static Result<std::unique_ptr<VerbsQueuePair>> Create(VerbsDevices::Place place,
                                                        const VerbsDepths& depths);

  // Everything about this end except the windows.
  VerbsOffer Offer() const;

  // From now on receives from and sends to the peer. Its messages are answered before it is told
  // so.
  Status Connect(const VerbsOffer& peer);

  // Posts `count` receives with one doorbell. At most kReplenishBatch.
  Status PostReceives(uint32_t count);

  // The device's channel becomes readable when something completes after this call.
  Status RequestEvent();

  // Takes what made the channel of `device` readable: each queue pair that had an event needs
  // another request.
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
  // A chain of receives without memory: writes bring their own address.
  std::array<ibv_recv_wr, kReplenishBatch> receives_ = {};
};

}  // namespace lamina
