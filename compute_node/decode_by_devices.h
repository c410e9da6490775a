// The decode path of a memory node whose device exchanges messages with this node's device itself
// (device_link.h). This host queues work on its device, layer after layer, and learns afterwards
// how the replies turned out.
#pragma once

#include <cstdint>

#include "compute_node/decode_path.h"
#include "compute_node/peer_rows.h"
#include "compute_node/remote_session.h"

namespace lamina {

// Borrows everything. Thread: one owner.
class DecodeByDevices final : public DecodePath {
 public:
  // REQUIRES: peer.link() is not null.
  DecodeByDevices(RemoteSession& session, MemoryPeer& peer, RemoteStepState& step,
                  const PeerRows& rows)
      : session_(session),
        peer_(peer),
        lane_(peer.link()->lane(step.batch)),
        step_(step),
        rows_(rows) {}

  void Begin() override { state_ = State::kIdle; }
  void Send() override;
  bool missing() const override;
  bool Await() override;
  bool fetching() const override;
  void Take() override;

 private:
  // Of the layer's message: none was posted; it was; its reply is awaited by the device.
  enum class State { kIdle, kPosted, kAwaited };

  // Whether the device may be given work that follows the reply before the reply is there.
  bool RunsAhead() const;
  // Asks the device to unpack the outputs of rows for which this memory node alone attends.
  void UnpackWhole();
  void TakeOutcome();

  RemoteSession& session_;
  MemoryPeer& peer_;
  DeviceLane& lane_;
  RemoteStepState& step_;
  const PeerRows& rows_;
  State state_ = State::kIdle;
  bool fetches_ = false;  // whether the host fetches the outcome of the message
  bool ahead_ = false;    // whether UnpackWhole was called before the reply was there
};

}  // namespace lamina
