// Models a network that this machine does not have: what another fabric carries becomes visible
// only when a link of some latency and bandwidth would have brought it. For clusters of modelled
// devices (docs/modelled-devices.md), whose nodes are all on one machine.
//
// Each notification carries a stamp: the time at which a NIC that sends one post after another
// would have begun with each post's bytes, and how many bytes they are. The receiver holds the
// notification back until its own NIC, which receives one post at a time too, would have received
// them all:
//   visible = max over posts of ingress.Book(departure + latency, bytes / bandwidth)
// and for 10 s at most, whatever the peer has written into the stamp.
// Stamps are times of CLOCK_MONOTONIC, which all processes of a machine share. The bytes themselves
// may be there earlier, which nobody sees who waits for the notification, as transport.h demands.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/device_timeline.h"
#include "transport/transport.h"

namespace lamina {

// The network to model.
struct ModelledLink {
  // The time from sending to the notification's arrival, without the time that the bytes take.
  Clock::duration latency{};
  double bytes_per_s = 0;  // bandwidth of each direction; 0: bytes take no time
};

// When a NIC is busy receiving. Posts of several peers are booked in any order, so each takes the
// first gap that is long enough. Value type.
class IngressTimeline {
 public:
  // Books the first free time of length `cost` that begins at `ready` or later, and returns its
  // end. If that is after `latest`, returns `latest` and books nothing.
  TimePoint Book(TimePoint ready, Clock::duration cost, TimePoint latest = TimePoint::max());

 private:
  struct Busy {
    TimePoint begin, end;
  };
  std::vector<Busy> busy_;  // disjoint and ascending; old entries are dropped
};

// The modelled NIC of one node, which all its fabrics and endpoints share. Thread: owner.
struct ModelledNic {
  // The time that `bytes` bytes occupy one direction of the link.
  Clock::duration CostOf(uint64_t bytes) const {
    return link.bytes_per_s > 0 ? FromSeconds(static_cast<double>(bytes) / link.bytes_per_s)
                                : Clock::duration::zero();
  }

  ModelledLink link;
  DeviceTimeline egress;
  IngressTimeline ingress;
};

// Decorates `inner`, which it owns; borrows `nic`. Both ends of a connection must be decorated,
// else connecting ends with kPeerLost, and Accept drops the peer. The limits are those of `inner`
// less what the stamps need: one op of each post, and the first 128 KiB of each window. Device
// windows are not passed on.
std::unique_ptr<Fabric> MakeModelledFabric(std::unique_ptr<Fabric> inner, ModelledNic& nic);

}  // namespace lamina
