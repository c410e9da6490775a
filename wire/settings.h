// Settings of a session that are one of a few values. Their words in a cluster's YAML are those of
// manager/cluster_settings.h.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lamina {

// The fabric of the data path.
enum class TransportKind : uint8_t {
  kAuto,  // the best one for each pair of nodes
  kVerbs,
  kUcx,
  kShm,
  kTcp,
};

// "auto", "verbs", "ucx", "shm" or "tcp".
constexpr std::string_view TransportKindName(TransportKind kind) {
  switch (kind) {
    case TransportKind::kAuto: return "auto";
    case TransportKind::kVerbs: return "verbs";
    case TransportKind::kUcx: return "ucx";
    case TransportKind::kShm: return "shm";
    case TransportKind::kTcp: return "tcp";
  }
  return "";
}

// The names that Ladder::Open takes (transport/ladder.h).
inline std::vector<std::string> FabricNames(std::span<const TransportKind> fabrics) {
  std::vector<std::string> names;
  for (const TransportKind fabric : fabrics) names.emplace_back(TransportKindName(fabric));
  return names;
}

// What is on, off, or decided by the rest of the configuration.
enum class Switch : uint8_t { kAuto, kOn, kOff };

// Who waits for messages between GPUs.
enum class PollingMode : uint8_t {
  kAuto,    // kDevice for nodes on one host, unless their processes take turns on one GPU
  kDevice,  // kernels do, where they can
  kHost,
};

// Where weights come from.
enum class LoadFormat : uint8_t {
  kAuto,
  kSafetensors,
  kDummy,  // they are random
};

}  // namespace lamina
