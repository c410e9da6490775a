// One peer over RDMA: a post becomes writes by the NIC into the peer's window, the last of which
// carries the notification as immediate data.
//
// A notification uses up a receive that was posted at the peer, so this end holds *credits*, one
// for each receive posted there for notifications. The peer returns many credits at a time with a
// message without payload, whose immediate data is the number returned since the beginning. A post
// with a notification gets kTryAgain while there is no credit.
#pragma once

#include <array>
#include <boost/asio/io_context.hpp>
#include <memory>
#include <string>
#include <vector>

#include "transport/bounded_queue.h"
#include "transport/poll_set.h"
#include "transport/rendezvous.h"
#include "transport/transport.h"
#include "transport/verbs/verbs_device.h"
#include "transport/verbs/verbs_memory.h"
#include "transport/verbs/verbs_queue_pair.h"

namespace lamina {

inline constexpr size_t kVerbsMaxOps = 64;
inline constexpr size_t kVerbsMaxPosts = 256;

class VerbsEndpoint;

// What the endpoints and listeners of a fabric share. Outlives them. Thread: owner of the fabric.
struct VerbsContext {
  explicit VerbsContext(VerbsDevices opened) : devices(std::move(opened)) {}

  // Finds out which peers are gone, and tells their endpoints.
  void CheckSockets();

  VerbsDevices devices;
  VerbsDepths depths;
  Limits limits;
  VerbsRegions regions;
  boost::asio::io_context io;  // never run: the sockets are non-blocking and polled
  PollSet poll_set;            // the devices' completion channels and the rendezvous sockets
  std::vector<VerbsEndpoint*> endpoints;
  // Set by Arm: the owner may sleep, and a socket may be what wakes it, so the next Poll looks at
  // the sockets.
  bool may_have_slept = false;
};

// Owns the queue pair, the windows and the rendezvous socket. Adds itself to the context and leaves
// it in its destructor. Thread: owner of the fabric.
class VerbsEndpoint final : public Endpoint {
 public:
  // `device_window` may be null. REQUIRES: `pair` is connected, and so is the peer's.
  VerbsEndpoint(VerbsContext& context, std::unique_ptr<VerbsRegions::Memory> window,
                std::unique_ptr<VerbsDeviceWindow> device_window,
                std::unique_ptr<VerbsQueuePair> pair, VerbsOffer peer_offer, RendezvousLink link);
  ~VerbsEndpoint() override;

  Status Post(std::span<const WriteOp> ops, std::optional<uint32_t> notify, uint64_t tag) override;
  size_t Poll(std::span<Event> out) override;
  std::span<std::byte> window() override { return window_->bytes(); }
  uint64_t peer_window_bytes() const override { return link_.peer().window_bytes; }
  DeviceWindow peer_device_window() const override {
    return {.bytes = peer_.device_window_bytes, .device = peer_.device};
  }
  bool posts_to_device() const override {
    return device_window_ != nullptr && peer_.device_window_bytes > 0;
  }
  const std::string& peer_hello() const override { return link_.peer().hello; }
  const std::string& peer_name() const override { return link_.peer().name; }
  std::string last_error() const override { return last_error_; }

  // Called when the rendezvous socket is readable. The peer is lost then, as nothing is ever sent
  // there.
  void OnSocket();

  // For Fabric::Arm: asks for an event with the next completion. False if Poll has something to do
  // already.
  bool PrepareSleep();

 private:
  struct Posted {
    uint64_t tag = 0;
    uint64_t end = 0;  // the post is done when num_done_ has reached this
  };

  // The sending half, in verbs_send.cc.
  // Puts the local keys of the sources into keys_ and returns how many work requests the ops need.
  // kInvalidArgument if a source is not registered.
  Result<uint64_t> FindKeys(std::span<const WriteOp> ops);
  // Builds the work requests of a post and hands them to the device.
  Status Build(std::span<const WriteOp> ops, std::optional<uint32_t> notify);
  Status AppendWrite(const WriteOp& op, uint32_t key);
  Status Ring();  // hands the built work requests to the device with one doorbell
  size_t max_write_bytes() const;
  Status PushBack();  // remembers that a post found no room; returns kTryAgain
  void ReturnCredits();
  uint64_t num_under_way() const { return num_requested_ - num_done_; }

  // All return how many events they put into `out`.
  size_t TakeSent(std::span<Event> out);
  size_t TakeLost(std::span<Event> out);
  size_t Receive(std::span<Event> out);

  bool FillCompletions();  // false if the device has none
  void Take(const ibv_wc& completion, std::span<Event> out, size_t& count);
  void TakeFailure(const ibv_wc& completion);
  void TakeCredits(uint32_t returned);
  void Replenish();  // posts the receives again that were used
  // Takes no more posts. What the peer has sent is still delivered.
  void Break(const std::string& cause);
  // Destroys the queue pair and gives up the posts that have not completed.
  void Lose();

  VerbsContext& context_;
  RendezvousLink link_;
  const std::unique_ptr<VerbsRegions::Memory> window_;
  const std::unique_ptr<VerbsDeviceWindow> device_window_;  // null: there is none
  std::unique_ptr<VerbsQueuePair> pair_;                    // null once lost
  const VerbsOffer peer_;

  BoundedQueue<Posted> posts_{kVerbsMaxPosts};
  uint64_t num_requested_ = 0;  // work requests handed to the device since the beginning
  uint64_t num_done_ = 0;       // how many of them have completed
  // These four counters wrap.
  uint32_t num_notified_ = 0;  // notifications posted
  uint32_t num_credited_ = 0;  // how many of them the peer has returned credits for
  uint32_t num_received_ = 0;  // notifications received whose receives are posted again
  uint32_t num_returned_ = 0;  // how many of them the peer has been returned credits for

  // The work requests that Post builds: the first num_built_ of requests_, each with its piece.
  std::array<ibv_send_wr, kVerbsMaxOps> requests_ = {};
  std::array<ibv_sge, kVerbsMaxOps> pieces_ = {};
  std::array<uint32_t, kVerbsMaxOps> keys_ = {};  // local keys of the ops being posted
  size_t num_built_ = 0;

  // Completions taken from the device and not handled yet: those in [completions_begin_,
  // completions_end_).
  std::array<ibv_wc, 16> completions_;
  size_t completions_begin_ = 0;
  size_t completions_end_ = 0;
  uint32_t num_used_receives_ = 0;       // to be posted again
  uint32_t num_used_notifications_ = 0;  // how many of them notifications used

  uint32_t polls_since_check_ = 0;
  bool wants_room_ = false;  // a post got kTryAgain
  // Poll has found room since. That is no event, so Arm reports it, once.
  bool has_room_ = false;
  bool is_broken_ = false;
  bool is_flushed_ = false;  // last_error_ is that of a flushed request, which is not the cause
  bool lost_ = false;
  bool said_lost_ = false;  // Poll has returned kPeerLost
  std::string last_error_;
};

}  // namespace lamina
