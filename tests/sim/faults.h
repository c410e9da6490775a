// Makes the faults of a scenario happen to a cluster, and notes what they came together with.
#pragma once

#include <map>
#include <string>

#include "base/status.h"
#include "tests/sim/coincidences.h"
#include "tests/sim/scenario.h"
#include "tests/sim/sim_fabric.h"
#include "tests/support/virtual_cluster.h"

namespace lamina::sim {

// What clients are waiting for at a time.
struct UnderWay {
  bool prefill = false;  // their first token
  bool decode = false;   // further ones
  bool any() const { return prefill || decode; }
};

// Thread: owner of the cluster.
class Faults {
 public:
  // Borrows all of them.
  Faults(const Scenario& scenario, testing::VirtualCluster& cluster, SimNetwork& data,
         Coincidences& seen)
      : scenario_(scenario), cluster_(cluster), data_(data), seen_(seen) {}

  // Faults of one node may overlap. REQUIRES: each fault begins and then ends, once.
  void Begin(const Fault& fault, const UnderWay& under_way);
  // Errors are those of starting a daemon.
  Status End(const Fault& fault);

  // How many times longer the node's turns take.
  int SlownessOf(const std::string& node) const;

 private:
  void Kill(const std::string& node, const UnderWay& under_way);
  void KillManager(const UnderWay& under_way);
  void CutFront(const Fault& fault, bool cut);
  void NoteKill(const std::string& node, const UnderWay& under_way);
  Status Start(const std::string& node);
  void Resume(const std::string& node);
  void Cut(const Fault& fault, bool cut);
  void CutData(const std::string& from, const std::string& to, bool cut);
  void CutControl(const std::string& node, bool to_manager, bool cut);
  bool IsLost(const std::string& node) const;

  const Scenario& scenario_;
  testing::VirtualCluster& cluster_;
  SimNetwork& data_;
  Coincidences& seen_;
  std::map<std::string, int> kills_;     // how many faults keep the node down
  std::map<std::string, int> slowness_;  // of those that are slower
};

}  // namespace lamina::sim
