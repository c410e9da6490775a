// A compute node's connection to one memory node: the lanes between the two, how the two devices
// exchange messages themselves where they can, and, once the node is lost, why.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/clock.h"
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
  Deadline deadline;                         // for connecting
};

class ConnectingPeer;

// No call blocks; Poll takes what has come. Thread: one owner.
class MemoryPeer {
 public:
  // Begins to connect, until the options' deadline. `wire` has the heads that the node holds.
  // `link` is this node's end of a link to the node's device, or the reason why there is none; it
  // is used if the node's device takes part. kOutOfSpace if the host has no room for the messages;
  // kInvalidArgument if the offers cannot be read; other errors come from ConnectingPeer::Poll.
  static Result<std::unique_ptr<ConnectingPeer>> StartConnect(
      const MemoryNodeAddress& address, const WireShape& wire, const DataPathOptions& options,
      Result<std::unique_ptr<DeviceLink>> link, Ladder& ladder);

  const MemoryNodeAddress& address() const { return address_; }
  const std::string& name() const { return address_.name; }
  const WireShape& wire() const { return wire_; }
  const DataPath& path() const { return path_; }
  const std::string& peer_name() const { return lanes_->peer_name(); }

  bool lost() const { return lost_; }
  const std::string& why() const { return why_; }
  // Marks the node as lost; the first reason is kept.
  void Lose(const std::string& why);

  // A node that is late is suspended until it has answered everything that was sent to it before:
  // nobody waits for it, and nothing more is sent to it. `since` is when the wait for it began;
  // the number is PeerState::suspension.
  void Suspend(TimePoint since, uint64_t suspension) {
    late_since_ = since;
    suspension_ = suspension;
  }
  bool suspended() const { return late_since_ != TimePoint::max(); }
  TimePoint late_since() const { return late_since_; }
  uint64_t suspension() const { return suspension_; }  // the last one; 0: none yet
  // Nobody will take the reply to the batch's last decode message. REQUIRES: suspended().
  void OweReply(uint32_t batch) { owed_ |= 1u << batch; }
  // Drops such replies that have come. Returns whether nothing is missing any more; then the node
  // is not suspended any more. REQUIRES: suspended().
  bool TakeOwed(TimePoint now);
  void EndSuspension();

  // Waiting for its attention of a layer took so long.
  void Answered(Clock::duration wait) { mean_wait_ += (wait - mean_wait_) / kWaitsAveraged; }
  Clock::duration mean_wait() const { return mean_wait_; }

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

  // Takes what has come, sends what was queued for want of room, and lets the link post its
  // messages.
  void Poll();
  // The number of notifications that came twice since the last call.
  int64_t TakeStale() { return lanes_->TakeStale(); }

 private:
  MemoryPeer(const MemoryNodeAddress& address, const WireShape& wire)
      : address_(address), wire_(wire) {}
  // Takes a notification; false if a memory node has no reason to send it.
  bool Understands(const Notification& notification);
  // Joins the link with the memory node's device, and asks the node whether that joins too. Ok if
  // it will answer; kUnimplemented if neither device reaches the other. `asked_for`: the cluster
  // file demands device polling.
  Status OfferLink(bool asked_for);
  // Uses the link, or says why it is not used. REQUIRES: the node has answered.
  Status UseLink();

  friend class ConnectingPeer;
  const MemoryNodeAddress address_;
  const WireShape wire_;
  std::unique_ptr<DeviceLink> link_;
  // Declared after the link, whose memory its connection uses, so that it is destroyed first.
  std::unique_ptr<Lanes> lanes_;
  Status joined_;                    // whether this node's device joined the link
  std::optional<bool> link_answer_;  // of the memory node to kLink
  bool is_linked_ = false;
  int64_t device_waited_us_ = 0;  // the part of the link's waited_us that was taken
  DataPath path_;
  // A single wait counts for so much of the mean that the one after it is granted more than that
  // (MemoryPeers::PatienceWith): a node that is slow is not suspended for ever.
  static constexpr int kWaitsAveraged = 16;
  Clock::duration mean_wait_{};
  TimePoint late_since_ = TimePoint::max();  // it is not suspended
  uint64_t suspension_ = 0;
  uint32_t owed_ = 0;  // a bit for each batch
  static_assert(kMaxBatches <= 32);
  bool lost_ = false;
  std::string why_;
};

// A connection to a memory node that is being made: the data path first, then the link between the
// two devices. Destroying it gives it up. Thread: one owner.
class ConnectingPeer {
 public:
  // Goes on without waiting. Returns the peer, or kTryAgain while it is under way. Other errors
  // name the memory node: kPeerLost if it was lost meanwhile, kInternal if its window is too small,
  // otherwise the ladder's, which found no fabric that joins the two. REQUIRES: every call before
  // this one returned kTryAgain.
  Result<std::unique_ptr<MemoryPeer>> Poll();

  // When to call Poll again at the latest; Ladder::Sleep wakes the owner when it gets further
  // before that. REQUIRES: Poll returned kTryAgain.
  TimePoint wake_at() const { return path_ != nullptr ? path_->wake_at() : options_.deadline.at(); }

 private:
  friend class MemoryPeer;
  ConnectingPeer(const DataPathOptions& options, std::unique_ptr<MemoryPeer> peer, Status no_link,
                 std::unique_ptr<ConnectingPath> path)
      : options_(options),
        peer_(std::move(peer)),
        linked_(std::move(no_link)),
        path_(std::move(path)) {}
  Status TakePath();
  Status AwaitLink();

  const DataPathOptions options_;
  std::unique_ptr<MemoryPeer> peer_;
  Status linked_;  // why there is no link between the devices; ok while it is not known
  // Null once there is a path. Declared after the peer, whose link's memory it uses, so that it is
  // destroyed first.
  std::unique_ptr<ConnectingPath> path_;
};

}  // namespace lamina
