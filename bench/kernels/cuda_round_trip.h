// Measures the way of one row's attention to a memory node on the same GPU and back, with devices
// that poll for messages and with hosts that do.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "bench/report.h"

namespace lamina {

// One row over `context` tokens, in each of num_layers layers.
struct RoundTripCase {
  int group = 1, num_kv_heads = 8, head_dim = 128;
  int64_t context = 512;
  int num_layers = 32;
  int num_steps = 64;  // of each kind
};

// The memory node's daemon runs in a thread of this process, with shared memory in between; K, V
// and the wire are bf16. A step is a chain of as many attentions as there are layers, with nothing
// else between them: its time begins when q, k and v of the first are in the GPU's memory, and ends
// when the host knows that the last output is there.
//
// The value is a layer's share of a step with devices that poll, the reference that of a step with
// hosts that poll; steps of both kinds take turns. On a device that cannot share memory both have
// hosts that poll, and the note says why. Returns the errors of starting and connecting the two
// nodes.
Result<Measurement> MeasureRoundTrip(int device, const RoundTripCase& sizes);

}  // namespace lamina
