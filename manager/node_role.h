// What a node is for, and how it is: the words of the cluster file and of /cluster/status.
#pragma once

#include <cstdint>
#include <string_view>

namespace lamina {

enum class NodeRole : uint8_t { kCompute, kMemory };

// "compute" or "memory".
constexpr std::string_view NodeRoleName(NodeRole role) {
  return role == NodeRole::kMemory ? "memory" : "compute";
}

enum class NodeState : uint8_t {
  kReady,
  kLost,          // its NodeStatus::detail says why
  kReconnecting,  // others are lost, and it is connected anew with those that are left
  kGivenUp,       // that did not succeed in time
};

// "ready", "lost", "reconnecting" or "given up".
constexpr std::string_view NodeStateName(NodeState state) {
  switch (state) {
    case NodeState::kReady: return "ready";
    case NodeState::kLost: return "lost";
    case NodeState::kReconnecting: return "reconnecting";
    case NodeState::kGivenUp: return "given up";
  }
  return "";
}

}  // namespace lamina
