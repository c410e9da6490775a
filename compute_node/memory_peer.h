// A compute node's connection to one memory node: its message areas, what is on its way in them,
// and why the node is lost when it is.
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
  std::string offers;  // of its Ladder
  NodeId group;        // how routes name it: the first node of those that hold the same tokens
  int first_kv_head = 0;
  int num_kv_heads = 0;
};

// How messages get to memory nodes, besides their addresses.
struct DataPathOptions {
  DataHello hello;
  std::string payload_checksum = "auto";  // NeedsPayloadChecksum
  std::string polling = "host";           // control::ConfigureCompute's
};

// Thread: one owner.
class MemoryPeer {
 public:
  // `wire`: with the heads that the node holds. `link`: what this node's device offers for it, or
  // why it offers nothing; it is used if the node's device takes part.
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
  void Lose(const std::string& why);  // the first reason stays

  // How devices talk to each other about decoding rows, instead of by decode messages. Null: by
  // those.
  DeviceLink* link() const { return is_linked_ ? link_.get() : nullptr; }

  // With WireShape::overlap: the first part of the decode message that PostDecode completes.
  // Likewise.
  std::span<std::byte> query_payload(int batch);
  Status PostQueries(int batch, MessageHeader header, size_t payload_bytes);

  // A decode message, or its second part: fill its payload, then post it. kTryAgain: no room now,
  // post again after a Poll. The reply is expected here, or by the compute node that
  // header.reply_to names. REQUIRES: not asked(batch).
  std::span<std::byte> decode_payload(int batch);
  Status PostDecode(int batch, MessageHeader header, size_t payload_bytes);
  // To what another compute node posted.
  void ExpectReply(int batch) { decodes_[static_cast<size_t>(batch)].asked = true; }
  // A reply is expected and was not taken.
  bool asked(int batch) const { return decodes_[static_cast<size_t>(batch)].asked; }
  // And is in the window.
  bool replied(int batch) const { return decodes_[static_cast<size_t>(batch)].replied; }

  // The reply, after checking that it answers the message of `step` and `layer`; it is then no more
  // asked(). Borrowed until the node is asked for the batch again, by whichever compute node.
  // REQUIRES: replied(batch).
  Result<ReceivedMessage> TakeReply(int batch, StepId step, int layer);
  // Nobody waits for its reply any more.
  void Forget(int batch) { decodes_[static_cast<size_t>(batch)].asked = false; }

  // Likewise for pushes.
  std::optional<int> FreePushSlot() const;
  std::span<std::byte> push_payload(int slot);
  Status PostPush(int slot, MessageHeader header, size_t payload_bytes);
  bool pushing() const;  // some push is not stored yet

  bool Poll();          // takes what came; returns whether anything did
  int64_t TakeStale();  // notifications that came twice, since the last call

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
  // The peer's window, as it is written here; null: it can be written itself.
  std::unique_ptr<Buffer> buffer_;
  std::unique_ptr<DeviceLink> link_;
  std::unique_ptr<Endpoint> endpoint_;  // after the buffer, and the link's window: it goes first
  std::optional<bool> link_answer_;     // the memory node's
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
