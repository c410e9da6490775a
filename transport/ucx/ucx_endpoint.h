// One peer over UCX: posts are ucp_put_nbx into the peer's window; a notification is an active message behind a flush (ucx_wire.h).
#pragma once

#include <memory>
#include <string>

#include "transport/bounded_queue.h"
#include "transport/rendezvous.h"
#include "transport/transport.h"
#include "transport/ucx/ucx_context.h"

namespace lamina {

// UCX finds the registration of a source by its address and makes one where there is none. That costs time, so sources must be Buffers.
inline constexpr Limits kUcxLimits{
    .max_ops = 64, .max_outstanding = 64, .max_window_bytes = uint64_t{1} << 40, .registered_sources = true, .one_sided = true};

class UcxEndpoint final : public Endpoint {
 public:
  UcxEndpoint(UcxContext& context, std::unique_ptr<UcxMemory> window);
  ~UcxEndpoint() override;

  // In this order, for the rendezvous: what the peer must know; take what the peer says; from here on it can be posted to.
  Result<std::string> Offer() const;
  Status Join(const RendezvousPeer& peer);  // kPeerLost if it is malformed or UCX makes nothing of it
  Status Start(RendezvousLink link);        // kPeerLost if UCX makes nothing of it

  Status Post(std::span<const WriteOp> ops, std::optional<uint32_t> notify, uint64_t tag) override;
  size_t Poll(std::span<Event> out) override;
  std::span<std::byte> window() override { return window_->bytes(); }
  uint64_t peer_window_bytes() const override { return link_->peer().window_bytes; }
  const std::string& peer_hello() const override { return link_->peer().hello; }
  const std::string& peer_name() const override { return link_->peer().name; }
  std::string last_error() const override { return last_error_; }

  // From UcxContext: a notice came; the socket has something, which is the peer's end, as nothing is ever sent there.
  void OnNotice(const UcxNotice& notice);
  void OnSocket();

  // For Fabric::Arm: Poll has something already, or there is room again.
  bool HasWork();

 private:
  // What UCX does for one post, or to return credits. UCX reads and OnDone writes it until num_pending is 0.
  struct Message {
    UcxNotice notice;
    int num_pending = 0;  // requests of UCX under way: writes, flush, message
    ucs_status_t status = UCS_OK;
  };

  // A post that Poll has not returned yet.
  struct Posted {
    uint64_t tag = 0;
    bool notifies = false;
    Message message;
  };

  Status Reach();  // makes ep_ and key_

  // Sending: ucx_send.cc.
  static void OnDone(void* request, ucs_status_t status, void* message);
  void Count(ucs_status_ptr_t request, std::string_view call, Message& message);
  ucp_request_param_t Param(Message& message) const;
  void Write(const WriteOp& op, Message& message);
  void Flush(Message& message);
  void Send(Message& message);
  void SendReadyNotices();  // of posts whose bytes have arrived, in order
  void ReturnCredits();
  bool IsUnderWay(ucs_status_ptr_t request) const;
  int NumPending();
  void WaitUntilSent();
  void Close();          // from here on UCX touches no source
  void LeaveRequests();  // those that UCX does not give back keep their memory

  // All return how many events they put into `out`.
  size_t TakeSent(std::span<Event> out);
  size_t TakeLost(std::span<Event> out);
  size_t TakeNotifications(std::span<Event> out);

  static void OnError(void* endpoint, ucp_ep_h ep, ucs_status_t status);
  void Break(const std::string& cause);  // no more posts; what has come is still delivered
  void Lose();                           // the rest is given up
  void Unwatch();

  UcxContext& context_;
  const uint64_t id_;
  std::unique_ptr<UcxMemory> window_;
  std::optional<RendezvousLink> link_;  // always, once started

  ucp_ep_h ep_ = nullptr;  // null once lost
  ucp_rkey_h key_ = nullptr;
  UcxOffer peer_;
  std::string peer_address_;  // of its worker; with the key only until Start
  std::string peer_key_;
  bool is_local_ = false;  // reached through shared memory

  // On the heap, as UCX may hold on to them longer than this end lives: see Close.
  std::unique_ptr<BoundedQueue<Posted>> posts_ = std::make_unique<BoundedQueue<Posted>>(kUcxLimits.max_outstanding);
  std::unique_ptr<Message> credits_ = std::make_unique<Message>();
  size_t num_sent_on_ = 0;      // the oldest of posts_, whose notices are under way or done
  bool has_unflushed_ = false;  // bytes were written behind the last flush
  uint64_t unflushed_low_ = 0;  // where: [low, high) of the peer's window
  uint64_t unflushed_high_ = 0;

  uint32_t num_notified_ = 0;  // posted notifications; these counters wrap
  uint32_t num_credited_ = 0;  // of these, polled by the peer
  bool wants_room_ = false;    // a post got kTryAgain for want of credits

  BoundedQueue<uint32_t> notifications_{kUcxNotices};  // come, not polled
  uint32_t num_received_ = 0;
  uint32_t num_polled_ = 0;
  uint32_t num_returned_ = 0;  // of these, told the peer

  uint32_t polls_since_check_ = 0;
  bool is_watched_ = false;  // link_ is in the poll set
  bool is_broken_ = false;
  bool lost_ = false;
  bool said_lost_ = false;
  std::string last_error_;
};

}  // namespace lamina
