#include "transport/verbs/verbs_endpoint.h"

#include <arpa/inet.h>
#include <sys/epoll.h>

#include "base/log.h"

namespace lamina {
namespace {

// An owner that never sleeps looks at the sockets after so many polls, which takes it some
// microseconds to a millisecond; then it notices a dead peer.
constexpr uint32_t kVerbsPollsPerCheck = 4096;

}  // namespace

void VerbsContext::CheckSockets() {
  std::array<void*, 64> owners;
  const size_t count = poll_set.Ready(owners);
  for (size_t i = 0; i < count; ++i) {
    if (owners[i] != nullptr) static_cast<VerbsEndpoint*>(owners[i])->OnSocket();
  }
}

VerbsEndpoint::VerbsEndpoint(VerbsContext& context, std::unique_ptr<VerbsRegions::Memory> window,
                             std::unique_ptr<VerbsDeviceWindow> device_window,
                             std::unique_ptr<VerbsQueuePair> pair, VerbsOffer peer_offer,
                             RendezvousLink link)
    : context_(context),
      link_(std::move(link)),
      window_(std::move(window)),
      device_window_(std::move(device_window)),
      pair_(std::move(pair)),
      peer_(peer_offer) {
  context_.endpoints.push_back(this);
  context_.poll_set.Add(link_.fd(), EPOLLIN | EPOLLRDHUP, this);
}

VerbsEndpoint::~VerbsEndpoint() {
  std::erase(context_.endpoints, this);
  if (!is_broken_) context_.poll_set.Remove(link_.fd());  // else Break has removed it
}

size_t VerbsEndpoint::Poll(std::span<Event> out) {
  if (context_.may_have_slept || (!is_broken_ && ++polls_since_check_ >= kVerbsPollsPerCheck)) {
    polls_since_check_ = 0;
    context_.may_have_slept = false;
    context_.CheckSockets();
  }
  size_t count = TakeSent(out);
  if (!lost_) {
    count += Receive(out.subspan(count));
    count += TakeSent(out.subspan(count));  // those that Receive has found done
    if (!is_broken_) Replenish();
    if (!is_broken_) ReturnCredits();
    // What the peer sent before its end had completed here before its socket closed, so an empty
    // completion queue means that all of it was delivered.
    if (is_broken_ && completions_begin_ == completions_end_ && !FillCompletions()) Lose();
  }
  if (lost_) count += TakeLost(out.subspan(count));
  return count;
}

size_t VerbsEndpoint::TakeSent(std::span<Event> out) {
  size_t count = 0;
  for (; !posts_.empty() && posts_.front().end <= num_done_ && count < out.size(); posts_.Pop()) {
    out[count++] = {.kind = Event::Kind::kSent, .tag = posts_.front().tag};
  }
  return count;
}

size_t VerbsEndpoint::TakeLost(std::span<Event> out) {
  size_t count = TakeSent(out);
  for (; !posts_.empty() && count < out.size(); posts_.Pop()) {
    out[count++] = {
        .kind = Event::Kind::kSent, .tag = posts_.front().tag, .status = StatusCode::kPeerLost};
  }
  if (posts_.empty() && !said_lost_ && count < out.size()) {
    said_lost_ = true;
    out[count++] = {.kind = Event::Kind::kPeerLost, .status = StatusCode::kPeerLost};
  }
  return count;
}

size_t VerbsEndpoint::Receive(std::span<Event> out) {
  size_t count = 0;
  while (count < out.size() && (completions_begin_ != completions_end_ || FillCompletions())) {
    Take(completions_[completions_begin_++], out, count);
  }
  return count;
}

bool VerbsEndpoint::FillCompletions() {
  const int found =
      ibv_poll_cq(pair_->completions(), static_cast<int>(completions_.size()), completions_.data());
  completions_begin_ = 0;
  completions_end_ = static_cast<size_t>(std::max(found, 0));
  if (found < 0) Break("ibv_poll_cq failed on " + pair_->device().name());
  return found > 0;
}

void VerbsEndpoint::Take(const ibv_wc& completion, std::span<Event> out, size_t& count) {
  if (completion.status != IBV_WC_SUCCESS) return TakeFailure(completion);
  // A send that is done leaves room for a work request, and returned credits for a notification.
  if (wants_room_ && completion.opcode != IBV_WC_RECV_RDMA_WITH_IMM) has_room_ = true;
  switch (completion.opcode) {
    case IBV_WC_RECV_RDMA_WITH_IMM:
      ++num_used_receives_;
      ++num_used_notifications_;
      out[count++] = {.kind = Event::Kind::kNotification, .value = ntohl(completion.imm_data)};
      return;
    case IBV_WC_RECV: ++num_used_receives_; return TakeCredits(ntohl(completion.imm_data));
    // A send: wr_id is the value of num_requested_ that it had, and sends complete in order.
    default: num_done_ = completion.wr_id;
  }
}

void VerbsEndpoint::TakeFailure(const ibv_wc& completion) {
  // When a connection breaks all its requests complete as flushed, before or after the one that
  // broke it. Only the latter has the cause, so it replaces that of a flushed one.
  const bool is_flushed = completion.status == IBV_WC_WR_FLUSH_ERR;
  if (is_broken_ && (is_flushed || !is_flushed_)) return;
  is_flushed_ = is_flushed;
  Break("queue pair " + std::to_string(pair_->get()->qp_num) + " of " + pair_->device().name() +
        ": " + ibv_wc_status_str(completion.status) + " (vendor code " +
        std::to_string(completion.vendor_err) + ")");
}

void VerbsEndpoint::TakeCredits(uint32_t returned) {
  // The differences are right although the counters wrap.
  if (returned - num_credited_ > num_notified_ - num_credited_) {
    return Break("the peer breaks the rules: it returns credits for " +
                 std::to_string(returned - num_credited_) + " notifications of " +
                 std::to_string(num_notified_ - num_credited_));
  }
  num_credited_ = returned;
}

void VerbsEndpoint::Replenish() {
  while (num_used_receives_ >= kReplenishBatch) {
    if (const Status status = pair_->PostReceives(kReplenishBatch); !status.ok())
      return Break(status.message());
    num_used_receives_ -= kReplenishBatch;
    // All receives are alike. What matters is that there are as many as credits that the peer has
    // or is about to get.
    const uint32_t returned = std::min(num_used_notifications_, kReplenishBatch);
    num_used_notifications_ -= returned;
    num_received_ += returned;
  }
}

bool VerbsEndpoint::PrepareSleep() {
  if (lost_) return said_lost_;
  if (is_broken_ || completions_begin_ != completions_end_) return false;
  if (!posts_.empty() && posts_.front().end <= num_done_) return false;
  if (std::exchange(has_room_, false)) {
    wants_room_ = false;
    return false;
  }
  if (const Status status = pair_->RequestEvent(); !status.ok()) Break(status.message());
  // Looked at after the request: what completes later than this brings an event.
  return !is_broken_ && !FillCompletions();
}

void VerbsEndpoint::OnSocket() {
  if (const Status status = link_.CheckAlive(); !status.ok()) Break(status.message());
}

void VerbsEndpoint::Break(const std::string& cause) {
  last_error_ = peer_name() + ": " + cause;
  if (is_broken_) return;
  is_broken_ = true;
  context_.poll_set.Remove(link_.fd());
}

void VerbsEndpoint::Lose() {
  lost_ = true;
  pair_.reset();  // from here on the device touches none of the sources
  LAMINA_LOG_DEBUG("verbs: {}", last_error_);
}

}  // namespace lamina
