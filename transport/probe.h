// Measures what the data path between two machines can do: one end answers, the other measures.
// For diagnosis before a cluster runs; benchmarks against other programs are in bench/.
#pragma once

#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "transport/ladder.h"

namespace lamina {

struct ProbeResult {
  std::string fabric;           // the name of the fabric that was chosen
  std::string through;          // Endpoint::through: the transport below it, "" if the name says it
  std::string refused;          // which fabrics were passed over, and why (RefusalText)
  double latency_us = 0;        // median of half a round trip of 8 bytes
  double bytes_per_second = 0;  // one direction, messages of 256 KiB
};

// Waits for one peer until `deadline` and answers it until it leaves; ok then. kTimeout if nobody
// comes or the peer does not leave before `deadline`; kCorrupt if it sends more than Probe would
// without waiting for answers. REQUIRES: the ladder listens.
Status AnswerProbe(Ladder& ladder, Deadline deadline);

// Connects to `offers` (Ladder::offers of the other end) and measures: latency for a quarter of
// `duration`, then bandwidth for `duration`. kTimeout if the other end does not answer until
// `deadline`; kPeerLost if no fabric connects or the other end goes; kInternal or kCorrupt if the
// other end is no probe of this version.
Result<ProbeResult> Probe(Ladder& ladder, const std::string& offers, Clock::duration duration,
                          Deadline deadline);

}  // namespace lamina
