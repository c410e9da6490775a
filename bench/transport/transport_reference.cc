#include "bench/transport/transport_reference.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <fstream>
#include <optional>
#include <sstream>
#include <vector>

#include "manager/process.h"
#include "transport/posix.h"

namespace lamina {
namespace {

constexpr auto kStartDeadline = std::chrono::seconds(20);
constexpr auto kReferenceDeadline = std::chrono::minutes(2);
constexpr char kShmTransports[] = "posix,sysv,self,cma";
constexpr double kMiB = 1 << 20;

using Environment = std::vector<std::pair<std::string, std::string>>;

std::vector<std::string> Split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  std::istringstream in{std::string(text)};
  for (std::string part; std::getline(in, part, separator);) parts.push_back(part);
  return parts;
}

std::optional<double> Number(const std::string& text) {
  std::istringstream in(text);
  double value;
  if (!(in >> value) || value <= 0) return std::nullopt;
  return value;
}

Status NoResult(std::string_view program, std::string_view output) {
  return InternalError(std::string(program) + " printed no result: \"" +
                       std::string(output.substr(0, 300)) + "\"");
}

// A port that is free at this moment.
Result<int> FreePort() {
  const UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  socklen_t size = sizeof(address);
  address.sin_family = AF_INET;
  auto* any = reinterpret_cast<sockaddr*>(&address);
  if (!fd.valid() || bind(fd.get(), any, size) != 0 || getsockname(fd.get(), any, &size) != 0)
    return InternalError(ErrnoText("bind"));
  return ntohs(address.sin_port);
}

// Whether a process listens at the port. It is not found out by connecting: the programs take the
// first connection for their peer.
bool IsListening(int port) {
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream in(table);
    std::string line;
    std::getline(in, line);  // the heading
    while (std::getline(in, line)) {
      std::istringstream fields(line);
      std::string slot, local, remote, state;
      fields >> slot >> local >> remote >> state;
      const size_t colon = local.rfind(':');
      if (state == "0A" && colon != std::string::npos &&
          std::stoi(local.substr(colon + 1), nullptr, 16) == port)
        return true;
    }
  }
  return false;
}

Status WaitUntilListening(ChildProcess& server, int port, const std::string& program) {
  const Deadline deadline = Deadline::After(kStartDeadline);
  while (!IsListening(port)) {
    if (!server.running())
      return InternalError(program + " (server) " + server.exit_description() +
                           " before it listened");
    if (deadline.Passed()) return TimedOut(program + " (server) does not listen after 20 s");
    PauseBeforeRetry(deadline);
  }
  return OkStatus();
}

Environment EnvironmentOf(const TransportCase& test) {
  if (test.fabric == "shm") return {{"UCX_TLS", kShmTransports}};
  return {};
}

std::string UcxTest(const TransportCase& test) {
  return test.measure == TransportMeasure::kLatency ? "ucp_put_lat" : "ucp_put_bw";
}

// The arguments that both ends get.
std::vector<std::string> CommonArguments(const TransportCase& test, const std::string& program,
                                         int port) {
  if (program == "ucx_perftest") return {program, "-p", std::to_string(port)};
  std::vector<std::string> argv = {program,
                                   "-p",
                                   std::to_string(port),
                                   "-s",
                                   std::to_string(test.bytes),
                                   "-n",
                                   std::to_string(test.iterations)};
  if (test.measure == TransportMeasure::kBandwidth) {
    argv.insert(argv.end(), {"-t", std::to_string(kBandwidthWindow), "--report_gbits"});
  }
  return argv;
}

std::vector<std::string> ClientArguments(const TransportCase& test, std::vector<std::string> argv,
                                         const std::string& host) {
  if (argv.front() == "ucx_perftest") {
    argv.insert(argv.end(), {"-t", UcxTest(test), "-s", std::to_string(test.bytes), "-n",
                             std::to_string(test.iterations), "-w", std::to_string(test.warm_up),
                             "-O", std::to_string(kBandwidthWindow), "-f", "-v", "-R", "50"});
  }
  argv.push_back(host);
  Environment environment = EnvironmentOf(test);
  for (auto& [name, value] : environment) argv.insert(argv.begin(), name + "=" + value);
  if (!environment.empty()) argv.insert(argv.begin(), "env");
  return argv;
}

}  // namespace

bool HasReference(std::string_view fabric) {
  return fabric == "shm" || fabric == "ucx" || fabric == "verbs";
}

ReferenceProgram ReferenceOf(const TransportCase& test) {
  if (test.fabric == "verbs") {
    const std::string program =
        test.measure == TransportMeasure::kLatency ? "ib_write_lat" : "ib_write_bw";
    return {program, program, "perftest"};
  }
  std::string name = "ucx_perftest " + UcxTest(test);
  if (test.fabric == "shm") name += std::string(", UCX_TLS=") + kShmTransports;
  return {name, "ucx_perftest", "ucx-utils"};
}

Result<double> RunReference(const TransportCase& test, const std::string& host) {
  const ReferenceProgram reference = ReferenceOf(test);
  LAMINA_ASSIGN_OR_RETURN(const int port, FreePort());
  const std::vector<std::string> common = CommonArguments(test, reference.program, port);
  Result<ChildProcess> server =
      ChildProcess::Spawn({.argv = common, .env = EnvironmentOf(test), .log_path = ""});
  if (server.status().code() == StatusCode::kNotFound) {
    return NotFound(reference.program + " is not installed; apt-get install " + reference.package +
                    " has it");
  }
  if (!server.ok()) return server.status();
  LAMINA_RETURN_IF_ERROR(WaitUntilListening(*server, port, reference.program));
  LAMINA_ASSIGN_OR_RETURN(
      const CommandOutput output,
      RunCommand(ClientArguments(test, common, host), Deadline::After(kReferenceDeadline)));
  if (output.exit_status != 0)
    return NoResult(reference.program, output.err.empty() ? output.out : output.err);
  if (reference.program == "ucx_perftest") return ParseUcxPerftest(output.out, test.measure);
  return ParseIbPerftest(output.out, test.measure, test.bytes);
}

Result<double> ParseUcxPerftest(std::string_view output, TransportMeasure measure) {
  // The output has a heading, a line of units, and lines of values:
  //
  //   iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr
  //   20000,0.360,22.588,122.628,0.34,0.06,44271,8155
  //
  // Latencies are in us, bandwidths in MiB/s.
  const std::vector<std::string> lines = Split(output, '\n');
  for (size_t i = 0; i + 1 < lines.size(); ++i) {
    if (!lines[i].starts_with("iterations,")) continue;
    const std::vector<std::string> heading = Split(lines[i], ','),
                                   values = Split(lines[i + 1], ',');
    for (size_t column = 0; column < heading.size() && column < values.size(); ++column) {
      const bool wanted = measure == TransportMeasure::kLatency
                              ? heading[column].ends_with("percentile_lat")
                              : heading[column] == "overall_bw";
      const std::optional<double> value = wanted ? Number(values[column]) : std::nullopt;
      if (value) return measure == TransportMeasure::kLatency ? *value : *value * kMiB / 1e9;
    }
  }
  return NoResult("ucx_perftest", output);
}

Result<double> ParseIbPerftest(std::string_view output, TransportMeasure measure, uint64_t bytes) {
  // Columns of the two headings, of which t_typical is the median:
  //
  //   #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]  t_avg[usec] ...
  //   #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
  constexpr size_t kTypical = 4, kAverage = 3;
  bool after_heading = false;
  for (const std::string& line : Split(output, '\n')) {
    std::istringstream in(line);
    std::vector<std::string> fields;
    for (std::string field; in >> field;) fields.push_back(field);
    const bool gbits =
        measure == TransportMeasure::kLatency || line.find("[Gb/sec]") != std::string::npos;
    if (!fields.empty() && fields[0] == "#bytes") after_heading = gbits;
    const size_t column = measure == TransportMeasure::kLatency ? kTypical : kAverage;
    if (!after_heading || fields.size() <= column || fields[0] != std::to_string(bytes)) continue;
    const std::optional<double> value = Number(fields[column]);
    if (value) return measure == TransportMeasure::kLatency ? *value : *value / 8;
  }
  return NoResult("ib_write", output);
}

}  // namespace lamina
