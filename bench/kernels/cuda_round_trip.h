// The way of one row's attention to a memory node on the same GPU and back, with devices that poll
// for messages and with hosts that do.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "bench/report.h"

namespace lamina {

struct RoundTripCase {
  int group = 1, num_kv_heads = 8, head_dim = 128;
  int64_t context = 512;
  int num_layers = 32;
  int num_steps = 64;  // of each way
};

// A memory node's daemon in a thread of this process, shared memory in between, K and V and wire in
// bf16. A step is a chain of as many attentions as there are layers, with nothing else between
// them; its time begins when q, k and v of the first are in the GPU's memory and ends when the host
// knows that the last output is. The value is a layer's share of a step, the reference that of a
// step in which hosts poll; steps of both kinds take turns. A device that cannot share memory is
// measured with hosts only, and the note says why. Errors as MakeComputeDevice, MemoryNode::Create
// and RemoteAttention::Create.
Result<Measurement> MeasureRoundTrip(int device, const RoundTripCase& sizes);

}  // namespace lamina
