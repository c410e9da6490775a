#include "bench/transport/transport_case.h"

#include <algorithm>
#include <array>

#include "bench/report.h"
#include "plan/statistics.h"

namespace lamina {
namespace {

constexpr std::array<uint64_t, 7> kSizes = {
    8, 64, 512, 4096, uint64_t{64} << 10, uint64_t{1} << 20, uint64_t{16} << 20};
// Bytes of one run, within the limits on the number of messages.
constexpr uint64_t kBandwidthBytes = uint64_t{512} << 20;
constexpr uint64_t kMinMessages = 16;
constexpr uint64_t kMaxMessages = 100'000;
constexpr int kRoundTrips = 10'000;

}  // namespace

TransportCase MakeTransportCase(std::string fabric, TransportMeasure measure, uint64_t bytes) {
  TransportCase test;
  test.fabric = std::move(fabric);
  test.measure = measure;
  test.bytes = bytes;
  test.iterations =
      measure == TransportMeasure::kLatency
          ? kRoundTrips
          : static_cast<int>(std::clamp(kBandwidthBytes / std::max<uint64_t>(bytes, 1),
                                        kMinMessages, kMaxMessages));
  test.warm_up = test.iterations / 10 + 1;
  return test;
}

std::string ToText(TransportMeasure measure) {
  return measure == TransportMeasure::kLatency ? "latency" : "bandwidth";
}

Result<TransportMeasure> ParseTransportMeasure(const std::string& text) {
  if (text == "latency") return TransportMeasure::kLatency;
  if (text == "bandwidth") return TransportMeasure::kBandwidth;
  return InvalidArgument("measure \"" + text +
                         "\" does not exist; there are latency and bandwidth");
}

std::vector<uint64_t> TransportSizes(uint64_t min_bytes, uint64_t max_bytes) {
  std::vector<uint64_t> sizes = {min_bytes};
  for (const uint64_t bytes : kSizes) {
    if (bytes > min_bytes && bytes < max_bytes) sizes.push_back(bytes);
  }
  if (max_bytes > min_bytes) sizes.push_back(max_bytes);
  return sizes;
}

TransportSample LatencySample(const std::vector<double>& round_trip_seconds) {
  return {Percentile(round_trip_seconds, 0.5) / 2 * 1e6,
          Percentile(round_trip_seconds, 0.99) / 2 * 1e6};
}

TransportSample BandwidthSample(const TransportCase& test, double seconds) {
  return {static_cast<double>(test.bytes) * test.iterations / seconds / 1e9,
          seconds / test.iterations * 1e6};
}

std::byte TransportPattern(size_t at) { return static_cast<std::byte>(at * 131 + (at >> 8) + 7); }

}  // namespace lamina
