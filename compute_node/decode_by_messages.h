// The decode path of a memory node with which this host exchanges messages: it packs q, k and v
// into the node's window, and unpacks the output that comes back. Message formats:
// wire/wire_format.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "compute_node/decode_path.h"
#include "compute_node/peer_rows.h"
#include "compute_node/remote_session.h"

namespace lamina {

// Besides a layer's plain course (decode_path.h), q may leave before k and v, and the reply may go
// to another compute node, or come from a node that another compute node has asked. Borrows
// everything. Thread: one owner.
class DecodeByMessages final : public DecodePath {
 public:
  DecodeByMessages(RemoteSession& session, MemoryPeer& peer, RemoteStepState& step,
                   const PeerRows& rows)
      : session_(session), peer_(peer), step_(step), rows_(rows) {}

  // Sends q ahead of k and v, for Send to complete. REQUIRES: WireShape::overlap; otherwise as for
  // Send.
  void SendQueries();

  // What the taker of the layer has to know of the message that was sent.
  AskedNode asked() const { return {peer_.address().node, posted_ns_}; }
  // Expects the reply to a message that another compute node has sent.
  void Expect(const AskedNode& asked);

  bool expects() const { return expects_; }
  // Expects no reply any more. Returns whether one is still to come.
  bool StopExpecting() { return std::exchange(expects_, false); }

  void Begin() override { expects_ = false; }
  void Send() override;
  bool missing() const override;
  bool Await() override { return expects_; }
  bool fetching() const override { return false; }
  void Take() override;

 private:
  uint16_t Flags() const;
  void MarkPosted();
  // Posts the message, whose payload is written. If that fails, the node is lost.
  void Post(MessageKind kind, size_t payload_bytes);
  void ReadReply();
  Result<ReceivedMessage> TakeReply();
  // Reads the failed rows and cuts them off the payload. Returns false if the bytes mean nothing;
  // the memory node is lost then.
  bool TakeFailedRows(std::span<const std::byte>& payload);
  void TakeOutputs(std::span<const std::byte> payload);

  RemoteSession& session_;
  MemoryPeer& peer_;
  RemoteStepState& step_;
  const PeerRows& rows_;
  bool expects_ = false;  // a reply that was not taken
  // When the layer's first message was posted (0: not timed), and whether by this node's clock.
  int64_t posted_ns_ = 0;
  bool on_our_clock_ = true;
};

}  // namespace lamina
