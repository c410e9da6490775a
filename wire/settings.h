// Settings of a session that are one of a few values. Their words in a cluster's YAML are those of
// manager/cluster_settings.h.
#pragma once

#include <cstdint>

namespace lamina {

// The fabric of the data path.
enum class TransportKind : uint8_t {
  kAuto,  // the best one for each pair of nodes
  kVerbs,
  kUcx,
  kShm,
  kTcp,
};

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
