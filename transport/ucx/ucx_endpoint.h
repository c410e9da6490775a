// One peer over UCX. How posts get to it is chosen when it is reached: see UcxPath and ucx_wire.h.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "transport/bounded_queue.h"
#include "transport/rendezvous.h"
#include "transport/transport.h"
#include "transport/ucx/ucx_context.h"

namespace lamina {

// UCX finds the registration of a source by its address and makes one where there is none. That
// costs time, so sources must be Buffers.
inline constexpr Limits kUcxLimits{.max_ops = 64,
                                   .max_outstanding = 64,
                                   .max_window_bytes = uint64_t{1} << 40,
                                   .registered_sources = true,
                                   .one_sided = true};

// How bytes and notifications get to a peer: on one machine kMapped, between machines kPuts. With
// "puts" in the environment variable LAMINA_UCX_PATH it is that on one machine too, for tests and
// to compare.
enum class UcxPath : uint8_t { kMapped, kPuts };

// Why two ends are not joined. REQUIRES: UcxTrustedDevices names none.
std::string UcxLocalOnly();

class UcxEndpoint final : public Endpoint {
 public:
  // Which begins with UcxControl.
  UcxEndpoint(UcxContext& context, uint64_t id, std::unique_ptr<UcxMemory> region);
  ~UcxEndpoint() override;

  // In this order, for the rendezvous: what the peer must know; take what the peer says; has it
  // been heard over UCX; from here on it can be posted to.
  Result<std::string> Offer() const;
  // kPeerLost if it is malformed, UCX makes nothing of it, or nothing safe joins the two.
  Status Join(const RendezvousPeer& peer);
  Status Settle();  // kTryAgain, or kPeerLost if UCX cannot get through
  void Start(RendezvousLink link);

  Status Post(std::span<const WriteOp> ops, std::optional<uint32_t> notify, uint64_t tag) override;
  size_t Poll(std::span<Event> out) override;
  std::span<std::byte> window() override { return region_->bytes().subspan(kUcxControlBytes); }
  uint64_t peer_window_bytes() const override { return link_->peer().window_bytes; }
  const std::string& peer_hello() const override { return link_->peer().hello; }
  const std::string& peer_name() const override { return link_->peer().name; }
  std::string last_error() const override { return last_error_; }
  std::string through() const override { return through_; }

  // From UcxContext: a notice came; the socket has something, which is the peer's end, as nothing
  // is ever sent there.
  void OnNotice(const UcxNotice& notice);
  void OnSocket();

  // For Fabric::Arm, in this order: say in shared memory that this end sleeps; look whether there
  // is something, or room again, after all.
  void AnnounceSleep();
  bool HasWork();

 private:
  // What UCX does for one post, to return credits or to wake. UCX reads and OnDone writes it until
  // num_pending is 0.
  struct Message {
    UcxNotice notice;
    int num_pending = 0;  // requests of UCX under way: writes, flush, messages
    ucs_status_t status = UCS_OK;
  };

  // A post that Poll has not returned yet.
  struct Posted {
    uint64_t tag = 0;
    bool notifies = false;
    Message message;
  };

  Status Reach();  // makes ep_ and key_
  Status ChoosePath();

  // Sending: ucx_send.cc.
  static void OnDone(void* request, ucs_status_t status, void* message);
  void Count(ucs_status_ptr_t request, std::string_view call, Message& message);
  ucp_request_param_t Param(Message& message) const;
  void PostMapped(std::span<const WriteOp> ops, std::optional<uint32_t> notify);
  void PostPuts(std::span<const WriteOp> ops, std::optional<uint32_t> notify, Message& message);
  void Put(const WriteOp& op, Message& message);
  void Flush(Message& message);
  void Send(const UcxNotice& notice, Message& message);
  void Wake();
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

  UcxControl& own() { return *reinterpret_cast<UcxControl*>(region_->bytes().data()); }
  bool NeedsProgress();
  bool is_settled() const { return was_heard_ && wake_->num_pending == 0; }
  bool Rings();  // a notification is in the ring

  UcxContext& context_;
  const uint64_t id_;
  std::unique_ptr<UcxMemory> region_;
  std::optional<RendezvousLink> link_;  // always, once started

  ucp_ep_h ep_ = nullptr;  // null once lost
  ucp_rkey_h key_ = nullptr;
  UcxOffer peer_;
  std::string peer_address_;  // of its worker; with the key only until Join
  std::string peer_key_;
  bool is_local_ = false;  // reached through shared memory
  bool was_heard_ = false;
  bool said_settled_ = false;
  UcxPath path_ = UcxPath::kPuts;
  std::byte* mapped_ = nullptr;  // of kMapped: the peer's region

  // On the heap, as UCX may hold on to them longer than this end lives: see Close.
  std::unique_ptr<BoundedQueue<Posted>> posts_ =
      std::make_unique<BoundedQueue<Posted>>(kUcxLimits.max_outstanding);
  std::unique_ptr<Message> credits_ = std::make_unique<Message>();
  std::unique_ptr<Message> wake_ = std::make_unique<Message>();
  size_t num_sent_on_ = 0;      // the oldest of posts_, whose notices are under way or done
  bool has_unflushed_ = false;  // bytes were written behind the last flush
  uint64_t unflushed_low_ = 0;  // where: [low, high) of the peer's window
  uint64_t unflushed_high_ = 0;

  uint32_t num_notified_ = 0;  // posted notifications; these counters wrap
  uint32_t num_credited_ = 0;  // of these, polled by the peer
  uint32_t num_numbered_ = 0;  // notices sent with a sequence
  bool wants_room_ = false;    // a post got kTryAgain for want of credits

  BoundedQueue<uint32_t> notifications_{kUcxNotices};  // come in notices, not polled
  uint32_t num_received_ = 0;                          // notices with a sequence
  uint32_t num_rung_ = 0;                              // notifications taken from the ring
  uint32_t num_polled_ = 0;                            // notifications
  uint32_t num_returned_ = 0;                          // of these, told the peer

  uint32_t polls_since_check_ = 0;
  uint32_t polls_since_progress_ = 0;
  bool announced_ = false;
  bool is_watched_ = false;  // link_ is in the poll set
  bool is_broken_ = false;
  bool lost_ = false;
  bool said_lost_ = false;
  std::string last_error_;
  std::string through_;  // UCX's transports, as they were when it reached the peer
};

}  // namespace lamina
