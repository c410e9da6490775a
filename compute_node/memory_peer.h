// A compute node's connection to one memory node: the message areas in both windows, which messages
// are under way in them, and, once the node is lost, why.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/ids.h"
#include "compute_node/attention_backend.h"
#include "compute_node/device_link.h"
#include "transport/ladder.h"
#include "wire/wire_format.h"

namespace lamina {

struct MemoryPeerAddress {
  NodeId node;
  std::string name;
  std::string offers;  // Ladder::offers of the node
  NodeId group;        // the node's group in routes: its first node that holds the same tokens
  int first_kv_head = 0;
  int num_kv_heads = 0;
};

// What a connection needs besides the node's address; the same for all memory nodes.
struct DataPathOptions {
  DataHello hello;
  std::string payload_checksum = "auto";  // see NeedsPayloadChecksum
  std::string polling = "host";           // see control::ConfigureCompute
};

// Only Connect waits; the other calls do not block, and Poll takes what has come. Thread: one
// owner.
class MemoryPeer {
 public:
  // Connects before `deadline`. `wire` has the heads that the node holds. `link` is this node's end
  // of a link to the node's device, or the reason why there is none; it is used if the node's
  // device takes part. Errors name the memory node: kPeerLost if it was lost meanwhile, kInternal
  // if its window is too small, otherwise the ladder's, which found no fabric that joins the two.
  static Result<std::unique_ptr<MemoryPeer>> Connect(const MemoryPeerAddress& address,
                                                     const WireShape& wire,
                                                     const DataPathOptions& options,
                                                     Result<std::unique_ptr<DeviceLink>> link,
                                                     Ladder& ladder, Deadline deadline);

  const MemoryPeerAddress& address() const { return address_; }
  const std::string& name() const { return address_.name; }
  const WireShape& wire() const { return wire_; }
  const AttentionBackend::ChosenPath& path() const { return path_; }
  const std::string& peer_name() const { return endpoint_->peer_name(); }

  bool lost() const { return lost_; }
  const std::string& why() const { return why_; }
  // Marks the node as lost; the first reason is kept.
  void Lose(const std::string& why);

  // The link by which the two devices exchange decode messages themselves; nullptr if decode
  // messages go through the calls below.
  DeviceLink* link() const { return is_linked_ ? link_.get() : nullptr; }

  // A decode message: the caller fills the payload, then posts it. With WireShape::overlap it has
  // two parts, and PostQueries posts the first one, q. Returns kTryAgain if there is no room now;
  // the caller polls and then posts again. Other errors mean that the node is lost. The reply will
  // come here, or to the compute node that header.reply_to names. REQUIRES: not asked(batch).
  std::span<std::byte> query_payload(int batch);
  Status PostQueries(int batch, MessageHeader header, size_t payload_bytes);
  std::span<std::byte> decode_payload(int batch);
  Status PostDecode(int batch, MessageHeader header, size_t payload_bytes);
  // Expects the reply to a message that another compute node has posted.
  void ExpectReply(int batch) { decodes_[static_cast<size_t>(batch)].asked = true; }
  // Whether a reply is expected that was not taken yet.
  bool asked(int batch) const { return decodes_[static_cast<size_t>(batch)].asked; }
  // Whether a reply is in the window that was not taken yet.
  bool replied(int batch) const { return decodes_[static_cast<size_t>(batch)].replied; }

  // Takes the reply, which is then no longer asked(). Borrowed until the node is asked for the
  // batch again, by whichever compute node. kCorrupt if the message is damaged or does not answer
  // that of `step` and `layer`. REQUIRES: replied(batch).
  Result<ReceivedMessage> TakeReply(int batch, StepId step, int layer);
  // No reply is expected any more.
  void Forget(int batch) { decodes_[static_cast<size_t>(batch)].asked = false; }

  // A push: the caller takes a free slot, fills its payload and posts it, with the same errors as
  // for decode messages.
  std::optional<int> FreePushSlot() const;
  std::span<std::byte> push_payload(int slot);
  Status PostPush(int slot, MessageHeader header, size_t payload_bytes);
  bool pushing() const;  // whether a push is not stored yet

  // Takes what has come and lets the link post its messages; returns whether anything happened.
  bool Poll();
  // The number of notifications that came twice since the last call.
  int64_t TakeStale();

 private:
  struct DecodeArea {
    uint32_t sent = 0, received = 0;  // numbers of the last message and the last reply
    bool asked = false, replied = false;
  };
  struct PushArea {
    uint32_t number = 0;
    bool busy = false;
  };

  MemoryPeer(const MemoryPeerAddress& address, const WireShape& wire, uint64_t epoch)
      : address_(address), wire_(wire), epoch_(epoch) {}
  Status Post(const Notification& announced, MessageHeader header, std::span<std::byte> area,
              size_t payload_bytes, uint64_t offset);
  void TakeNotification(uint32_t value);
  // Joins the link with the memory node's device. kUnimplemented says why it is not used.
  // `asked_for`: the cluster file demands device polling.
  Status Link(bool asked_for, Ladder& ladder, Deadline deadline);
  uint64_t decode_offset(int batch) const {
    return wire_.overlap ? wire_.second_part_offset(batch) : wire_.decode_offset(batch);
  }
  std::span<std::byte> outgoing() const {
    return buffer_ == nullptr ? endpoint_->peer_window() : buffer_->bytes();
  }

  const MemoryPeerAddress address_;
  const WireShape wire_;
  const uint64_t epoch_;
  // A copy of the peer's window, from which messages are posted; null if the window itself can be
  // written from here (shared memory).
  std::unique_ptr<Buffer> buffer_;
  std::unique_ptr<DeviceLink> link_;
  // Declared after the buffer and the link, whose memory it uses, so that it is destroyed first.
  std::unique_ptr<Endpoint> endpoint_;
  std::optional<bool> link_answer_;  // of the memory node to kLink
  bool is_linked_ = false;
  AttentionBackend::ChosenPath path_;
  bool payload_checksum_ = false;
  std::array<DecodeArea, kMaxBatches> decodes_{};
  std::array<PushArea, kPushSlots> pushes_{};
  int64_t num_stale_ = 0;
  bool lost_ = false;
  std::string why_;
};

}  // namespace lamina
