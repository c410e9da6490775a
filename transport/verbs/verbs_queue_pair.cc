#include "transport/verbs/verbs_queue_pair.h"

#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "transport/posix.h"

namespace lamina {
namespace {

using std::to_string;

constexpr uint32_t kMaxSends = 4096;   // 64 posts of 64 writes
constexpr uint32_t kMaxCredits = 512;  // notifications in flight
constexpr uint32_t kMinCredits = 64;
constexpr uint32_t kMaxOfferedCredits = 1u << 20;  // far below the wrap of the 32-bit counters
// A message of up to so many bytes lies in its work request, and the NIC need not fetch it. A
// larger limit would make every work request larger.
constexpr uint32_t kInlineBytes = 64;
constexpr uint32_t k24Bits = 0xffffff;

// Receives beside those for credits: for messages by which the peer returns this end's credits (at
// most 4 are unread, as each stands for a quarter of them), and for receives that were used and not
// posted again yet.
constexpr uint32_t kExtraReceives = kReplenishBatch + 8;

// A packet that is not acknowledged within 4.096 us * 2^18 = 1.07 s is sent again, up to 7 times
// (ibv_modify_qp(3): timeout, retry_cnt). That is long, as a switch may take seconds to find
// another way, and a peer whose process has ended is noticed on the rendezvous socket anyway.
constexpr uint8_t kTimeout = 18;
constexpr uint8_t kRetries = 7;

// No retries: receives are posted before the peer has the credits to use them, so an end that finds
// none means that one of the two has broken the protocol.
constexpr uint8_t kReceiverNotReadyRetries = 0;

constexpr uint8_t kHopLimit = 64;  // RoCE v2 may be routed

Status CannotHold(const VerbsDevice& device) {
  return NotFound("transport verbs: " + device.name() + " is too small: it holds " +
                  to_string(device.attributes().max_qp_wr) + " work requests per queue and " +
                  to_string(device.attributes().max_cqe) + " completions");
}

}  // namespace

Result<VerbsDepths> ChooseDepths(const VerbsDevices& devices) {
  VerbsDepths depths{kMaxSends, kMaxCredits, 0};
  for (const auto& device : devices.all()) {
    const auto requests = static_cast<uint32_t>(std::max(device->attributes().max_qp_wr, 0));
    const auto completions = static_cast<uint32_t>(std::max(device->attributes().max_cqe, 0));
    if (requests < kExtraReceives + kMinCredits || completions < 2 * (kExtraReceives + kMinCredits))
      return CannotHold(*device);
    // One completion queue serves sends and receives: half of its entries are for each.
    depths.sends =
        std::min({depths.sends, requests - kCreditSends, completions / 2 - kCreditSends});
    depths.credits =
        std::min({depths.credits, requests - kExtraReceives, completions / 2 - kExtraReceives});
  }
  depths.receives = depths.credits + kExtraReceives;
  return depths;
}

Result<VerbsOffer> ParseVerbsOffer(std::string_view text, const VerbsPort& port) {
  VerbsOffer offer;
  if (text.size() != sizeof(offer))
    return PeerLost("malformed offer of " + to_string(text.size()) + " bytes");
  std::memcpy(&offer, text.data(), sizeof(offer));
  if (offer.queue_pair > k24Bits || offer.first_packet > k24Bits || offer.mtu < IBV_MTU_256 ||
      offer.mtu > IBV_MTU_4096 || offer.credits == 0 || offer.credits > kMaxOfferedCredits ||
      offer.is_infiniband > 1) {
    return PeerLost("malformed offer: queue pair " + to_string(offer.queue_pair) + ", mtu " +
                    to_string(offer.mtu) + ", credits " + to_string(offer.credits));
  }
  if (offer.is_infiniband != static_cast<uint8_t>(port.is_infiniband)) {
    return PeerLost("one end is on InfiniBand, the other on RoCE: they cannot reach each other");
  }
  return offer;
}

Result<std::unique_ptr<VerbsQueuePair>> VerbsQueuePair::Create(VerbsDevices::Place place,
                                                               const VerbsDepths& depths) {
  std::unique_ptr<VerbsQueuePair> pair(new VerbsQueuePair(place, depths));
  Status status = pair->Open();
  if (!status.ok()) return status.WithContext(place.device.name());
  return pair;
}

Status VerbsQueuePair::Open() {
  // One entry per work request, as every one completes when the connection breaks, also those that
  // asked for no completion.
  const uint32_t num_completions = depths_.sends + kCreditSends + depths_.receives;
  completions_.reset(ibv_create_cq(device().context(), static_cast<int>(num_completions), this,
                                   device().channel(), 0));
  if (!completions_)
    return OutOfSpace(ErrnoText("ibv_create_cq of " + to_string(num_completions) + " entries"));

  ibv_qp_init_attr wanted = {};
  wanted.send_cq = completions();
  wanted.recv_cq = completions();
  wanted.cap = {depths_.sends + kCreditSends, depths_.receives, 1, 1, kInlineBytes};
  wanted.qp_type = IBV_QPT_RC;
  pair_.reset(ibv_create_qp(device().domain(), &wanted));
  if (!pair_) {
    // The device may not support inline data.
    wanted.cap = {depths_.sends + kCreditSends, depths_.receives, 1, 1, 0};
    pair_.reset(ibv_create_qp(device().domain(), &wanted));
  }
  if (!pair_) return OutOfSpace(ErrnoText("ibv_create_qp"));
  max_inline_bytes_ = wanted.cap.max_inline_data;
  // The sequence numbers begin at random, so that late packets of an earlier connection are not
  // taken for this one's.
  if (getrandom(&first_packet_, sizeof(first_packet_), 0) != sizeof(first_packet_))
    return OutOfSpace(ErrnoText("getrandom"));
  first_packet_ &= k24Bits;

  ibv_qp_attr attributes = {};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = port().number;
  attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  LAMINA_RETURN_IF_ERROR(Modify(
      attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, "INIT"));

  for (size_t i = 0; i + 1 < receives_.size(); ++i) receives_[i].next = &receives_[i + 1];
  for (uint32_t posted = 0; posted < depths_.receives;) {
    const uint32_t count = std::min(kReplenishBatch, depths_.receives - posted);
    LAMINA_RETURN_IF_ERROR(PostReceives(count));
    posted += count;
  }
  return OkStatus();
}

Status VerbsQueuePair::Modify(ibv_qp_attr& attributes, int mask, const char* state) {
  const int error = ibv_modify_qp(get(), &attributes, mask);
  return error == 0 ? OkStatus()
                    : OutOfSpace(ErrnoText("ibv_modify_qp to " + std::string(state), error));
}

VerbsOffer VerbsQueuePair::Offer() const {
  VerbsOffer offer;
  std::memcpy(offer.gid.data(), port().gid.raw, offer.gid.size());
  offer.queue_pair = get()->qp_num;
  offer.first_packet = first_packet_;
  offer.credits = depths_.credits;
  offer.lid = port().lid;
  offer.mtu = static_cast<uint8_t>(port().mtu);
  offer.is_infiniband = static_cast<uint8_t>(port().is_infiniband);
  return offer;
}

Status VerbsQueuePair::Connect(const VerbsOffer& peer) {
  ibv_qp_attr attributes = {};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = std::min(port().mtu, static_cast<ibv_mtu>(peer.mtu));
  attributes.dest_qp_num = peer.queue_pair;
  attributes.rq_psn = peer.first_packet;
  attributes.ah_attr.port_num = port().number;
  attributes.ah_attr.dlid = peer.lid;
  attributes.ah_attr.is_global = port().is_infiniband ? 0 : 1;
  std::memcpy(attributes.ah_attr.grh.dgid.raw, peer.gid.data(), peer.gid.size());
  attributes.ah_attr.grh.sgid_index = port().gid_index;
  attributes.ah_attr.grh.hop_limit = kHopLimit;
  Status status = Modify(attributes,
                         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                             IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
                         "RTR");
  // Connecting uses what the peer has offered. An error ends this peer, not the listener.
  if (!status.ok())
    return PeerLost(device().name() + ": " + status.message() +
                    ": is there a way to the peer's GID?");

  // The limits on RDMA reads and atomics stay 0 at both steps: lamina uses neither.
  attributes = {};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.sq_psn = first_packet_;
  attributes.timeout = kTimeout;
  attributes.retry_cnt = kRetries;
  attributes.rnr_retry = kReceiverNotReadyRetries;
  status = Modify(attributes,
                  IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                      IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC,
                  "RTS");
  return status.ok() ? status : PeerLost(device().name() + ": " + status.message());
}

Status VerbsQueuePair::PostReceives(uint32_t count) {
  // Cuts the list behind the `count`-th receive for this call.
  ibv_recv_wr* const last = &receives_[count - 1];
  ibv_recv_wr* const next = last->next;
  last->next = nullptr;
  ibv_recv_wr* failed = nullptr;
  const int error = ibv_post_recv(get(), receives_.data(), &failed);
  last->next = next;
  return error == 0 ? OkStatus() : OutOfSpace(ErrnoText("ibv_post_recv", error));
}

Status VerbsQueuePair::RequestEvent() {
  if (is_event_requested_) return OkStatus();
  is_event_requested_ = true;
  const int error = ibv_req_notify_cq(completions(), 0);
  return error == 0 ? OkStatus() : OutOfSpace(ErrnoText("ibv_req_notify_cq", error));
}

void VerbsQueuePair::TakeEvents(const VerbsDevice& device) {
  ibv_cq* completions = nullptr;
  void* pair = nullptr;
  while (ibv_get_cq_event(device.channel(), &completions, &pair) == 0) {
    // Destroying a completion queue waits until all its events are acknowledged.
    ibv_ack_cq_events(completions, 1);
    static_cast<VerbsQueuePair*>(pair)->is_event_requested_ = false;
  }
}

}  // namespace lamina
