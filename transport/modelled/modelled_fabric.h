// A network that is not here: what another fabric carries becomes visible only when a link of some
// latency and bandwidth would have brought it. For modelled devices, whose nodes are all on one
// machine.
//
// A notification carries a stamp: when a NIC that sends one thing after another would have begun
// with each post's bytes, and how many they are. The receiver holds the notification back until its
// own NIC, which takes in one thing at a time too, would have had them all:
//   visible = max over posts of ingress.Book(departure + latency, bytes / bandwidth)
// Stamps are times of CLOCK_MONOTONIC, which all processes of a machine share. The bytes themselves
// may be there earlier; who waits for the notification, as transport.h demands, does not see that.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/device_timeline.h"
#include "transport/transport.h"

namespace lamina {

struct ModelledLink {
  // From the last byte sent to the notification seen, without the time of the bytes.
  Clock::duration latency{};
  double bytes_per_s = 0;  // of each direction; 0: bytes take no time
};

// What comes in at a NIC when. Bytes of several peers are learnt of in any order, so a piece takes
// the first gap that is long enough. Value type.
class IngressTimeline {
 public:
  // Books `cost` that can begin at `ready`; returns when it is done.
  TimePoint Book(TimePoint ready, Clock::duration cost);

 private:
  struct Busy {
    TimePoint begin, end;
  };
  std::vector<Busy> busy_;  // disjoint, ascending; old ones are dropped
};

// One node's: all its fabrics and endpoints share it. Thread: owner.
struct ModelledNic {
  Clock::duration CostOf(uint64_t bytes) const {
    return link.bytes_per_s > 0 ? FromSeconds(static_cast<double>(bytes) / link.bytes_per_s)
                                : Clock::duration::zero();
  }

  ModelledLink link;
  DeviceTimeline egress;
  IngressTimeline ingress;
};

// Decorates `inner`; both ends of a connection must be decorated. Borrows the NIC. Its limits are
// those of `inner` less what the stamps need: one op of each post, and the first 128 KiB of each
// window.
std::unique_ptr<Fabric> MakeModelledFabric(std::unique_ptr<Fabric> inner, ModelledNic& nic);

}  // namespace lamina
