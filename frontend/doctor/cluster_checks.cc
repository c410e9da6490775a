#include "frontend/doctor/cluster_checks.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "frontend/cluster_commands.h"
#include "frontend/process.h"

namespace lamina {
namespace {

using nlohmann::json;

constexpr auto kHostDeadline = std::chrono::seconds(60);

std::vector<std::string> HostsOf(const ClusterConfig& config, NodeRole role) {
  std::vector<std::string> hosts;
  for (const NodeConfig& node : config.nodes) {
    if (node.role == role && std::find(hosts.begin(), hosts.end(), node.host) == hosts.end()) hosts.push_back(node.host);
  }
  return hosts;
}

// `lamina doctor ARGUMENTS` on a host, with the PATH searched after the folder of this program.
std::vector<std::string> DoctorOn(const ClusterConfig& config, const std::string& host, const std::string& bin_dir,
                                  const std::vector<std::string>& arguments) {
  const std::string script = "PATH=" + ShellQuote(bin_dir) + ":$PATH exec lamina doctor " + ShellJoin(arguments);
  return CommandOnHost(config, host, script);
}

std::string LastLine(const std::string& text) {
  const size_t end = text.find_last_not_of('\n');
  if (end == std::string::npos) return "";
  const size_t begin = text.find_last_of('\n', end);
  return text.substr(begin + 1, end - begin);
}

Finding Unreachable(const std::string& host, const std::string& why) {
  return {"host", host, Level::kFail, "cannot be asked: " + why,
          "check that `ssh` reaches it without a password and that lamina is installed there at the same path or on the PATH"};
}

std::vector<Finding> AskHost(const ClusterConfig& config, const std::string& host, const ClusterCheckOptions& options) {
  const HostNeeds needs = NeedsOf(config, host);
  std::vector<std::string> arguments = {"--json", "--address", needs.address, "--transport", needs.transport};
  if (needs.fallback) arguments.push_back("--fallback");
  if (needs.is_manager) arguments.push_back("--manager");
  for (const int port : needs.ports) arguments.insert(arguments.end(), {"--port", std::to_string(port)});
  if (!needs.tls.empty()) {
    arguments.insert(arguments.end(), {"--tls-certificate", needs.tls.certificate, "--tls-key", needs.tls.key, "--tls-ca", needs.tls.ca});
  }
  const Result<CommandOutput> output = RunCommand(DoctorOn(config, host, options.bin_dir, arguments), Deadline::After(kHostDeadline));
  if (!output.ok()) return {Unreachable(host, output.status().message())};
  const json report = json::parse(output->out, nullptr, false);
  if (!report.is_object()) return {Unreachable(host, LastLine(output->err.empty() ? output->out : output->err))};
  Result<std::vector<Finding>> findings = FindingsFromJson(report.value("findings", json()));
  if (!findings.ok()) return {Unreachable(host, findings.status().message())};
  for (Finding& finding : *findings) finding.subject = host + " " + finding.subject;
  return *findings;
}

Finding CheckClock(const ClusterConfig& config, const std::string& host) {
  const auto now = [] { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); };
  const double before = now();
  const Result<CommandOutput> output = RunCommand(CommandOnHost(config, host, "date +%s.%N"), Deadline::After(kHostDeadline));
  const double after = now();
  if (!output.ok() || output->exit_status != 0) return Unreachable(host, output.ok() ? LastLine(output->err) : output.status().message());
  return JudgeClock(host, std::atof(output->out.c_str()) - (before + after) / 2, (after - before) / 2);
}

// Runs the answering end on `to` and the measuring one on `from`.
Result<json> ProbePair(const ClusterConfig& config, const std::string& from, const std::string& to, const ClusterCheckOptions& options) {
  const std::string log = (std::filesystem::temp_directory_path() / fmt::format("lamina-probe-{}", getpid())).string();
  std::ofstream(log, std::ios::trunc).close();
  const std::vector<std::string> transport = {"--transport", config.transport};
  std::vector<std::string> arguments = {"--probe-listen", to};
  arguments.insert(arguments.end(), transport.begin(), transport.end());
  if (config.transport_fallback) arguments.push_back("--fallback");
  Result<ChildProcess> answering = ChildProcess::Spawn({DoctorOn(config, to, options.bin_dir, arguments), {}, log});
  if (!answering.ok()) return answering.status().WithContext(to);
  std::string offers;
  const Deadline deadline = Deadline::After(std::chrono::seconds(20));
  constexpr std::string_view kOffers = "offers ";
  while (offers.empty() && answering->running() && !deadline.Passed()) {
    std::ifstream file(log);
    for (std::string line; std::getline(file, line) && !file.eof();) {
      if (line.starts_with(kOffers)) offers = line.substr(kOffers.size());
    }
    if (offers.empty()) std::this_thread::sleep_for(milliseconds(20));
  }
  const std::string said = LastLine(TailOfFile(log, 1));
  std::error_code ignored;
  std::filesystem::remove(log, ignored);
  if (offers.empty()) return InternalError(to + ": the answering end did not start: " + said);
  arguments = {"--json", "--probe-connect", offers, "--probe-seconds",
               fmt::format("{}", std::chrono::duration<double>(options.probe_duration).count())};
  arguments.insert(arguments.end(), transport.begin(), transport.end());
  if (config.transport_fallback) arguments.push_back("--fallback");
  const Result<CommandOutput> output = RunCommand(DoctorOn(config, from, options.bin_dir, arguments), Deadline::After(kHostDeadline));
  if (!output.ok()) return output.status().WithContext(from);
  json report = json::parse(output->out, nullptr, false);
  if (!report.is_object() || output->exit_status != 0) return InternalError(LastLine(output->err.empty() ? output->out : output->err));
  return report;
}

// The MTUs and link rates that the hosts have told, by host.
struct Link {
  int64_t mtu = 0;
  double bits_per_second = 0;
};

Link LinkOf(const std::vector<Finding>& findings) {
  Link link;
  for (const Finding& finding : findings) {
    if (finding.check == "interface-mtu") link.mtu = finding.value;
    if (finding.check == "interface-speed") link.bits_per_second = static_cast<double>(finding.value) * 1e6;
  }
  return link;
}

Finding JudgeMtu(const std::string& a, int64_t mtu_a, const std::string& b, int64_t mtu_b) {
  const bool equal = mtu_a == mtu_b;
  return {"mtu", a + " - " + b, equal ? Level::kOk : Level::kFail,
          equal ? fmt::format("both {}", mtu_a) : fmt::format("{} and {}", mtu_a, mtu_b),
          equal ? "" : "large messages get lost or cut: `ip link set INTERFACE mtu N` with the same N on both, and on the switch"};
}

}  // namespace

HostNeeds NeedsOf(const ClusterConfig& config, const std::string& host) {
  HostNeeds needs;
  needs.address = host;
  needs.transport = config.transport;
  needs.fallback = config.transport_fallback;
  needs.tls = config.tls;
  needs.is_manager = host == config.controller_host;
  for (const NodeConfig& node : config.nodes) {
    if (node.host == host) needs.ports.push_back(node.port);
  }
  return needs;
}

Finding JudgeClock(const std::string& host, double seconds_ahead, double uncertainty) {
  const double off = std::max(0.0, std::abs(seconds_ahead) - uncertainty);
  const Level level = off > 0.5 ? Level::kWarn : Level::kOk;
  return {"clock", host, level, fmt::format("{:+.3f} s against this machine, known to {:.3f} s", seconds_ahead, uncertainty),
          level == Level::kOk ? "" : "logs of the nodes cannot be compared: run chrony or systemd-timesyncd on all hosts"};
}

Finding JudgePair(const std::string& from, const std::string& to, const std::string& fabric, const std::string& refused, double latency_us,
                  double bytes_per_second, double link_bits_per_second) {
  Finding finding{"pair", from + " -> " + to, Level::kOk, "", ""};
  const double bits = bytes_per_second * 8;
  finding.cause = fmt::format("{}: {:.1f} us, {:.3f} Gb/s", fabric, latency_us, bits * 1e-9);
  if (link_bits_per_second > 0 && fabric != "shm") {
    finding.cause += fmt::format(", {:.0f} % of the link's {:.0f} Gb/s", 100 * bits / link_bits_per_second, link_bits_per_second * 1e-9);
    if (bits < 0.5 * link_bits_per_second && fabric != "tcp") {
      finding.level = Level::kWarn;
      finding.fix = "less than half of the link: check MTU, PCIe width (pcie-width) and the switch port";
    }
  }
  if (!refused.empty()) finding.cause += "; not used: " + refused;
  return finding;
}

std::vector<Finding> CheckCluster(const ClusterConfig& config, const ClusterCheckOptions& options) {
  std::vector<Finding> all;
  std::map<std::string, Link> links;
  const auto say = [&](const std::string& line) {
    if (options.progress) options.progress(line);
  };
  const std::vector<std::string> compute = HostsOf(config, NodeRole::kCompute), memory = HostsOf(config, NodeRole::kMemory);
  for (const std::vector<std::string>* hosts : {&compute, &memory}) {
    for (const std::string& host : *hosts) {
      if (links.contains(host)) continue;
      say("asking " + host);
      const std::vector<Finding> findings = AskHost(config, host, options);
      links[host] = LinkOf(findings);
      all.insert(all.end(), findings.begin(), findings.end());
      all.push_back(CheckClock(config, host));
    }
  }
  if (!links.contains(config.controller_host)) {  // the manager's own machine, which is this one, as for `lamina cluster up`
    for (Finding& finding : CheckTls(NeedsOf(config, config.controller_host))) {
      finding.subject = config.controller_host + " " + finding.subject;
      all.push_back(std::move(finding));
    }
  }
  for (const std::string& from : compute) {
    for (const std::string& to : memory) {
      const Link &a = links[from], &b = links[to];
      if (a.mtu > 0 && b.mtu > 0 && from != to) all.push_back(JudgeMtu(from, a.mtu, to, b.mtu));
      const double rate = a.bits_per_second > 0 && b.bits_per_second > 0 ? std::min(a.bits_per_second, b.bits_per_second) : 0;
      for (const auto& [source, target] : {std::pair(from, to), std::pair(to, from)}) {
        say("measuring " + source + " -> " + target);
        const Result<json> probe = ProbePair(config, source, target, options);
        if (probe.ok()) {
          all.push_back(JudgePair(source, target, probe->value("fabric", ""), probe->value("refused", ""), probe->value("latency_us", 0.0),
                                  probe->value("bytes_per_second", 0.0), rate));
        } else {
          all.push_back({"pair", source + " -> " + target, Level::kFail, probe.status().message(),
                         "check that a firewall lets the nodes reach each other on any port"});
        }
        if (from == to) break;
      }
    }
  }
  return all;
}

}  // namespace lamina
