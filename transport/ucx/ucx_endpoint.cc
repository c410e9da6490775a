#include "transport/ucx/ucx_endpoint.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "transport/rdma_host.h"
#include "transport/sealed_memory.h"

namespace lamina {
namespace {

// An owner that never sleeps looks at the sockets after so many polls, which takes it some
// microseconds to a millisecond; then it notices a dead peer.
constexpr uint32_t kPollsPerUcxCheck = 4096;
constexpr uint32_t kMappedPollsPerProgress = 16;  // see NeedsProgress

// The transports in `lanes` (UcxWorker::Lanes), each once: "tcp/lo" for "lane[0]:  1:tcp/lo.0
// md[1] -> ...".
std::vector<std::string> TransportsOf(std::string_view lanes) {
  constexpr std::string_view kBegin = "]:";
  std::vector<std::string> names;
  for (size_t at = lanes.find("lane["); at != std::string_view::npos;
       at = lanes.find("lane[", at + 1)) {
    const size_t begin = lanes.find(kBegin, at);
    if (begin == std::string_view::npos) break;
    const size_t colon = lanes.find(':', begin + kBegin.size());
    if (colon == std::string_view::npos) break;
    const std::string_view name = lanes.substr(colon + 1, lanes.find(' ', colon) - colon - 1);
    std::string transport(name.substr(0, name.rfind('.')));  // without the path's number
    if (std::find(names.begin(), names.end(), transport) == names.end())
      names.push_back(std::move(transport));
  }
  return names;
}

}  // namespace

std::string UcxLocalOnly() {
  return std::string("UCX joins only processes of one user on one machine, as ") +
         kUcxTrustedDevices + " names no RDMA devices; between machines use transport verbs or tcp";
}

UcxEndpoint::UcxEndpoint(UcxContext& context, uint64_t id, std::unique_ptr<UcxMemory> region)
    : context_(context), id_(id), region_(std::move(region)) {
  context_.endpoints.insert(this);
}

Result<std::unique_ptr<UcxEndpoint>> UcxEndpoint::Create(UcxContext& context, uint64_t id,
                                                         std::unique_ptr<UcxMemory> region) {
  std::unique_ptr<UcxEndpoint> endpoint(new UcxEndpoint(context, id, std::move(region)));
  LAMINA_ASSIGN_OR_RETURN(endpoint->worker_, UcxWorker::Create(context, *endpoint));
  return endpoint;
}

UcxEndpoint::~UcxEndpoint() {
  Unwatch();
  Close();
  context_.endpoints.erase(this);
}

Result<std::string> UcxEndpoint::Offer() const {
  LAMINA_ASSIGN_OR_RETURN(const std::string key, region_->PackKey());
  const std::string& address = worker_->address();
  const UcxOffer offer{.id = id_,
                       .region_address = reinterpret_cast<uintptr_t>(region_->bytes().data()),
                       .address_bytes = static_cast<uint32_t>(address.size()),
                       .key_bytes = static_cast<uint32_t>(key.size()),
                       .process = getpid(),
                       .descriptor = region_->descriptor(),
                       .host = context_.host()};
  std::string text =
      std::string(reinterpret_cast<const char*>(&offer), sizeof(offer)) + address + key;
  if (text.size() > kMaxOfferBytes) {
    return InternalError("ucx: the address and the key of this end have " +
                         std::to_string(text.size()) + " bytes, more than " +
                         std::to_string(kMaxOfferBytes) + "; name fewer devices in " +
                         kUcxTrustedDevices);
  }
  return text;
}

Status UcxEndpoint::Join(const RendezvousPeer& peer) {
  if (peer.offer.size() < sizeof(peer_)) return PeerLost("the peer's offer is malformed");
  std::memcpy(&peer_, peer.offer.data(), sizeof(peer_));
  if (peer.offer.size() != sizeof(peer_) + uint64_t{peer_.address_bytes} + peer_.key_bytes ||
      peer_.address_bytes == 0) {
    return PeerLost("the peer's offer is malformed");
  }
  peer_address_ = peer.offer.substr(sizeof(peer_), peer_.address_bytes);
  peer_key_ = peer.offer.substr(sizeof(peer_) + peer_.address_bytes);
  is_local_ = peer_.host[0] != 0 && peer_.host == context_.host();
  if (!is_local_ && UcxTrustedDevices().empty()) return PeerLost(UcxLocalOnly());
  const bool maps = is_local_ && peer_.descriptor >= 0 && !WantsUcxPuts();
  // First, as it finds out whether the peer's process is there: UCX would leak some memory.
  if (maps) LAMINA_RETURN_IF_ERROR(MapRegion(peer.window_bytes));
  LAMINA_RETURN_IF_ERROR(worker_->Connect(peer_address_, is_local_));
  if (!maps) LAMINA_RETURN_IF_ERROR(UnpackKey());
  const std::string lanes = worker_->Lanes();
  for (const std::string& name : TransportsOf(lanes))
    through_ += (through_.empty() ? "" : ", ") + name;
  context_.LogOnce(path_ == UcxPath::kMapped ? "mapped" : "puts", lanes);
  Wake();  // the first message makes UCX connect, and tells the peer that it did
  return OkStatus();
}

Status UcxEndpoint::MapRegion(uint64_t window_bytes) {
  LAMINA_ASSIGN_OR_RETURN(const UniqueFd file, OpenSealedMemory(peer_.process, peer_.descriptor,
                                                                kUcxControlBytes, window_bytes));
  LAMINA_ASSIGN_OR_RETURN(mapped_, Mapping::Shared(file.get(), kUcxControlBytes + window_bytes));
  path_ = UcxPath::kMapped;
  return OkStatus();
}

Status UcxEndpoint::UnpackKey() {
  if (peer_key_.empty()) {
    return PeerLost("the peer has no key for its window: LAMINA_UCX_PATH and " +
                    std::string(kUcxTrustedDevices) + " must be the same for both");
  }
  const ucs_status_t status = ucp_ep_rkey_unpack(worker_->endpoint(), peer_key_.data(), &key_);
  if (status != UCS_OK) return PeerLost(UcxText("ucp_ep_rkey_unpack", status));
  if (!is_local_) return OkStatus();
  void* mapped = nullptr;
  const ucs_status_t can_map = ucp_rkey_ptr(key_, peer_.region_address, &mapped);
  // If UCX cannot map the region it could only emulate writes by messages that name an address.
  if (can_map == UCS_OK) return OkStatus();
  return PeerLost(UcxText("ucp_rkey_ptr", can_map) +
                  "; the peer's window must lie in shared memory");
}

Status UcxEndpoint::Settle() {
  worker_->Progress();
  if (is_broken_) return PeerLost(last_error_);
  return is_settled() ? OkStatus() : TryAgain();
}

void UcxEndpoint::Start(RendezvousLink link) {
  link_.emplace(std::move(link));
  if (!is_broken_) context_.poll_set.Add(link_->fd(), EPOLLIN | EPOLLRDHUP, this);
  is_watched_ = !is_broken_;
}

size_t UcxEndpoint::Poll(std::span<Event> out) {
  if (announced_) {
    announced_ = false;
    // Only spares the peer a needless wake-up, so the order does not matter.
    own().owner_sleeps.store(0, std::memory_order_relaxed);
  }
  if (context_.may_have_slept || (!is_broken_ && ++polls_since_check_ >= kPollsPerUcxCheck)) {
    polls_since_check_ = 0;
    context_.may_have_slept = false;
    context_.CheckSockets();
  }
  const bool was_broken = is_broken_;
  if (!lost_) {
    const bool progressed = NeedsProgress() && worker_->Progress();
    if (num_sent_on_ < posts_.size()) SendReadyNotices();
    // What the peer sent before its end arrived here before its socket closed. So the connection
    // was broken before this poll, and once UCX finds nothing more, all of it has been delivered.
    if (was_broken && !progressed && notifications_.empty() && !Rings()) Lose();
  }
  size_t count = TakeSent(out);
  count += TakeNotifications(out.subspan(count));
  if (lost_) count += TakeLost(out.subspan(count));
  return count;
}

// Between mapped ends UCX carries only credits and wake-ups. Looking for these costs as much as a
// small message, so not every poll does.
bool UcxEndpoint::NeedsProgress() {
  return path_ != UcxPath::kMapped || is_broken_ || wants_room_ ||
         ++polls_since_progress_ % kMappedPollsPerProgress == 0;
}

size_t UcxEndpoint::TakeSent(std::span<Event> out) {
  size_t count = 0;
  while (num_sent_on_ > 0 && count < out.size()) {
    const Posted& post = posts_.front();
    if (post.message.num_pending > 0) break;
    if (post.message.status != UCS_OK) {
      if (!is_broken_) Break(UcxText("a post failed", post.message.status));
      break;
    }
    out[count++] = {.kind = Event::Kind::kSent, .tag = post.tag};
    posts_.Pop();
    --num_sent_on_;
  }
  return count;
}

// Called after TakeSent: the posts that are left have not completed, or failed.
size_t UcxEndpoint::TakeLost(std::span<Event> out) {
  size_t count = 0;
  for (; !posts_.empty() && count < out.size(); posts_.Pop()) {
    out[count++] = {
        .kind = Event::Kind::kSent, .tag = posts_.front().tag, .status = StatusCode::kPeerLost};
  }
  num_sent_on_ = 0;
  if (posts_.empty() && !said_lost_ && count < out.size()) {
    said_lost_ = true;
    out[count++] = {.kind = Event::Kind::kPeerLost, .status = StatusCode::kPeerLost};
  }
  return count;
}

size_t UcxEndpoint::TakeNotifications(std::span<Event> out) {
  size_t count = 0;
  for (; count < out.size() && !notifications_.empty(); notifications_.Pop()) {
    out[count++] = {.kind = Event::Kind::kNotification, .value = notifications_.front()};
  }
  for (; count < out.size() && !lost_ && Rings(); ++num_rung_) {
    const uint64_t slot = own().ring[num_rung_ % kUcxNotices].load(std::memory_order_relaxed);
    out[count++] = {.kind = Event::Kind::kNotification, .value = static_cast<uint32_t>(slot)};
  }
  num_polled_ += static_cast<uint32_t>(count);
  if (!is_broken_) ReturnCredits();
  return count;
}

// An unexpected slot counts as empty: a peer that writes one only loses its own notifications.
bool UcxEndpoint::Rings() {
  return own().ring[num_rung_ % kUcxNotices].load(std::memory_order_seq_cst) >> 32 ==
         uint32_t{num_rung_ + 1};
}

void UcxEndpoint::OnNotice(const UcxNotice& notice) {
  if (lost_ || notice.id != id_) return;
  was_heard_ = true;
  if (notice.kind == UcxNotice::kWake) return;
  if (notice.kind == UcxNotice::kCredits) {
    // The differences are right although the counters wrap.
    if (notice.value - num_credited_ > num_notified_ - num_credited_) {
      return Break(
          "the peer breaks the rules: it claims to have polled more notifications than were sent");
    }
    num_credited_ = notice.value;
    return;
  }
  if (notice.kind != UcxNotice::kNotification || notice.sequence != num_received_ ||
      notifications_.full()) {
    return Break("the peer breaks the rules: notice " + std::to_string(notice.sequence) +
                 " of kind " + std::to_string(notice.kind) + " came, expected was " +
                 std::to_string(num_received_));
  }
  ++num_received_;
  notifications_.PushSlot() = notice.value;
}

bool UcxEndpoint::Arm() {
  if (lost_) return true;
  announced_ = true;
  own().owner_sleeps.store(1, std::memory_order_seq_cst);
  return worker_->Arm();
}

bool UcxEndpoint::HasWork() {
  if (said_lost_) return false;
  if (is_broken_ || !notifications_.empty() || Rings()) return true;
  // During the handshake: wakes the listener once, for Accept to find that this end has settled.
  if (!link_) return is_settled() && !std::exchange(said_settled_, true);
  if (num_sent_on_ > 0 && posts_.front().message.num_pending == 0) return true;
  // The bytes of a post have arrived, and its notice can be sent.
  if (num_sent_on_ < posts_.size() && posts_[num_sent_on_].message.num_pending == 0) return true;
  if (!wants_room_ || num_notified_ - num_credited_ == kUcxNotices) return false;
  // Reported once: a caller that has given up the post must be able to sleep.
  wants_room_ = false;
  return true;
}

void UcxEndpoint::OnSocket() {
  if (is_broken_) return;
  if (const Status status = link_->CheckAlive(); !status.ok()) Break(status.message());
}

void UcxEndpoint::OnError(ucs_status_t status) { Break(UcxText("UCX lost the peer", status)); }

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
  Close();  // UCX reads no source of a post afterwards, so Poll can return the posts
  LAMINA_LOG_DEBUG("ucx: {}", last_error_);
}

}  // namespace lamina
