// What a node of a cluster is for.
#pragma once

#include <cstdint>
#include <string_view>

namespace lamina {

enum class NodeRole : uint8_t { kCompute, kMemory };

// "compute" or "memory", as in cluster files and in messages to people.
constexpr std::string_view NodeRoleName(NodeRole role) {
  return role == NodeRole::kMemory ? "memory" : "compute";
}

}  // namespace lamina
