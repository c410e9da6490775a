#include "bench/transport/transport.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <memory>

#include "base/net_address.h"
#include "base/units.h"
#include "bench/report.h"
#include "bench/transport/socket_reference.h"
#include "bench/transport/transport_reference.h"
#include "bench/transport/transport_run.h"
#include "cli/commands.h"
#include "plan/statistics.h"

namespace lamina {
namespace {

constexpr uint64_t kMaxLatencyBytes = uint64_t{64} << 10;
// Both ends of a measurement print their errors to the same terminal, and under the same name.
constexpr char kName[] = "lamina bench transport";
constexpr char kSocket[] = "socket";
constexpr char kSocketReference[] = "plain non-blocking socket, TCP_NODELAY, polled";

// The fabrics that join two processes.
constexpr std::string_view kMeasured[] = {"shm", "tcp", "ucx", "verbs"};

struct TransportOptions {
  std::vector<std::string> fabrics{std::begin(kMeasured), std::end(kMeasured)};
  std::string host = "127.0.0.1";
  uint64_t min_bytes = 8;
  uint64_t max_bytes = uint64_t{16} << 20;
  int repeats = 5;
  bool json = false;
};

struct PeerOptions {
  std::string fabric;
  std::string address;
  std::string measure;
  uint64_t bytes = 0;
};

Result<ChildProcess> SpawnPeerProcess(const TransportCase& test, const std::string& address) {
  ChildProcess::Options options;
  options.argv = {ProgramFolder() + "/lamina",
                  "bench",
                  "transport-peer",
                  test.fabric,
                  address,
                  ToText(test.measure),
                  std::to_string(test.bytes)};
  options.log_path = "/dev/stderr";
  return ChildProcess::Spawn(options);
}

std::string ListenAddress(const Fabric& fabric, const std::string& host) {
  static int counter = 0;
  if (fabric.name() != "shm") return BracketedHost(host) + ":0";
  return "bench-" + std::to_string(getpid()) + "-" + std::to_string(++counter);
}

Result<double> MeasureReference(const TransportCase& test, const TransportOptions& options) {
  if (HasReference(test.fabric)) return RunReference(test, options.host);
  TransportCase socket = test;
  socket.fabric = kSocket;
  LAMINA_ASSIGN_OR_RETURN(
      const TransportSample sample,
      RunOverSocket(socket, BracketedHost(options.host) + ":0", SpawnPeerProcess));
  return sample.value;
}

// Measures ours and the reference in turn, so that a machine whose speed drifts does not decide the
// ratio, which is the median over the pairs.
Result<Measurement> MeasureCase(Fabric& fabric, const TransportCase& test,
                                const TransportOptions& options) {
  const bool is_time = test.measure == TransportMeasure::kLatency;
  std::vector<double> ours, p99, reference, ratios;
  Measurement m;
  for (int i = 0; i < options.repeats; ++i) {
    LAMINA_ASSIGN_OR_RETURN(
        const TransportSample sample,
        RunOverFabric(fabric, test, ListenAddress(fabric, options.host), SpawnPeerProcess));
    ours.push_back(sample.value);
    p99.push_back(sample.p99_us);
    if (!m.note.empty()) continue;  // the reference is not there; one try is enough
    const Result<double> other = MeasureReference(test, options);
    if (!other.ok()) {
      m.note = other.status().message();
      continue;
    }
    reference.push_back(*other);
    ratios.push_back(is_time ? *other / sample.value : sample.value / *other);
  }
  m.name = "transport_" + ToText(test.measure);
  m.sizes = {{"fabric", test.fabric},
             {"bytes", test.bytes},
             {"iterations", test.iterations},
             {"repeats", options.repeats}};
  if (!is_time) m.sizes["window"] = kBandwidthWindow;
  m.value = Percentile(ours, 0.5);
  m.unit = is_time ? "us" : "GB/s";
  m.p99 = Percentile(p99, is_time ? 0.5 : 0.99);
  m.p99_of = is_time ? "us, half of a round trip" : "us per message, over repeats";
  if (!m.note.empty()) return m;
  m.reference = HasReference(test.fabric) ? ReferenceOf(test).name : kSocketReference;
  m.reference_value = Percentile(reference, 0.5);
  m.ratio = Percentile(ratios, 0.5);
  return m;
}

std::string TableHeading() {
  return fmt::format("{:8} {:9} {:>9} {:>11} {:>11} {:>7} {:>10}  {}", "fabric", "measure", "bytes",
                     "value", "reference", "ratio", "p99 us", "reference is");
}

std::string TableRow(const TransportCase& test, const Measurement& m) {
  const bool has = m.note.empty();
  return fmt::format("{:8} {:9} {:>9} {:>11} {:>11} {:>7} {:>10.2f}  {}", test.fabric,
                     ToText(test.measure), test.bytes, fmt::format("{:.3f} {}", m.value, m.unit),
                     has ? fmt::format("{:.3f} {}", m.reference_value, m.unit) : "-",
                     has ? fmt::format("{:.2f}", m.ratio) : "-", m.p99,
                     has ? m.reference : "none: " + m.note);
}

Status MeasureFabric(Fabric& fabric, const TransportOptions& options) {
  for (const TransportMeasure measure :
       {TransportMeasure::kLatency, TransportMeasure::kBandwidth}) {
    for (const uint64_t bytes : TransportSizes(options.min_bytes, options.max_bytes)) {
      if (measure == TransportMeasure::kLatency && bytes > kMaxLatencyBytes) continue;
      const TransportCase test = MakeTransportCase(std::string(fabric.name()), measure, bytes);
      LAMINA_ASSIGN_OR_RETURN(const Measurement m, MeasureCase(fabric, test, options));
      std::cout << (options.json ? ToJsonLine(m) : TableRow(test, m)) << std::endl;
    }
  }
  return OkStatus();
}

Status Measure(const TransportOptions& options, bool all_that_exist) {
  if (options.max_bytes < options.min_bytes)
    return InvalidArgument("--max-bytes is below --min-bytes");
  for (const std::string& kind : options.fabrics) {
    if (std::find(std::begin(kMeasured), std::end(kMeasured), kind) == std::end(kMeasured))
      return InvalidArgument(
          "fabric \"" + kind +
          "\" does not exist, or joins no two processes; there are shm, tcp, ucx and verbs");
  }
  if (!options.json) std::cout << TableHeading() << std::endl;
  for (const std::string& kind : options.fabrics) {
    const Result<std::unique_ptr<Fabric>> fabric = OpenFabric(kind);
    if (!fabric.ok() && !all_that_exist) return fabric.status();
    if (!fabric.ok()) {
      std::cerr << "skipped " << kind << ": " << fabric.status().message() << '\n';
      continue;
    }
    LAMINA_RETURN_IF_ERROR(MeasureFabric(**fabric, options).WithContext(kind));
  }
  return OkStatus();
}

Status Serve(const PeerOptions& options) {
  LAMINA_ASSIGN_OR_RETURN(const TransportMeasure measure, ParseTransportMeasure(options.measure));
  const TransportCase test = MakeTransportCase(options.fabric, measure, options.bytes);
  return options.fabric == kSocket ? ServeOverSocket(test, options.address)
                                   : ServeOverFabric(test, options.address);
}

}  // namespace

void RegisterTransport(CLI::App& app) {
  auto options = std::make_shared<TransportOptions>();
  CLI::App* command = app.add_subcommand(
      "transport",
      "Latency and bandwidth of every fabric that this machine has, beside their references");
  command->footer(
      "Two processes that never sleep: keep two cores free. Latency is half of a round trip, "
      "bandwidth is one direction with 32 posts\n"
      "under way; values are medians over interleaved repeats, and a ratio of 1 is par with the "
      "reference, more is better.\n"
      "References: ucx_perftest (package ucx-utils), ib_write_lat and ib_write_bw (package "
      "perftest), plain sockets for tcp.\n"
      "Example:\n  lamina bench transport --fabric shm,tcp --max-bytes 1MiB");
  CLI::Option* fabric = command->add_option("--fabric", options->fabrics, "which, with commas")
                            ->delimiter(',')
                            ->capture_default_str();
  command
      ->add_option("--host", options->host,
                   "address of this machine that all but shm connect through")
      ->capture_default_str();
  const auto add_size = [command](const std::string& name, uint64_t& into,
                                  const std::string& help) {
    command->add_option_function<std::string>(
        name,
        [name, &into](const std::string& text) {
          const Result<int64_t> bytes = ParseSize(text);
          if (!bytes.ok() || *bytes < 1)
            throw CLI::ValidationError(
                name, bytes.ok() ? "must be at least 1" : bytes.status().message());
          into = static_cast<uint64_t>(*bytes);
        },
        help);
  };
  add_size("--min-bytes", options->min_bytes, "smallest message [8]");
  add_size("--max-bytes", options->max_bytes,
           "largest message [16MiB]; latency is measured up to 64 KiB");
  command->add_option("--repeats", options->repeats, "of each case and its reference in turn")
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  command->add_flag("--json", options->json, "one JSON line per case instead of a table");
  OnRun(*command, kName,
        [options, fabric] { return Measure(*options, /*all_that_exist=*/fabric->count() == 0); });

  auto peer = std::make_shared<PeerOptions>();
  CLI::App* serve =
      app.add_subcommand("transport-peer", "the peer's process of `transport`")->group("");
  serve->add_option("fabric", peer->fabric)->required();
  serve->add_option("address", peer->address)->required();
  serve->add_option("measure", peer->measure)->required();
  serve->add_option("bytes", peer->bytes)->required();
  OnRun(*serve, kName, [peer] { return Serve(*peer); });
}

}  // namespace lamina
