// What `lamina bench transport` measures, one case at a time. The same description drives the
// fabrics, their references and the peer's process.
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

// Posts in flight; the default of ucx_perftest's bandwidth tests.
inline constexpr int kBandwidthWindow = 32;

// One fabric, one measure, one size.
struct TransportCase {
  // "shm", "tcp", "ucx" or "verbs"; "socket" is the reference of tcp.
  std::string fabric;
  TransportMeasure measure = TransportMeasure::kLatency;
  uint64_t bytes = 0;  // of one message
  int iterations = 0;  // messages, or round trips, that are timed
  // Messages, or round trips, before those: pages are touched, caches and TCP's window are warm.
  int warm_up = 0;
};

// The case with so many iterations that it takes some 20 ms or more, which is longer than a time
// slice of the scheduler; large messages at least 16.
TransportCase MakeTransportCase(std::string fabric, TransportMeasure measure, uint64_t bytes);

// One run of a case.
struct TransportSample {
  // Latency: half of the median round trip, in us. Bandwidth: GB/s.
  double value = 0;
  // Latency: half of the 99th percentile of round trips. Bandwidth: the mean time per message.
  double p99_us = 0;
};

// "latency" or "bandwidth".
std::string ToText(TransportMeasure measure);
// kInvalidArgument names what there is.
Result<TransportMeasure> ParseTransportMeasure(const std::string& text);

// The sizes to measure, ascending: min_bytes, those of 8, 64, 512, 4 Ki, 64 Ki, 1 Mi and 16 Mi
// bytes that lie between, and max_bytes.
std::vector<uint64_t> TransportSizes(uint64_t min_bytes, uint64_t max_bytes);

// REQUIRES: not empty.
TransportSample LatencySample(const std::vector<double>& round_trip_seconds);
// `seconds` is the time of all iterations.
TransportSample BandwidthSample(const TransportCase& test, double seconds);

// The byte at offset `at` of every message, by which the receiver sees whether it arrived intact.
std::byte TransportPattern(size_t at);

}  // namespace lamina
