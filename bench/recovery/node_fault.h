// What is done to nodes, or to the manager, while a cluster serves, as it is asked for on the
// command line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "manager/cluster_commands.h"
#include "manager/cluster_config.h"

namespace lamina {

enum class FaultKind : uint8_t {
  kKill,      // SIGKILL
  kStop,      // SIGSTOP: the daemon hangs
  kContinue,  // SIGCONT, the end of a kStop
  kRestart,   // a daemon that was killed is started again
};

// Value type.
struct NodeFault {
  FaultKind kind = FaultKind::kKill;
  std::string node;      // or kManagerName of manager/cluster_commands.h
  Clock::duration at{};  // since streams are served

  bool OfManager() const { return node == kManagerName; }

  // "kill m0@5s".
  std::string Name() const;
};

// The faults as they are typed: NAME@TIME, and for `stop` also NAME@TIME+DURATION, after which the
// node goes on.
struct FaultTexts {
  std::vector<std::string> kill = {}, stop = {}, restart = {};
};

// In the order of their times. kInvalidArgument quotes the text that cannot be read and says what
// was expected.
Result<std::vector<NodeFault>> ParseFaults(const FaultTexts& texts);

// Whether these faults, in the order of their times, can be done to the nodes of `config` or to the
// manager by the process that started them. kInvalidArgument says which of them cannot, and why:
// the file has no such node, the node runs on another machine, it is not in a state for it, such as
// one that is killed twice, or some are done to nodes and others to the manager.
Status CheckFaults(const std::vector<NodeFault>& faults, const ClusterConfig& config);

}  // namespace lamina
