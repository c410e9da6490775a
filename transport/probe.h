// What the data path between two machines can do: one end answers, the other measures. For
// diagnosis before a cluster runs; benchmarks against other programs are in bench/.
#pragma once

#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "transport/ladder.h"

namespace lamina {

struct ProbeResult {
  std::string fabric;           // that was chosen
  std::string through;          // as Endpoint::through
  std::string refused;          // what was passed over, and why
  double latency_us = 0;        // half a round trip of 8 bytes, median
  double bytes_per_second = 0;  // one direction, large messages
};

// Waits for one peer until `deadline` and answers it until it leaves. REQUIRES: the ladder listens.
Status AnswerProbe(Ladder& ladder, Deadline deadline);

// Connects to `offers` and measures for about `duration`. kTimeout or kPeerLost if the other end
// does not answer until `deadline`.
Result<ProbeResult> Probe(Ladder& ladder, const std::string& offers, Clock::duration duration,
                          Deadline deadline);

}  // namespace lamina
