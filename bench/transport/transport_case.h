// What `lamina bench transport` measures, one case at a time: the same description drives our
// fabrics, the references and the peer's process.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace lamina {

enum class TransportMeasure : uint8_t {
  kLatency,    // us, half of a round trip
  kBandwidth,  // GB/s (10^9), one direction
};

// Posts under way at once; the default of ucx_perftest's bandwidth tests.
inline constexpr int kBandwidthWindow = 32;

struct TransportCase {
  std::string fabric;  // "shm", ...; "socket" is the reference of tcp
  TransportMeasure measure = TransportMeasure::kLatency;
  uint64_t bytes = 0;  // of one message
  int iterations = 0;  // messages that are timed, or round trips
  // As many before, untimed: pages are touched, caches and TCP's window are warm.
  int warm_up = 0;
};

// With iterations so that a case takes some 20 ms or more: longer than a time slice of the
// scheduler, or 16 messages if they are large.
TransportCase MakeTransportCase(std::string fabric, TransportMeasure measure, uint64_t bytes);

struct TransportSample {
  double value = 0;  // latency: the median round trip's half
  // Latency: of single round trips, the half; bandwidth: time per message, on average.
  double p99_us = 0;
};

// "latency" and "bandwidth".
std::string ToText(TransportMeasure measure);
Result<TransportMeasure> ParseTransportMeasure(const std::string& text);

// The sizes to measure: 8, 64, 512, 4 Ki, 64 Ki, 1 Mi and 16 Mi bytes as far as they lie within
// [min_bytes, max_bytes], and these ends.
std::vector<uint64_t> TransportSizes(uint64_t min_bytes, uint64_t max_bytes);

// From seconds per round trip. REQUIRES: not empty.
TransportSample LatencySample(const std::vector<double>& round_trip_seconds);
TransportSample BandwidthSample(const TransportCase& test, double seconds);

// What is sent: any message that arrives must look like this.
std::byte TransportPattern(size_t at);

}  // namespace lamina
