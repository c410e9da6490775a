// The Endpoint of the loopback fabric: one end of a connection inside the process.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transport/bounded_queue.h"
#include "transport/loopback/loopback_connection.h"
#include "transport/transport.h"

namespace lamina {

// Posts copy into the peer's window at once; notifications go through a queue under a mutex.
// Thread: owner of the fabric; the peer's may be another thread.
class LoopbackEndpoint final : public Endpoint {
 public:
  // This end is number `self` of the connection. `siblings` lists the endpoints of the same fabric;
  // this one adds itself, and its destructor removes it.
  LoopbackEndpoint(std::shared_ptr<LoopbackConnection> connection, int self, std::string peer_name,
                   const Limits& limits, std::vector<LoopbackEndpoint*>& siblings);
  ~LoopbackEndpoint() override;

  Status Post(std::span<const WriteOp> ops, std::optional<uint32_t> notify, uint64_t tag) override;
  size_t Poll(std::span<Event> out) override;
  std::span<std::byte> window() override { return mine_.window.bytes(); }
  uint64_t peer_window_bytes() const override { return theirs_.window.bytes().size(); }
  const std::string& peer_hello() const override { return theirs_.hello; }
  const std::string& peer_name() const override { return peer_name_; }
  std::string last_error() const override;

  // For Fabric::Arm: whether Poll would return an event, or a post that got kTryAgain would be
  // taken now. If not, the peer notifies the waker when that changes.
  bool HasWork();

 private:
  const std::shared_ptr<LoopbackConnection> connection_;
  LoopbackEnd& mine_;
  LoopbackEnd& theirs_;
  const std::string peer_name_;
  const Limits& limits_;
  std::vector<LoopbackEndpoint*>& siblings_;
  BoundedQueue<uint64_t> sent_;  // tags whose kSent Poll has not returned
  bool said_lost_ = false;       // Poll has returned kPeerLost
};

}  // namespace lamina
