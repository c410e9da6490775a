// A compute node's connection to one memory node: the lanes between the two, from whom a reply is
// expected, how the two devices exchange messages themselves where they can, and, once the node is
// lost, why.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/ids.h"
#include "compute_node/device_link.h"
#include "transport/ladder.h"
#include "wire/lanes.h"
#include "wire/session_messages.h"

namespace lamina {

// What a connection needs besides the node's address; the same for all memory nodes.
struct DataPathOptions {
  DataHello hello;
  Switch payload_checksum = Switch::kAuto;   // see NeedsPayloadChecksum
  PollingMode polling = PollingMode::kHost;  // who waits for messages
};

// Only Connect waits; the other calls do not block, and Poll takes what has come. Thread: one
// owner.
class MemoryPeer {
 public:
  // Connects before `deadline`. `wire` has the heads that the node holds. `link` is this node's end
  // of a link to the node's device, or the reason why there is none; it is used if the node's
  // device takes part. Errors name the memory node: kPeerLost if it was lost meanwhile, kInternal
  // if its window is too small, otherwise the ladder's, which found no fabric that joins the two.
  static Result<std::unique_ptr<MemoryPeer>> Connect(const MemoryNodeAddress& address,
                                                     const WireShape& wire,
                                                     const DataPathOptions& options,
                                                     Result<std::unique_ptr<DeviceLink>> link,
                                                     Ladder& ladder, Deadline deadline);

  const MemoryNodeAddress& address() const { return address_; }
  const std::string& name() const { return address_.name; }
  const WireShape& wire() const { return wire_; }
  const DataPath& path() const { return path_; }
  const std::string& peer_name() const { return lanes_->peer_name(); }

  bool lost() const { return lost_; }
  const std::string& why() const { return why_; }
  // Marks the node as lost; the first reason is kept.
  void Lose(const std::string& why);

  // The link by which the two devices exchange decode messages themselves; nullptr if decode
  // messages go through the calls below.
  DeviceLink* link() const { return is_linked_ ? link_.get() : nullptr; }

  // A message to the node: the caller fills the payload, then posts it. The slot is a batch, or for
  // kPush one that FreePushSlot returned. With WireShape::overlap a decode message has two parts:
  // kQueries, which is posted first, and kDecode. Returns kTryAgain if there is no room now; the
  // caller polls and then posts again. Other errors mean that the node is lost. The reply to
  // kDecode will come here, or to the compute node that header.reply_to names. REQUIRES: for decode
  // messages, not asked(batch).
  std::span<std::byte> payload(MessageKind kind, int slot) {
    return lanes_->payload(kind, static_cast<uint32_t>(slot));
  }
  Status Post(MessageKind kind, int slot, const MessageHeader& header, size_t payload_bytes);

  // Expects the reply to a message that another compute node has posted.
  void ExpectReply(int batch) { asked_[static_cast<size_t>(batch)] = true; }
  // Whether a reply is expected that was not taken yet.
  bool asked(int batch) const { return asked_[static_cast<size_t>(batch)]; }
  // Whether a reply is in the window that was not taken yet.
  bool replied(int batch) const {
    return lanes_->arrived(MessageKind::kReply, static_cast<uint32_t>(batch));
  }
  // Takes the reply, which is then no longer asked(). Borrowed until the node is asked for the
  // batch again, by whichever compute node. kCorrupt if the message is damaged or does not answer
  // that of `step` and `layer`. REQUIRES: replied(batch).
  Result<ReceivedMessage> TakeReply(int batch, StepId step, int layer);
  // No reply is expected any more.
  void Forget(int batch) { asked_[static_cast<size_t>(batch)] = false; }

  // A slot whose last push is stored.
  std::optional<int> FreePushSlot() const;
  bool pushing() const;  // whether a push is not stored yet

  // Takes what has come and lets the link post its messages; returns whether anything happened.
  bool Poll();
  // The number of notifications that came twice since the last call.
  int64_t TakeStale() { return lanes_->TakeStale(); }

 private:
  MemoryPeer(const MemoryNodeAddress& address, const WireShape& wire, uint64_t epoch)
      : address_(address), wire_(wire), epoch_(epoch) {}
  // Takes a notification; false if a memory node has no reason to send it.
  bool Understands(const Notification& notification);
  // Joins the link with the memory node's device. kUnimplemented says why it is not used.
  // `asked_for`: the cluster file demands device polling.
  Status Link(bool asked_for, Ladder& ladder, Deadline deadline);

  const MemoryNodeAddress address_;
  const WireShape wire_;
  const uint64_t epoch_;
  std::unique_ptr<DeviceLink> link_;
  // Declared after the link, whose memory its connection uses, so that it is destroyed first.
  std::unique_ptr<Lanes> lanes_;
  std::optional<bool> link_answer_;  // of the memory node to kLink
  bool is_linked_ = false;
  DataPath path_;
  std::array<bool, kMaxBatches> asked_{};
  bool lost_ = false;
  std::string why_;
};

}  // namespace lamina
