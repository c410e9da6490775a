// The sending half of VerbsEndpoint. Posting neither allocates nor locks, unless it fails.
#include <arpa/inet.h>

#include <algorithm>

#include "transport/checks.h"
#include "transport/posix.h"
#include "transport/verbs/verbs_endpoint.h"

namespace lamina {
namespace {

using std::to_string;

// Longer writes are split. InfiniBand allows 2^31 bytes in one message.
constexpr size_t kMaxWriteBytes = size_t{1} << 30;

uint64_t NumWrites(size_t bytes, size_t max_bytes) { return (bytes + max_bytes - 1) / max_bytes; }

}  // namespace

size_t VerbsEndpoint::max_write_bytes() const {
  return std::min<size_t>(kMaxWriteBytes, pair_->port().max_message_bytes);
}

Status VerbsEndpoint::Post(std::span<const WriteOp> ops, std::optional<uint32_t> notify,
                           uint64_t tag) {
  LAMINA_RETURN_IF_ERROR(CheckOps(ops, context_.limits, peer_window_bytes(),
                                  posts_to_device() ? peer_.device_window_bytes : 0));
  if (is_broken_) return PeerLost(last_error_);
  if (posts_.full()) return PushBack();
  if (notify.has_value() && num_notified_ - num_credited_ >= peer_.credits) return PushBack();
  LAMINA_ASSIGN_OR_RETURN(uint64_t num_requests, FindKeys(ops));
  if (num_requests == 0 && notify.has_value()) num_requests = 1;
  const uint64_t room = pair_->depths().sends;
  if (num_requests > room) {
    return InvalidArgument("post needs " + to_string(num_requests) + " work requests of at most " +
                           to_string(max_write_bytes()) + " bytes; at most " + to_string(room) +
                           " fit");
  }
  if (num_under_way() + num_requests > room) return PushBack();
  const Status status = Build(ops, notify);
  if (!status.ok()) {
    Break(status.message());
    return PeerLost(last_error_);
  }
  posts_.PushSlot() = {tag, num_requested_};
  return OkStatus();
}

Status VerbsEndpoint::PushBack() {
  wants_room_ = true;
  return TryAgain();
}

Result<uint64_t> VerbsEndpoint::FindKeys(std::span<const WriteOp> ops) {
  uint64_t num_requests = 0;
  for (size_t i = 0; i < ops.size(); ++i) {
    if (ops[i].source.empty()) continue;
    const std::optional<uint32_t> key =
        ops[i].to_device ? device_window_->FindKey(ops[i].source)
                         : context_.regions.FindKey(ops[i].source, pair_->device());
    if (!key.has_value()) {
      return InvalidArgument(
          "the source of write " + to_string(i) + ", " + to_string(ops[i].source.size()) +
          " bytes, does not lie in " +
          (ops[i].to_device ? "this end's device window" : "a Buffer of this verbs fabric"));
    }
    keys_[i] = *key;
    num_requests += NumWrites(ops[i].source.size(), max_write_bytes());
  }
  return num_requests;
}

Status VerbsEndpoint::Build(std::span<const WriteOp> ops, std::optional<uint32_t> notify) {
  const size_t max_bytes = max_write_bytes();
  for (size_t i = 0; i < ops.size(); ++i) {
    for (size_t begin = 0; begin < ops[i].source.size(); begin += max_bytes) {
      const size_t bytes = std::min(max_bytes, ops[i].source.size() - begin);
      LAMINA_RETURN_IF_ERROR(AppendWrite(
          {ops[i].source.subspan(begin, bytes), ops[i].peer_offset + begin, ops[i].to_device},
          keys_[i]));
    }
  }
  if (notify.has_value()) {
    // Without ops an empty write carries the notification.
    if (num_built_ == 0) LAMINA_RETURN_IF_ERROR(AppendWrite({}, 0));
    ibv_send_wr& last = requests_[num_built_ - 1];
    last.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    last.imm_data = htonl(*notify);
    ++num_notified_;
  }
  if (num_built_ == 0) return OkStatus();
  // One completion per post: the requests before the last are done when that is.
  requests_[num_built_ - 1].send_flags |= IBV_SEND_SIGNALED;
  return Ring();
}

Status VerbsEndpoint::AppendWrite(const WriteOp& op, uint32_t key) {
  // A post has at most kVerbsMaxOps writes, so this happens only when one was split.
  if (num_built_ == requests_.size()) LAMINA_RETURN_IF_ERROR(Ring());
  ibv_sge& piece = pieces_[num_built_];
  ibv_send_wr& request = requests_[num_built_++];
  piece = {reinterpret_cast<uintptr_t>(op.source.data()), static_cast<uint32_t>(op.source.size()),
           key};
  request.wr_id = ++num_requested_;
  request.next = nullptr;
  request.sg_list = &piece;
  request.num_sge = op.source.empty() ? 0 : 1;
  request.opcode = IBV_WR_RDMA_WRITE;
  // Inline data is copied by this CPU, which cannot read a device's memory.
  request.send_flags =
      op.source.size() <= pair_->max_inline_bytes() && !op.source.empty() && !op.to_device
          ? IBV_SEND_INLINE
          : 0;
  request.wr.rdma = {
      (op.to_device ? peer_.device_window_address : peer_.window_address) + op.peer_offset,
      op.to_device ? peer_.device_window_key : peer_.window_key};
  if (num_built_ > 1) requests_[num_built_ - 2].next = &request;
  return OkStatus();
}

Status VerbsEndpoint::Ring() {
  num_built_ = 0;
  ibv_send_wr* failed = nullptr;
  const int error = ibv_post_send(pair_->get(), requests_.data(), &failed);
  return error == 0 ? OkStatus() : PeerLost(ErrnoText("ibv_post_send", error));
}

void VerbsEndpoint::ReturnCredits() {
  if (num_received_ - num_returned_ < CreditsPerReturn(pair_->depths().credits)) return;
  // No room in the send queue: Poll tries again once a send has completed.
  if (num_under_way() >= pair_->depths().sends + kCreditSends) return;
  ibv_send_wr request = {};
  request.wr_id = ++num_requested_;
  request.opcode = IBV_WR_SEND_WITH_IMM;
  request.imm_data = htonl(num_received_);
  request.send_flags = IBV_SEND_SIGNALED;
  num_returned_ = num_received_;
  ibv_send_wr* failed = nullptr;
  if (const int error = ibv_post_send(pair_->get(), &request, &failed); error != 0)
    Break(ErrnoText("ibv_post_send", error));
}

}  // namespace lamina
