// How a node is, in the words of /cluster/status.
#pragma once

#include <cstdint>
#include <string_view>

namespace lamina {

enum class NodeState : uint8_t {
  kReady,
  kSuspended,     // it is late: its NodeStatus::detail says with what
  kLost,          // its NodeStatus::detail says why
  kReconnecting,  // others are lost, and it is connected anew with those that are left
  kGivenUp,       // that did not succeed in time
  kStandby,       // it is ready to take the place of a compute node that is lost
};

// "ready", "suspended", "lost", "reconnecting", "given up" or "standby".
constexpr std::string_view NodeStateName(NodeState state) {
  switch (state) {
    case NodeState::kReady: return "ready";
    case NodeState::kSuspended: return "suspended";
    case NodeState::kLost: return "lost";
    case NodeState::kReconnecting: return "reconnecting";
    case NodeState::kGivenUp: return "given up";
    case NodeState::kStandby: return "standby";
  }
  return "";
}

}  // namespace lamina
