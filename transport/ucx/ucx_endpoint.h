// One peer over UCX. How posts get to it is chosen when it is connected: see UcxPath and
// ucx_wire.h.
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
#include "transport/ucx/ucx_worker.h"

namespace lamina {

// registered_sources: UCX finds the registration of a source by its address, and makes one where
// there is none. That costs time, so sources must lie in Buffers; Post does not check it.
inline constexpr Limits kUcxLimits{.max_ops = 64,
                                   .max_outstanding = 64,
                                   .max_window_bytes = uint64_t{1} << 40,
                                   .registered_sources = true,
                                   .one_sided = true};

// How bytes and notifications get to a peer: kMapped on one machine, kPuts between machines. With
// LAMINA_UCX_PATH=puts in the environment kPuts is used on one machine too, for tests and for
// comparison.
enum class UcxPath : uint8_t { kMapped, kPuts };

// The reason, for messages, why two ends on different machines are not joined. REQUIRES:
// UcxTrustedDevices names no devices.
std::string UcxLocalOnly();

// Owns this end's region and the connection. Adds itself to the context and leaves it in its
// destructor, which waits up to 100 ms for posts to leave. Thread: owner of the fabric. Its sending
// half is in ucx_send.cc.
class UcxEndpoint final : public Endpoint, private UcxReceiver {
 public:
  // Opens the connection's own worker; see UcxWorker::Create for the errors. `region` has a
  // UcxControl and, behind it, the window. `id` is random: who has not been told it cannot send
  // notices to this end.
  static Result<std::unique_ptr<UcxEndpoint>> Create(UcxContext& context, uint64_t id,
                                                     std::unique_ptr<UcxMemory> region);
  ~UcxEndpoint() override;

  // The steps of the rendezvous, in this order (RendezvousEnd).
  // What the peer must know to reach this end. kInternal with UCX's reason, or if it is too long.
  Result<std::string> Offer() const;
  // Connects to the peer. kPeerLost if its offer is malformed, UCX cannot use it, or no transport
  // that is safe joins the two.
  Status Join(const RendezvousPeer& peer);
  // Ok once the peer has been heard over UCX; kTryAgain until then; kPeerLost if UCX does not get
  // through.
  Status Settle();
  // From here on Post and Poll may be called.
  void Start(RendezvousLink link);

  Status Post(std::span<const WriteOp> ops, std::optional<uint32_t> notify, uint64_t tag) override;
  size_t Poll(std::span<Event> out) override;
  std::span<std::byte> window() override { return region_->bytes().subspan(kUcxControlBytes); }
  uint64_t peer_window_bytes() const override { return link_->peer().window_bytes; }
  const std::string& peer_hello() const override { return link_->peer().hello; }
  const std::string& peer_name() const override { return link_->peer().name; }
  std::string last_error() const override { return last_error_; }
  std::string through() const override { return through_; }

  // Called by UcxContext when the rendezvous socket is readable. The peer is lost then, as nothing
  // is ever sent there.
  void OnSocket();

  // For Fabric::Arm, called in this order. Arm says in shared memory that this end sleeps, and has
  // UCX make the poll set readable for what it receives; false if UCX has something to do now.
  // HasWork then looks whether there is something to poll or accept, or room again, after all.
  bool Arm();
  bool HasWork();

 private:
  // The requests to UCX that one post makes, or that return credits or wake the peer. UCX reads it
  // and OnDone writes it until num_pending is 0.
  struct Message {
    UcxNotice notice;
    int num_pending = 0;  // requests in flight: writes, a flush, active messages
    ucs_status_t status = UCS_OK;
  };

  // A post whose kSent Poll has not returned.
  struct Posted {
    uint64_t tag = 0;
    bool notifies = false;
    Message message;
  };

  UcxEndpoint(UcxContext& context, uint64_t id, std::unique_ptr<UcxMemory> region);
  void OnNotice(const UcxNotice& notice) override;
  void OnError(ucs_status_t status) override;
  Status MapRegion(uint64_t window_bytes);  // the peer's, as mapped_
  Status UnpackKey();                       // of the peer's region, as key_

  // The sending half, in ucx_send.cc.
  static void OnDone(void* request, ucs_status_t status, void* message);
  void Count(ucs_status_ptr_t request, std::string_view call, Message& message);
  ucp_request_param_t Param(Message& message) const;
  void PostMapped(std::span<const WriteOp> ops, std::optional<uint32_t> notify);
  void PostPuts(std::span<const WriteOp> ops, std::optional<uint32_t> notify, Message& message);
  void Put(const WriteOp& op, Message& message);
  void Flush(Message& message);
  void Send(const UcxNotice& notice, Message& message);
  void Wake();              // sends a notice that only wakes the peer
  void SendReadyNotices();  // sends the notices of posts whose bytes have arrived, in order
  void ReturnCredits();
  bool IsUnderWay(ucs_status_ptr_t request) const;
  int NumPending();  // requests in flight, of all messages
  void WaitUntilSent();
  void CloseEndpoint();
  void Close();  // closes the worker; UCX reads no source afterwards

  // All return how many events they put into `out`.
  size_t TakeSent(std::span<Event> out);
  size_t TakeLost(std::span<Event> out);
  size_t TakeNotifications(std::span<Event> out);

  // Takes no more posts. What the peer has sent is still delivered.
  void Break(const std::string& cause);
  // Closes the worker and gives up the posts that have not completed.
  void Lose();
  void Unwatch();

  UcxControl& own() { return *reinterpret_cast<UcxControl*>(region_->bytes().data()); }
  bool NeedsProgress();
  // Both directions work: the peer's first notice has come, and this end's has left.
  bool is_settled() const { return was_heard_ && wake_.num_pending == 0; }
  bool Rings();  // whether the next notification is in the ring

  UcxContext& context_;
  const uint64_t id_;
  std::unique_ptr<UcxMemory> region_;
  std::optional<RendezvousLink> link_;  // empty until Start

  std::unique_ptr<UcxWorker> worker_;  // null once lost
  ucp_rkey_h key_ = nullptr;           // if path_ is kPuts
  UcxOffer peer_;
  // From the peer's offer, used by Join only.
  std::string peer_address_;  // of its worker
  std::string peer_key_;
  bool is_local_ = false;      // the peer is on this machine
  bool was_heard_ = false;     // a notice of the peer has come
  bool said_settled_ = false;  // HasWork has reported is_settled()
  UcxPath path_ = UcxPath::kPuts;
  Mapping mapped_;  // the peer's region, if path_ is kMapped

  BoundedQueue<Posted> posts_{kUcxLimits.max_outstanding};
  Message credits_;
  Message wake_;
  // So many posts at the front of posts_ have had their notice sent, if they have one.
  size_t num_sent_on_ = 0;
  // Bytes were written that no flush is known to have completed.
  bool has_unflushed_ = false;
  uint64_t unflushed_low_ = 0;  // they lie in [low, high) of the peer's window
  uint64_t unflushed_high_ = 0;

  // All counters below wrap.
  uint32_t num_notified_ = 0;  // notifications posted
  uint32_t num_credited_ = 0;  // how many of them the peer has polled, as far as it has told
  uint32_t num_numbered_ = 0;  // notices with a sequence number made
  bool wants_room_ = false;    // a post got kTryAgain for want of credits

  BoundedQueue<uint32_t> notifications_{kUcxNotices};  // came in notices, not polled yet
  uint32_t num_received_ = 0;                          // notices with a sequence number received
  uint32_t num_rung_ = 0;                              // notifications taken from the ring
  uint32_t num_polled_ = 0;                            // notifications that Poll has returned
  uint32_t num_returned_ = 0;                          // num_polled_, as last told the peer

  uint32_t polls_since_check_ = 0;
  uint32_t polls_since_progress_ = 0;
  bool announced_ = false;   // own().owner_sleeps was set
  bool is_watched_ = false;  // link_ is in the poll set
  bool is_broken_ = false;
  bool lost_ = false;
  bool said_lost_ = false;  // Poll has returned kPeerLost
  std::string last_error_;
  std::string through_;  // UCX's transports when this end had joined the peer
};

}  // namespace lamina
