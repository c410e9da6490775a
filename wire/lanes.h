// Messages between two nodes, over one connection of the data path. A *lane* is where the messages
// of one kind and slot lie in the receiver's window, and how they are numbered. Which lanes there
// are is a table for each direction: a new kind of message between two nodes is a row of one.
//
// Sending:   fill payload(kind, slot), then Post(kind, slot, header, bytes).
// Receiving: Poll; while arrived(kind, slot), Take(kind, slot).
//
// What finds no room on the way to the peer is queued, and Poll sends it as soon as there is room,
// so nobody has to wait for that.
//
// The lanes seal and check messages, number them and drop notifications that come twice. They do
// not know what a message is about: whoever takes it compares its step and layer.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "transport/transport.h"
#include "wire/wire_format.h"

namespace lamina {

// Value type. Offsets and sizes are in bytes.
struct Lane {
  MessageKind kind{};
  uint32_t slot = 0;
  // Where the first area begins in the receiver's window.
  uint64_t offset = 0;
  // The size of an area, which has the header and then the payload.
  uint64_t area_bytes = 0;
  // How many areas there are, one behind the other: message n lies in area n mod depth. So many
  // messages may be there that were not taken.
  uint32_t depth = 1;
};

// From a compute node to a memory node: q, k and v of decoding rows, and pushes.
std::vector<Lane> DecodeLanes(const WireShape& wire);
// From a memory node to a compute node.
std::vector<Lane> ReplyLanes(const WireShape& wire);
// Between compute nodes, in both directions. `context_bytes` and `sum_bytes` are the largest
// payloads; without partial sums the latter is 0.
std::vector<Lane> ContextLanes(int num_batches, size_t context_bytes, size_t sum_bytes);

// How much of a window these lanes take.
uint64_t WindowBytes(std::span<const Lane> lanes);

// Owns the connection. No call blocks. Thread: one owner, that of the fabric.
class Lanes {
 public:
  struct Options {
    // Every header has it.
    uint64_t epoch = 0;
    // Whether payloads have checksums, as NeedsPayloadChecksum takes it.
    Switch payload_checksum = Switch::kAuto;
  };
  // `endpoint` is of `fabric`. kInternal if the peer's window is too small for `outgoing`, or its
  // own for `incoming`; kOutOfSpace as Fabric::Allocate.
  static Result<std::unique_ptr<Lanes>> Create(Fabric& fabric, std::unique_ptr<Endpoint> endpoint,
                                               std::span<const Lane> outgoing,
                                               std::span<const Lane> incoming,
                                               const Options& options);

  Endpoint& endpoint() { return *endpoint_; }
  const std::string& peer_name() const { return endpoint_->peer_name(); }

  // In all of these there is a lane for `kind` and `slot`.

  // The room for the payload of the lane's next message.
  std::span<std::byte> payload(MessageKind kind, uint32_t slot);
  // Sends the first `bytes` of that payload before the rest, without a notification: the peer may
  // find them there, but no message yet. kTryAgain if there is no room, or messages wait for room;
  // nothing is queued. Other errors as Endpoint::Post.
  Status PostEarly(MessageKind kind, uint32_t slot, size_t bytes);
  // Completes the header (kind, epoch, number, sizes and checksums) and sends the message, all of
  // it but the first `early_bytes` of its payload, which PostEarly has sent. If there is no room
  // now, the message is queued behind those that wait already, and Poll sends it; until then it
  // must not be written to. After an error the peer is lost; kTryAgain means that more messages
  // wait than a peer that keeps to its side lets come together. REQUIRES: the peer has an area
  // free, so it has taken the message that is `depth` before this one. How a sender knows that is
  // up to the kind of message (wire_format.h, "Flow control").
  Status Post(MessageKind kind, uint32_t slot, MessageHeader header, size_t payload_bytes,
              size_t early_bytes = 0);
  // Whether a message or a signal waits for room. How long that may last is for the caller to say.
  bool unsent() const { return !unsent_.empty(); }
  // Whether the last push of the slot was not acknowledged yet.
  bool pushing(uint32_t slot) const { return outgoing(MessageKind::kPush, slot).pushing; }

  // Sends a notification that announces no message, or queues it, with the errors of Post.
  Status Signal(const Notification& signal) { return Send({}, signal); }
  // Tells the sender that its last push that was taken need not stay: kPushDone.
  Status Acknowledge(uint32_t slot) {
    return Signal({MessageKind::kPushDone, slot, incoming(MessageKind::kPush, slot).taken});
  }

  struct Polled {
    size_t num_events = 0;         // of any kind, those of own posts included
    size_t num_notifications = 0;  // from the peer, those that came twice included
  };
  // Takes what has come, up to 16 events, and sends what is queued, as far as there is room. Calls
  // `see` with each notification: once for a message that has arrived or a push that was
  // acknowledged, always for a signal. It returns whether the notification means anything to it.
  // kPeerLost, saying why, if the peer is gone; kCorrupt if it has sent a notification that means
  // nothing. The peer must not be used any more then.
  template <typename See>
  Result<Polled> Poll(const See& see);

  // Whether a message has been announced that was not taken.
  bool arrived(MessageKind kind, uint32_t slot) const {
    const Side& lane = incoming(kind, slot);
    return lane.announced != lane.taken;
  }
  // The number of the last message that was taken.
  uint32_t taken(MessageKind kind, uint32_t slot) const { return incoming(kind, slot).taken; }
  // Reads the oldest message that was not taken, and checks all of it but what it is about.
  // kCorrupt if it is damaged or has another number; then no byte of the peer can be trusted.
  // The payload is borrowed until the message is taken and the peer writes the next one into the
  // same area. A message that was not announced yet is read too: the caller knows that it is there.
  Result<ReceivedMessage> Peek(MessageKind kind, uint32_t slot) const;
  // Counts that message as taken.
  void Drop(MessageKind kind, uint32_t slot);
  // Peek, then Drop.
  Result<ReceivedMessage> Take(MessageKind kind, uint32_t slot);

  // How many notifications came twice since the last call. The owner adds signals that it was
  // given twice.
  int64_t TakeStale() { return std::exchange(num_stale_, 0); }
  void CountStale() { ++num_stale_; }

 private:
  // One end of a lane.
  struct Side {
    Lane lane;               // area_bytes is 0: there is none
    uint32_t sent = 0;       // the numbers of the last messages that were sent,
    uint32_t announced = 0;  // that a notification was taken of,
    uint32_t taken = 0;      // and that were taken
    bool pushing = false;
  };
  // Every kind and slot that a notification can have.
  using Sides = std::array<Side, (static_cast<size_t>(MessageKind::kAlive) + 1) * kMaxBatches>;
  enum class Note { kFresh, kStale, kMeansNothing };
  // What found no room.
  struct Unsent {
    std::array<WriteOp, 2> ops;
    size_t num_ops = 0;
    Notification notification;
  };

  Lanes(std::unique_ptr<Endpoint> endpoint, std::unique_ptr<Buffer> copy, const Options& options,
        bool payload_checksum)
      : copy_(std::move(copy)),
        endpoint_(std::move(endpoint)),
        epoch_(options.epoch),
        payload_checksum_(payload_checksum) {}

  static size_t IndexOf(MessageKind kind, uint32_t slot) {
    return static_cast<size_t>(kind) * kMaxBatches + slot;
  }
  Side& outgoing(MessageKind kind, uint32_t slot) { return outgoing_[IndexOf(kind, slot)]; }
  const Side& outgoing(MessageKind kind, uint32_t slot) const {
    return outgoing_[IndexOf(kind, slot)];
  }
  Side& incoming(MessageKind kind, uint32_t slot) { return incoming_[IndexOf(kind, slot)]; }
  const Side& incoming(MessageKind kind, uint32_t slot) const {
    return incoming_[IndexOf(kind, slot)];
  }
  static uint64_t AreaOffset(const Lane& lane, uint32_t number) {
    return lane.offset + number % lane.depth * lane.area_bytes;
  }
  uint32_t NextNumber(MessageKind kind, uint32_t slot) const;
  // The area of the next message, in the peer's window or in the copy of it.
  std::span<std::byte> NextArea(MessageKind kind, uint32_t slot);
  Note NoteOf(const Notification& notification);
  Status Send(std::span<const WriteOp> ops, const Notification& notification);
  // Sends what is queued, as far as there is room.
  Status SendQueued();

  // A copy of the peer's window, from which messages are posted; null if the window itself can be
  // written from here (shared memory).
  const std::unique_ptr<Buffer> copy_;
  // Declared after the copy, which its posts read, so that it is destroyed first.
  const std::unique_ptr<Endpoint> endpoint_;
  const uint64_t epoch_;
  const bool payload_checksum_;
  Sides outgoing_, incoming_;
  // The oldest comes first. Room for all that an honest peer can let come together is reserved.
  std::vector<Unsent> unsent_;
  int64_t num_stale_ = 0;
};

template <typename See>
Result<Lanes::Polled> Lanes::Poll(const See& see) {
  std::array<Event, 16> events;
  Polled polled{.num_events = endpoint_->Poll(events)};
  for (size_t i = 0; i < polled.num_events; ++i) {
    if (events[i].kind == Event::Kind::kPeerLost) return PeerLost(endpoint_->last_error());
    if (events[i].kind != Event::Kind::kNotification) continue;
    ++polled.num_notifications;
    const std::optional<Notification> notification = Notification::Unpack(events[i].value);
    const Note note = notification ? NoteOf(*notification) : Note::kMeansNothing;
    if (note == Note::kStale) CountStale();
    if (note == Note::kMeansNothing || (note == Note::kFresh && !see(*notification)))
      return Corrupt("sent a notification that means nothing: " + std::to_string(events[i].value));
  }
  if (unsent()) LAMINA_RETURN_IF_ERROR(SendQueued());
  return polled;
}

}  // namespace lamina
