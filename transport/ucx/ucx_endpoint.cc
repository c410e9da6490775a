#include "transport/ucx/ucx_endpoint.h"

#include <sys/epoll.h>

#include <cstring>

#include "base/log.h"

namespace lamina {
namespace {

// A dead peer is noticed after this many polls by an owner that never sleeps: microseconds to a millisecond.
constexpr uint32_t kPollsPerUcxCheck = 4096;

}  // namespace

UcxEndpoint::UcxEndpoint(UcxContext& context, std::unique_ptr<UcxMemory> window)
    : context_(context), id_(context.NewId()), window_(std::move(window)) {
  context_.endpoints.emplace(id_, this);
}

UcxEndpoint::~UcxEndpoint() {
  Unwatch();
  Close();
  context_.endpoints.erase(id_);
}

Result<std::string> UcxEndpoint::Offer() const {
  LAMINA_ASSIGN_OR_RETURN(const std::string key, window_->PackKey());
  const std::string& address = context_.worker_address();
  const UcxOffer offer{.id = id_,
                       .window_address = reinterpret_cast<uintptr_t>(window_->bytes().data()),
                       .address_bytes = static_cast<uint32_t>(address.size()),
                       .key_bytes = static_cast<uint32_t>(key.size()),
                       .host = context_.host()};
  std::string text = std::string(reinterpret_cast<const char*>(&offer), sizeof(offer)) + address + key;
  if (text.size() > kMaxOfferBytes) {
    return InternalError("ucx: the address and the key of this end have " + std::to_string(text.size()) + " bytes, more than " +
                         std::to_string(kMaxOfferBytes) + "; name fewer devices in UCX_NET_DEVICES");
  }
  return text;
}

Status UcxEndpoint::Join(const RendezvousPeer& peer) {
  if (peer.offer.size() < sizeof(peer_)) return PeerLost("the peer's offer is malformed");
  std::memcpy(&peer_, peer.offer.data(), sizeof(peer_));
  if (peer.offer.size() != sizeof(peer_) + uint64_t{peer_.address_bytes} + peer_.key_bytes || peer_.address_bytes == 0 ||
      (peer_.key_bytes == 0) != (peer.window_bytes == 0)) {
    return PeerLost("the peer's offer is malformed");
  }
  peer_address_ = peer.offer.substr(sizeof(peer_), peer_.address_bytes);
  peer_key_ = peer.offer.substr(sizeof(peer_) + peer_.address_bytes);
  is_local_ = peer_.host[0] != 0 && peer_.host == context_.host();
  return is_local_ ? Reach() : OkStatus();
}

// When matters for UCX 1.13, which ends the process if the peer's shared memory is gone, or if the peer goes while UCX connects to it over
// a network. So through shared memory it is done while the peer waits, over a network when the handshake is complete.
Status UcxEndpoint::Reach() {
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(peer_address_.data());
  // UCX uses no shared memory where it has to notice failures; on one machine the link is enough for that.
  params.err_mode = is_local_ ? UCP_ERR_HANDLING_MODE_NONE : UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {OnError, this};
  ucs_status_t status = ucp_ep_create(context_.worker(), &params, &ep_);
  if (status != UCS_OK) return PeerLost(UcxText("ucp_ep_create", status) + "; both ends need a transport in common: look at UCX_TLS");
  if (!peer_key_.empty()) status = ucp_ep_rkey_unpack(ep_, peer_key_.data(), &key_);
  if (status != UCS_OK) return PeerLost(UcxText("ucp_ep_rkey_unpack", status));
  return OkStatus();
}

Status UcxEndpoint::Start(RendezvousLink link) {
  link_.emplace(std::move(link));
  if (!is_local_) LAMINA_RETURN_IF_ERROR(Reach());
  if (!is_broken_) context_.poll_set.Add(link_->fd(), EPOLLIN | EPOLLRDHUP, this);
  is_watched_ = !is_broken_;
  context_.LogTransports(ep_);
  return OkStatus();
}

size_t UcxEndpoint::Poll(std::span<Event> out) {
  if (context_.may_have_slept || (!is_broken_ && ++polls_since_check_ >= kPollsPerUcxCheck)) {
    polls_since_check_ = 0;
    context_.may_have_slept = false;
    context_.CheckSockets();
  }
  const bool was_broken = is_broken_;
  if (!lost_) {
    const bool progressed = context_.Progress();
    SendReadyNotices();
    // What the peer sent before its end is here before its socket closed: once UCX finds nothing more, that was all.
    if (was_broken && !progressed && notifications_.empty()) Lose();
  }
  size_t count = TakeSent(out);
  count += TakeNotifications(out.subspan(count));
  if (lost_) count += TakeLost(out.subspan(count));
  return count;
}

size_t UcxEndpoint::TakeSent(std::span<Event> out) {
  size_t count = 0;
  while (num_sent_on_ > 0 && count < out.size()) {
    const Posted& post = posts_->front();
    if (post.message.num_pending > 0) break;
    if (post.message.status != UCS_OK) {
      if (!is_broken_) Break(UcxText("a post failed", post.message.status));
      break;
    }
    out[count++] = {.kind = Event::Kind::kSent, .tag = post.tag};
    posts_->Pop();
    --num_sent_on_;
  }
  return count;
}

size_t UcxEndpoint::TakeLost(std::span<Event> out) {
  size_t count = 0;
  for (; !posts_->empty() && count < out.size(); posts_->Pop()) {
    out[count++] = {.kind = Event::Kind::kSent, .tag = posts_->front().tag, .status = StatusCode::kPeerLost};
  }
  num_sent_on_ = 0;
  if (posts_->empty() && !said_lost_ && count < out.size()) {
    said_lost_ = true;
    out[count++] = {.kind = Event::Kind::kPeerLost, .status = StatusCode::kPeerLost};
  }
  return count;
}

size_t UcxEndpoint::TakeNotifications(std::span<Event> out) {
  size_t count = 0;
  for (; count < out.size() && !notifications_.empty(); notifications_.Pop(), ++num_polled_) {
    out[count++] = {.kind = Event::Kind::kNotification, .value = notifications_.front()};
  }
  if (!is_broken_) ReturnCredits();
  return count;
}

void UcxEndpoint::OnNotice(const UcxNotice& notice) {
  if (lost_) return;
  if (notice.kind == UcxNotice::kCredits) {
    if (notice.value - num_credited_ > num_notified_ - num_credited_) {
      return Break("the peer breaks the rules: it claims to have polled more notifications than were sent");
    }
    num_credited_ = notice.value;
    return;
  }
  if (notice.kind != UcxNotice::kNotification || notice.sequence != num_received_ || notifications_.full()) {
    return Break("the peer breaks the rules: notification " + std::to_string(notice.sequence) + " of kind " + std::to_string(notice.kind) +
                 " came, expected was " + std::to_string(num_received_));
  }
  ++num_received_;
  notifications_.PushSlot() = notice.value;
}

bool UcxEndpoint::HasWork() {
  if (said_lost_) return false;
  if (is_broken_ || !notifications_.empty()) return true;
  if (num_sent_on_ > 0 && posts_->front().message.num_pending == 0) return true;
  if (num_sent_on_ < posts_->size() && (*posts_)[num_sent_on_].message.num_pending == 0) return true;  // its notice can go
  if (!wants_room_ || num_notified_ - num_credited_ == kUcxNotices) return false;
  wants_room_ = false;  // said once: the caller may have given up
  return true;
}

void UcxEndpoint::OnSocket() {
  if (is_broken_) return;
  if (const Status status = link_->CheckAlive(); !status.ok()) Break(status.message());
}

void UcxEndpoint::OnError(void* endpoint, ucp_ep_h /*ep*/, ucs_status_t status) {
  static_cast<UcxEndpoint*>(endpoint)->Break(UcxText("UCX lost the peer", status));
}

void UcxEndpoint::Break(const std::string& cause) {
  if (is_broken_) return;
  is_broken_ = true;
  last_error_ = (link_ ? peer_name() + ": " : "") + cause;
  Unwatch();
}

void UcxEndpoint::Unwatch() {
  if (std::exchange(is_watched_, false)) context_.poll_set.Remove(link_->fd());
}

void UcxEndpoint::Lose() {
  lost_ = true;
  Close();  // from here on UCX touches none of the sources
  LAMINA_LOG_DEBUG("ucx: {}", last_error_);
}

}  // namespace lamina
