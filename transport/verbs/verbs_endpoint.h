// One peer over RDMA: posts are writes by the NIC into the peer's window; the last one carries the
// notification as immediate data.
//
// A notification uses up a receive at the peer, so this end holds *credits*, one per receive posted
// there. The peer returns them many at a time with an empty message that carries the number
// returned since the beginning. A post without credit gets kTryAgain.
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

// What a fabric's endpoints and listeners share. Outlives them.
struct VerbsContext {
  explicit VerbsContext(VerbsDevices opened) : devices(std::move(opened)) {}

  // Finds out which peers have gone.
  void CheckSockets();

  VerbsDevices devices;
  VerbsDepths depths;
  Limits limits;
  VerbsRegions regions;
  boost::asio::io_context io;
  PollSet poll_set;
  std::vector<VerbsEndpoint*> endpoints;
  bool may_have_slept = false;  // the reason to wake may have been a socket
};

class VerbsEndpoint final : public Endpoint {
 public:
  // REQUIRES: `pair` is connected, and the peer's is too.
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

  // The socket has something: the peer's end, as nothing is ever sent there.
  void OnSocket();

  // For Fabric::Arm: asks for an event with the next completion. False if Poll has something
  // already.
  bool PrepareSleep();

 private:
  struct Posted {
    uint64_t tag = 0;
    uint64_t end = 0;  // done when that many work requests are
  };

  // Sending: verbs_send.cc.
  // Fills keys_; returns the number of work requests that the ops need.
  Result<uint64_t> FindKeys(std::span<const WriteOp> ops);
  // And hands to the device.
  Status Build(std::span<const WriteOp> ops, std::optional<uint32_t> notify);
  Status AppendWrite(const WriteOp& op, uint32_t key);
  Status Ring();  // hands what is built to the device
  size_t max_write_bytes() const;
  Status PushBack();  // kTryAgain
  void ReturnCredits();
  uint64_t num_under_way() const { return num_requested_ - num_done_; }

  // Both return how many events they put into `out`.
  size_t TakeSent(std::span<Event> out);
  size_t TakeLost(std::span<Event> out);
  size_t Receive(std::span<Event> out);

  bool FillCompletions();  // false if there are none
  void Take(const ibv_wc& completion, std::span<Event> out, size_t& count);
  void TakeFailure(const ibv_wc& completion);
  void TakeCredits(uint32_t returned);
  void Replenish();
  void Break(const std::string& cause);  // no more posts; what has come is still delivered
  void Lose();                           // the rest is given up

  VerbsContext& context_;
  RendezvousLink link_;
  const std::unique_ptr<VerbsRegions::Memory> window_;
  const std::unique_ptr<VerbsDeviceWindow> device_window_;  // null: there is none
  std::unique_ptr<VerbsQueuePair> pair_;                    // null once lost
  const VerbsOffer peer_;

  BoundedQueue<Posted> posts_{kVerbsMaxPosts};
  uint64_t num_requested_ = 0;  // work requests since the beginning
  uint64_t num_done_ = 0;       // of these
  uint32_t num_notified_ = 0;   // wraps, as do the three below
  uint32_t num_credited_ = 0;   // of these, returned by the peer
  uint32_t num_received_ = 0;   // notifications of the peer whose receives are posted again
  uint32_t num_returned_ = 0;   // of these, told the peer

  std::array<ibv_send_wr, kVerbsMaxOps> requests_ = {};  // being built by Post, each with its piece
  std::array<ibv_sge, kVerbsMaxOps> pieces_ = {};
  std::array<uint32_t, kVerbsMaxOps> keys_ = {};  // of the ops being posted
  size_t num_built_ = 0;

  // Taken from the device, not handled yet: [completions_begin_, completions_end_).
  std::array<ibv_wc, 16> completions_;
  size_t completions_begin_ = 0;
  size_t completions_end_ = 0;
  uint32_t num_used_receives_ = 0;       // to be posted again
  uint32_t num_used_notifications_ = 0;  // of these, by notifications

  uint32_t polls_since_check_ = 0;
  bool wants_room_ = false;  // a post got kTryAgain
  bool has_room_ = false;    // and Poll has found room since, which is no event: Arm says it, once
  bool is_broken_ = false;
  bool is_flushed_ = false;  // broken, and the real cause has not been seen yet
  bool lost_ = false;
  bool said_lost_ = false;
  std::string last_error_;
};

}  // namespace lamina
