// What the steps of a session with memory nodes share.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "compute_node/compute_device.h"
#include "compute_node/memory_peers.h"
#include "compute_node/prefill_kv.h"
#include "compute_node/step_trace.h"
#include "splitter/model_share.h"
#include "wire/wire_format.h"

namespace lamina {

struct RemoteAttentionOptions {
  uint64_t epoch = 0;
  std::string session_token;                 // to show to the memory nodes
  Switch payload_checksum = Switch::kAuto;   // see NeedsPayloadChecksum
  PollingMode polling = PollingMode::kHost;  // who waits for messages
  NodeId self;
  AttentionShape attention;
  AttentionLayers layers = {};  // of the model, all of them
  WireShape wire;               // of a memory node that holds all heads
  int num_layers = 0;           // of the model
  SliceRange own_layers = {};   // layers with q, k and v computed here; empty: all
  // Token slots for KV of prompts while they are computed, of all batches.
  int64_t prefill_cache_tokens = 0;
  Clock::duration peer_timeout = std::chrono::seconds(10);
  Clock::duration suspect_after{};  // see MemoryPeers
};

// Borrows the device. Thread: one owner.
struct RemoteSession {
  const RemoteAttentionOptions options;
  ComputeDevice& device;
  MemoryPeers peers;
  const std::unique_ptr<PrefillKv> prefill;
  StepTrace* trace = nullptr;  // null: nothing is timed
  int num_steps = 0;           // under way, not counting those without rows
};

}  // namespace lamina
