// The sending half of UcxEndpoint: posts, notices, credits, and closing.
#include <algorithm>
#include <cstring>

#include "base/clock.h"
#include "base/log.h"
#include "transport/checks.h"
#include "transport/ucx/ucx_endpoint.h"

namespace lamina {
namespace {

// Credits are returned so many at a time: the peer never runs out of them while this end polls.
constexpr uint32_t kCreditBatch = kUcxNotices / 4;

// How long an end that closes waits for its posts to leave, as the peer may not be polling.
constexpr auto kFarewell = milliseconds(100);

// How long UCX has to complete the requests of an endpoint that is closed by force, for which it
// needs no peer. Without force there is no point in waiting so long: a post that waits for a place
// in the queue of a dead peer never completes.
constexpr auto kForceDeadline = std::chrono::seconds(5);

}  // namespace

void UcxEndpoint::OnDone(void* request, ucs_status_t status, void* message) {
  auto& done = *static_cast<Message*>(message);
  --done.num_pending;
  if (status != UCS_OK) done.status = status;
  ucp_request_free(request);
}

ucp_request_param_t UcxEndpoint::Param(Message& message) const {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.send = OnDone;
  param.user_data = &message;
  return param;
}

// Accounts for what a call of UCX returned: null if the request is done already, an error, or a
// request that is in flight until OnDone.
void UcxEndpoint::Count(ucs_status_ptr_t request, std::string_view call, Message& message) {
  if (request == nullptr) return;
  if (!UCS_PTR_IS_ERR(request)) {
    ++message.num_pending;
    return;
  }
  message.status = UCS_PTR_STATUS(request);
  Break(UcxText(call, message.status));
}

Status UcxEndpoint::Post(std::span<const WriteOp> ops, std::optional<uint32_t> notify,
                         uint64_t tag) {
  LAMINA_RETURN_IF_ERROR(CheckOps(ops, kUcxLimits, peer_window_bytes()));
  if (is_broken_) return PeerLost(last_error_);
  if (posts_.full()) return TryAgain();
  wants_room_ = notify.has_value() && num_notified_ - num_credited_ == kUcxNotices;
  if (wants_room_) return TryAgain();
  // Mapped posts are written first: the peer need not wait for this end's bookkeeping.
  if (path_ == UcxPath::kMapped) PostMapped(ops, notify);
  Posted& post = posts_.PushSlot();
  post.tag = tag;
  post.notifies = notify.has_value();
  post.message.num_pending = 0;
  post.message.status = UCS_OK;
  if (path_ == UcxPath::kMapped) {
    ++num_sent_on_;
  } else {
    PostPuts(ops, notify, post.message);
    SendReadyNotices();
  }
  return OkStatus();
}

void UcxEndpoint::PostMapped(std::span<const WriteOp> ops, std::optional<uint32_t> notify) {
  std::byte* const window = mapped_.bytes().data() + kUcxControlBytes;
  for (const WriteOp& op : ops) {
    if (!op.source.empty())
      std::memcpy(window + op.peer_offset, op.source.data(), op.source.size());
  }
  if (!notify.has_value()) return;
  auto& theirs = *reinterpret_cast<UcxControl*>(mapped_.bytes().data());
  std::atomic<uint64_t>& slot = theirs.ring[num_notified_ % kUcxNotices];
  ++num_notified_;
  // Publishes the bytes in the window too: the peer's load of the slot acquires them.
  slot.store(uint64_t{num_notified_} << 32 | *notify, std::memory_order_seq_cst);
  // The load first: an exchange would take the cache line away from the peer with every post.
  if (theirs.owner_sleeps.load(std::memory_order_seq_cst) == 0) return;
  if (theirs.owner_sleeps.exchange(0, std::memory_order_seq_cst) != 0) Wake();
}

void UcxEndpoint::PostPuts(std::span<const WriteOp> ops, std::optional<uint32_t> notify,
                           Message& message) {
  for (const WriteOp& op : ops) {
    if (!op.source.empty() && !is_broken_) Put(op, message);
  }
  if (!notify.has_value() || is_broken_) return;
  message.notice = {.id = peer_.id,
                    .kind = UcxNotice::kNotification,
                    .value = *notify,
                    .sequence = num_numbered_++};
  ++num_notified_;
  if (has_unflushed_) Flush(message);
}

void UcxEndpoint::Put(const WriteOp& op, Message& message) {
  const uint64_t end = op.peer_offset + op.source.size();
  if (!has_unflushed_) unflushed_low_ = unflushed_high_ = op.peer_offset;
  // UCX keeps no order among writes, which matters only where they overlap: then a fence does.
  if (op.peer_offset < unflushed_high_ && end > unflushed_low_) ucp_worker_fence(worker_->worker());
  unflushed_low_ = std::min(unflushed_low_, op.peer_offset);
  unflushed_high_ = std::max(unflushed_high_, end);
  has_unflushed_ = true;
  const ucp_request_param_t param = Param(message);
  const uint64_t address = peer_.region_address + kUcxControlBytes + op.peer_offset;
  Count(ucp_put_nbx(worker_->endpoint(), op.source.data(), op.source.size(), address, key_, &param),
        "ucp_put_nbx", message);
}

void UcxEndpoint::Flush(Message& message) {
  const ucp_request_param_t param = Param(message);
  const ucs_status_ptr_t request = ucp_ep_flush_nbx(worker_->endpoint(), &param);
  // While the flush is in flight, so are the writes before it: Put keeps their range for its fence.
  has_unflushed_ = request != nullptr;
  Count(request, "ucp_ep_flush_nbx", message);
}

void UcxEndpoint::SendReadyNotices() {
  for (; num_sent_on_ < posts_.size() && !is_broken_; ++num_sent_on_) {
    Posted& post = posts_[num_sent_on_];
    if (!post.notifies) continue;
    if (post.message.num_pending > 0) return;  // notices keep the order of the posts
    if (post.message.status == UCS_OK) Send(post.message.notice, post.message);
  }
}

void UcxEndpoint::Send(const UcxNotice& notice, Message& message) {
  ucp_request_param_t param = Param(message);
  param.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_AM_SEND_FLAG_EAGER;
  if (!was_heard_ && path_ != UcxPath::kMapped)
    // With this flag UCX makes the connection of the other direction too, now and not with the
    // first large message.
    param.flags |= UCP_AM_SEND_FLAG_REPLY;
  Count(ucp_am_send_nbx(worker_->endpoint(), kUcxMessageId, &notice, sizeof(notice), nullptr, 0,
                        &param),
        "ucp_am_send_nbx", message);
}

void UcxEndpoint::ReturnCredits() {
  if (num_polled_ - num_returned_ < kCreditBatch || credits_.num_pending > 0) return;
  num_returned_ = num_polled_;
  credits_.notice = {.id = peer_.id, .kind = UcxNotice::kCredits, .value = num_returned_};
  Send(credits_.notice, credits_);
}

void UcxEndpoint::Wake() {
  if (wake_.num_pending > 0) return;  // the one in flight arrives after what it is to announce
  wake_.notice = {.id = peer_.id, .kind = UcxNotice::kWake};
  Send(wake_.notice, wake_);
}

int UcxEndpoint::NumPending() {
  int num_pending = credits_.num_pending + wake_.num_pending;
  for (size_t i = 0; i < posts_.size(); ++i) num_pending += posts_[i].message.num_pending;
  return num_pending;
}

bool UcxEndpoint::IsUnderWay(ucs_status_ptr_t request) const {
  return UCS_PTR_IS_PTR(request) && ucp_request_check_status(request) == UCS_INPROGRESS;
}

// Waits for what has been posted to leave. A post that Poll has returned as sent may still be in
// UCX's own queues, and closing by force would drop it.
void UcxEndpoint::WaitUntilSent() {
  ucp_request_param_t param{};
  const ucs_status_ptr_t flush = ucp_ep_flush_nbx(worker_->endpoint(), &param);
  const Deadline deadline = Deadline::After(kFarewell);
  while ((NumPending() > 0 || IsUnderWay(flush)) && !is_broken_ && !deadline.Passed()) {
    worker_->Progress();
    SendReadyNotices();
  }
  if (UCS_PTR_IS_PTR(flush)) ucp_request_free(flush);
}

void UcxEndpoint::Close() {
  if (worker_ == nullptr) return;
  if (worker_->endpoint() != nullptr) {
    if (!is_broken_) WaitUntilSent();
    CloseEndpoint();
  }
  if (key_ != nullptr) ucp_rkey_destroy(key_);
  key_ = nullptr;
  worker_.reset();
  // What UCX did not complete it has forgotten.
  const auto forget = [](Message& message) {
    if (message.num_pending > 0) message.status = UCS_ERR_CANCELED;
    message.num_pending = 0;
  };
  for (size_t i = 0; i < posts_.size(); ++i) forget(posts_[i].message);
  forget(credits_);
  forget(wake_);
}

void UcxEndpoint::CloseEndpoint() {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  // UCX closes by force only endpoints that notice failures, which local ones do not.
  param.flags = is_local_ ? 0 : UCP_EP_CLOSE_FLAG_FORCE;
  const ucs_status_ptr_t close = ucp_ep_close_nbx(worker_->endpoint(), &param);
  const Deadline deadline =
      is_local_ ? Deadline::After(kFarewell) : Deadline::After(kForceDeadline);
  // Without force UCX may wait for a peer that is gone.
  while ((NumPending() > 0 || (!is_local_ && IsUnderWay(close))) && !deadline.Passed())
    worker_->Progress();
  if (UCS_PTR_IS_PTR(close)) ucp_request_free(close);
}

}  // namespace lamina
