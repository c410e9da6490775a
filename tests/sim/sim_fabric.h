// The data path of a simulated cluster: a fabric whose posts take their time and meet with faults.
//
// What a post writes is in the peer's window when it arrives, sometimes a part of it before that,
// and then its notification is. Posts of one endpoint keep their order; those of different
// endpoints do not. When an end goes away, each of its posts under way may still arrive, or not.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "tests/sim/random.h"
#include "tests/support/virtual_cluster.h"
#include "tests/support/wires.h"
#include "transport/transport.h"

namespace lamina::sim {

// What happens to one post.
enum class PostFault : uint8_t { kCorrupt, kDuplicate, kLoseNotification, kDelay };

// What was seen of it.
struct FabricCounts {
  uint64_t posts = 0;
  uint64_t corrupted = 0;
  uint64_t duplicated = 0;
  uint64_t lost = 0;
  uint64_t delayed = 0;
  uint64_t landed_early = 0;  // a part of a post, before the rest
  uint64_t after_death = 0;   // posts that arrived when their sender was gone
  uint64_t to_nobody = 0;     // posts that arrived when their receiver was gone
  uint64_t without_room = 0;
};

// All fabrics of a cluster. Outlives them. Thread: owner.
class SimNetwork final : public testing::VirtualFabrics {
 public:
  explicit SimNetwork(uint64_t seed);
  ~SimNetwork() override;

  OpenLadder OpenerOf(const std::string& node) override;
  bool Deliver() override { return wires_.Deliver(); }
  TimePoint next() const override { return wires_.next(); }

  // To cut ways between nodes, which are called by their names.
  testing::Wires& wires() { return wires_; }
  // The next post with a notification from one node to the other meets with the fault.
  void Plan(const std::string& from, const std::string& to, PostFault fault,
            Clock::duration delay = {});

  // Faults that have met no post yet are taken back.
  void DropPlans() { planned_.clear(); }

  const FabricCounts& counts() const { return counts_; }
  // Endpoints that were made and are not gone, by the nodes at both ends: own, peer.
  const std::map<std::pair<std::string, std::string>, int>& endpoints() const { return endpoints_; }

 private:
  friend class SimFabric;
  friend class SimEndpoint;
  friend class SimListener;
  friend class SimConnecting;

  struct Planned {
    PostFault fault;
    Clock::duration delay;
  };

  Random random_;
  testing::Wires wires_;
  FabricCounts counts_;
  std::map<std::string, class SimListener*> listeners_;  // by address
  uint64_t last_listener_ = 0;
  std::map<std::pair<std::string, std::string>, std::deque<Planned>> planned_;
  std::map<std::pair<std::string, std::string>, int> endpoints_;
};

}  // namespace lamina::sim
