// A compute node's connection to one memory node: the lanes between the two, how the two devices
// exchange messages themselves where they can, and, once the node is lost, why.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/ids.h"
#include "compute_node/attention_strategy.h"
#include "compute_node/device_link.h"
#include "transport/ladder.h"
#include "wire/lanes.h"

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
  const ChosenPath& path() const { return path_; }
  const std::string& peer_name() const { return lanes_->peer_name(); }

  bool lost() const { return lost_; }
  const std::string& why() const { return why_; }
  // Marks the node as lost; the first reason is kept.
  void Lose(const std::string& why);

  // The link by which the two devices exchange decode messages themselves; nullptr if decode
  // messages go over lanes().
  DeviceLink* link() const { return is_linked_ ? link_.get() : nullptr; }

  // Whether a device has written messages that this host has still to post. False if the node is
  // lost.
  bool carries() const { return is_linked_ && !lost_ && link_->carries(); }
  // How long the node's replies have been waited for by this node's device since the last call.
  // REQUIRES: link() is not null.
  int64_t TakeDeviceWaitUs();

  // The lanes to and from the node. A slot is a batch, or for kPush one that FreePushSlot returned.
  // With WireShape::overlap a decode message has two parts: kQueries, which is posted first, and
  // kDecode. The reply to kDecode comes here, or to the compute node that header.reply_to names.
  // REQUIRES: a decode message is posted only when the reply to the slot's last one was taken.
  Lanes& lanes() { return *lanes_; }

  // A slot whose last push is stored.
  std::optional<uint32_t> FreePushSlot() const;
  bool pushing() const;  // whether a push is not stored yet

  // Takes what has come and lets the link post its messages; returns whether anything happened.
  bool Poll();
  // The number of notifications that came twice since the last call.
  int64_t TakeStale() { return lanes_->TakeStale(); }

 private:
  MemoryPeer(const MemoryPeerAddress& address, const WireShape& wire)
      : address_(address), wire_(wire) {}
  // Takes a notification; false if a memory node has no reason to send it.
  bool Understands(const Notification& notification);
  // Joins the link with the memory node's device. kUnimplemented says why it is not used.
  // `asked_for`: the cluster file demands device polling.
  Status Link(bool asked_for, Ladder& ladder, Deadline deadline);

  const MemoryPeerAddress address_;
  const WireShape wire_;
  std::unique_ptr<DeviceLink> link_;
  // Declared after the link, whose memory its connection uses, so that it is destroyed first.
  std::unique_ptr<Lanes> lanes_;
  std::optional<bool> link_answer_;  // of the memory node to kLink
  bool is_linked_ = false;
  int64_t device_waited_us_ = 0;  // the part of the link's waited_us that was taken
  ChosenPath path_;
  bool lost_ = false;
  std::string why_;
};

}  // namespace lamina
