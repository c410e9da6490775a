#include "cli/doctor/cluster_checks.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "api/http_client.h"
#include "cli/cluster_daemons.h"
#include "cli/cluster_state.h"
#include "cli/cluster_status.h"
#include "cli/doctor/planned_memory.h"
#include "manager/cluster_commands.h"
#include "manager/process.h"
#include "manager/resolve_config.h"

namespace lamina {
namespace {

using nlohmann::json;

constexpr auto kHostDeadline = std::chrono::seconds(60);

// Of this run, the same for all hosts.
const std::string& SecretNonce() {
  static const std::string nonce = [] {
    std::random_device device;
    return fmt::format("{:08x}{:08x}", device(), device());
  }();
  return nonce;
}

std::vector<std::string> HostsOf(const ClusterConfig& config, NodeRole role) {
  std::vector<std::string> hosts;
  for (const NodeConfig& node : config.daemons()) {
    if (node.role == role && std::find(hosts.begin(), hosts.end(), node.host) == hosts.end())
      hosts.push_back(node.host);
  }
  return hosts;
}

// `lamina doctor ARGUMENTS` on a host, with the PATH searched after the folder of this program.
std::vector<std::string> DoctorOn(const ClusterConfig& config, const std::string& host,
                                  const std::string& bin_dir,
                                  const std::vector<std::string>& arguments) {
  const std::string script =
      "PATH=" + ShellQuote(bin_dir) + ":$PATH exec lamina doctor " + ShellJoin(arguments);
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
          "check that `ssh` reaches it without a password and that lamina is installed there at "
          "the same path or on the PATH"};
}

std::vector<Finding> AskHost(const ClusterConfig& config, const HostNeeds& needs,
                             const ClusterCheckOptions& options) {
  const std::string& host = needs.address;
  std::vector<std::string> arguments = {"--json", "--address", needs.address, "--transport",
                                        std::string(TransportKindName(needs.transport))};
  if (needs.fallback) arguments.push_back("--fallback");
  if (needs.is_manager) arguments.push_back("--manager");
  arguments.insert(arguments.end(), {"--registered-bytes", std::to_string(needs.registered_bytes),
                                     "--memory-bytes", std::to_string(needs.memory_bytes)});
  if (!needs.secret_file.empty()) {
    arguments.insert(arguments.end(),
                     {"--secret-file", needs.secret_file, "--secret-nonce", needs.secret_nonce});
  }
  for (const int port : needs.ports)
    arguments.insert(arguments.end(), {"--port", std::to_string(port)});
  if (!needs.tls.empty()) {
    arguments.insert(arguments.end(), {"--tls-certificate", needs.tls.certificate, "--tls-key",
                                       needs.tls.key, "--tls-ca", needs.tls.ca});
  }
  const Result<CommandOutput> output = RunCommand(
      DoctorOn(config, host, options.bin_dir, arguments), Deadline::After(kHostDeadline));
  if (output.status().code() == StatusCode::kTimeout)
    return {Unreachable(host, "no answer within 60 s")};
  if (!output.ok()) return {Unreachable(host, output.status().message())};
  // A login shell may greet before.
  const json report = json::parse(LastLine(output->out), nullptr, false);
  if (!report.is_object())
    return {Unreachable(host, LastLine(output->err.empty() ? output->out : output->err))};
  Result<std::vector<Finding>> findings = FindingsFromJson(report.value("findings", json()));
  if (!findings.ok()) return {Unreachable(host, findings.status().message())};
  for (Finding& finding : *findings) finding.subject = host + " " + finding.subject;
  return *findings;
}

Finding CheckClock(const ClusterConfig& config, const std::string& host) {
  const auto now = [] {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch())
        .count();
  };
  const double before = now();
  const Result<CommandOutput> output =
      RunCommand(CommandOnHost(config, host, "date +%s.%N"), Deadline::After(kHostDeadline));
  const double after = now();
  if (!output.ok() || output->exit_status != 0)
    return Unreachable(host, output.ok() ? LastLine(output->err) : output.status().message());
  return JudgeClock(host, std::atof(output->out.c_str()) - (before + after) / 2,
                    (after - before) / 2);
}

// Runs the answering end on `to` and the measuring one on `from`.
Result<json> ProbePair(const ClusterConfig& config, const std::string& from, const std::string& to,
                       const ClusterCheckOptions& options) {
  const std::string log =
      (std::filesystem::temp_directory_path() / fmt::format("lamina-probe-{}", getpid())).string();
  std::ofstream(log, std::ios::trunc).close();
  const std::vector<std::string> transport = {"--transport",
                                              std::string(TransportKindName(config.transport))};
  std::vector<std::string> arguments = {"--probe-listen", to};
  arguments.insert(arguments.end(), transport.begin(), transport.end());
  if (config.transport_fallback) arguments.push_back("--fallback");
  Result<ChildProcess> answering =
      ChildProcess::Spawn({DoctorOn(config, to, options.bin_dir, arguments), {}, log});
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
  const Result<CommandOutput> output = RunCommand(
      DoctorOn(config, from, options.bin_dir, arguments), Deadline::After(kHostDeadline));
  if (!output.ok()) return output.status().WithContext(from);
  json report = json::parse(LastLine(output->out), nullptr, false);
  if (!report.is_object() || output->exit_status != 0)
    return InternalError(LastLine(output->err.empty() ? output->out : output->err));
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
    if (finding.check == "interface-speed")
      link.bits_per_second = static_cast<double>(finding.value) * 1e6;
  }
  return link;
}

// Where the manager will listen on this machine, `where` for people. `key` in the YAML has the
// port.
Finding CheckManagerPort(const ClusterConfig& config, int port, const std::string& check,
                         const std::string& where, const std::string& key) {
  if (!CanConnect(config.controller_host, port, std::chrono::seconds(1)))
    return {check, where, Level::kOk, "free", ""};
  if (AskManager(config).reachable)
    return {check, where, Level::kOk, "a manager of lamina runs", ""};
  return {check, where, Level::kFail, "something else listens there",
          "stop it, or change cluster." + key};
}

// What nodes and RDMA will take of each host's memory, if the model is here to tell; else as
// without a cluster.
void PlanMemory(ClusterConfig config, const std::string& host, HostNeeds& needs) {
  const Result<ModelConfig> model = config.LoadModel();
  if (!model.ok() || !ResolveConfig(config, *model).ok()) return;
  const Result<View> view = ViewOf(config, *model);
  if (!view.ok()) return;
  needs.registered_bytes = PlannedLockedBytes(config, *model, *view, host);
  needs.memory_bytes = PlannedBytes(config, *model, host);
}

// Where nodes of this cluster listen now: those that its manager has, and those that `lamina
// cluster up` has started.
std::set<std::string> OwnAddresses(const ClusterConfig& config) {
  std::set<std::string> own;
  const json status = json::parse(AskManager(config).status_json, nullptr, false);
  for (const json& node :
       status.is_object() ? status.value("nodes", json::array()) : json::array()) {
    if (node.value("state", json()) != json("lost")) own.insert(node.value("address", ""));
  }
  const Result<ClusterState> state = ReadClusterState(config.name);
  const Result<std::vector<bool>> running =
      state.ok() ? FindDaemons(config, state->daemons) : Result<std::vector<bool>>(state.status());
  for (size_t i = 0; running.ok() && i < running->size(); ++i) {
    for (const NodeConfig& node : config.daemons()) {
      if ((*running)[i] && node.name == state->daemons[i].name)
        own.insert(ClusterConfig::Address(node));
    }
  }
  return own;
}

Finding JudgeMtu(const std::string& a, int64_t mtu_a, const std::string& b, int64_t mtu_b) {
  const bool equal = mtu_a == mtu_b;
  return {"mtu", a + " - " + b, equal ? Level::kOk : Level::kFail,
          equal ? fmt::format("both {}", mtu_a) : fmt::format("{} and {}", mtu_a, mtu_b),
          equal ? ""
                : "large messages get lost or cut: `ip link set INTERFACE mtu N` with the same N "
                  "on both, and on the switch"};
}

Finding MeasurePair(const ClusterConfig& config, const std::string& from, const std::string& to,
                    double link_bits_per_second, const ClusterCheckOptions& options) {
  const Result<json> probe = ProbePair(config, from, to, options);
  if (!probe.ok()) {
    return {"pair", from + " -> " + to, Level::kFail, probe.status().message(),
            "check that a firewall lets the nodes reach each other on any port"};
  }
  return JudgePair({from, to, probe->value("fabric", ""), probe->value("through", ""),
                    probe->value("refused", ""), probe->value("latency_us", 0.0),
                    probe->value("bytes_per_second", 0.0), link_bits_per_second});
}

}  // namespace

HostNeeds NeedsOf(const ClusterConfig& config, const std::string& host) {
  HostNeeds needs;
  needs.address = host;
  needs.transport = config.transport;
  needs.fallback = config.transport_fallback;
  needs.tls = config.tls;
  needs.secret_file = config.secret_file;
  needs.secret_nonce = SecretNonce();
  needs.is_manager = host == config.controller_host;
  for (const NodeConfig& node : config.daemons()) {
    if (node.host == host) needs.ports.push_back(node.port);
  }
  PlanMemory(config, host, needs);
  return needs;
}

std::vector<std::pair<std::string, std::string>> PairsOf(const ClusterConfig& config) {
  const std::vector<std::string> compute = HostsOf(config, NodeRole::kCompute),
                                 memory = HostsOf(config, NodeRole::kMemory);
  std::vector<std::pair<std::string, std::string>> pairs;
  const auto add = [&](const std::string& from, const std::string& to) {
    const bool known = std::find(pairs.begin(), pairs.end(), std::pair(from, to)) != pairs.end() ||
                       std::find(pairs.begin(), pairs.end(), std::pair(to, from)) != pairs.end();
    if (!known) pairs.emplace_back(from, to);
  };
  for (const std::string& from : compute) {
    for (const std::string& to : memory) add(from, to);
  }
  for (size_t i = 0; i < compute.size(); ++i) {
    for (size_t j = 0; j < i; ++j) add(compute[j], compute[i]);
  }
  return pairs;
}

Finding JudgeClock(const std::string& host, double seconds_ahead, double uncertainty) {
  const double off = std::max(0.0, std::abs(seconds_ahead) - uncertainty);
  const Level level = off > 0.5 ? Level::kWarn : Level::kOk;
  return {
      "clock", host, level,
      fmt::format("{:+.3f} s against this machine, known to {:.3f} s", seconds_ahead, uncertainty),
      level == Level::kOk
          ? ""
          : "logs of the nodes cannot be compared: run chrony or systemd-timesyncd on all hosts"};
}

Finding JudgePair(const MeasuredPair& pair) {
  Finding finding{"pair", pair.from + " -> " + pair.to, Level::kOk, "", ""};
  const double bits = pair.bytes_per_second * 8, link = pair.link_bits_per_second;
  finding.cause = fmt::format("{}{}: {:.{}f} us, {:.3f} Gb/s", pair.fabric,
                              pair.through.empty() ? "" : " (" + pair.through + ")",
                              pair.latency_us, pair.latency_us < 1 ? 2 : 1, bits * 1e-9);
  if (link > 0 && pair.fabric != "shm") {
    finding.cause +=
        fmt::format(", {:.0f} % of the link's {:.0f} Gb/s", 100 * bits / link, link * 1e-9);
    if (bits < 0.5 * link && pair.fabric != "tcp") {
      finding.level = Level::kWarn;
      finding.fix =
          "less than half of the link: check MTU, PCIe width (pcie-width) and the switch port";
    }
  }
  if (!pair.refused.empty()) finding.cause += "; not used: " + pair.refused;
  return finding;
}

std::vector<Finding> JudgeSecrets(const std::vector<std::pair<std::string, int64_t>>& values) {
  std::vector<Finding> findings;
  const std::pair<std::string, int64_t>* first = nullptr;
  for (const auto& entry : values) {
    if (entry.second == 0) continue;
    if (first == nullptr) first = &entry;
    if (entry.second == first->second) continue;
    findings.push_back(
        {"secret", entry.first, Level::kFail, "is another secret than on " + first->first,
         "copy the file from one host to all others: nodes with another secret are refused"});
  }
  return findings;
}

void ExcuseOwnPorts(const std::set<std::string>& own, std::vector<Finding>& findings) {
  for (Finding& finding : findings) {
    // After the host.
    const std::string address = finding.subject.substr(finding.subject.rfind(' ') + 1);
    if (finding.check != "port" || finding.level != Level::kWarn || !own.contains(address))
      continue;
    finding = {finding.check, finding.subject, Level::kOk, "in use by this cluster, which is up",
               ""};
  }
}

std::vector<Finding> CheckCluster(const ClusterConfig& config, const ClusterCheckOptions& options) {
  std::vector<Finding> all;
  std::map<std::string, Link> links;
  std::vector<std::pair<std::string, int64_t>> secrets;
  std::set<std::string> unreachable;
  const auto take = [&](const std::string& host, const std::vector<Finding>& findings) {
    for (const Finding& finding : findings) {
      if (finding.check == "secret") secrets.emplace_back(host, finding.value);
    }
    all.insert(all.end(), findings.begin(), findings.end());
  };
  const auto say = [&](const std::string& line) {
    if (options.progress) options.progress(line);
  };
  const std::vector<std::string> compute = HostsOf(config, NodeRole::kCompute),
                                 memory = HostsOf(config, NodeRole::kMemory);
  for (const std::vector<std::string>* hosts : {&compute, &memory}) {
    for (const std::string& host : *hosts) {
      if (links.contains(host)) continue;
      say("asking " + host);
      const std::vector<Finding> findings = AskHost(config, NeedsOf(config, host), options);
      links[host] = LinkOf(findings);
      take(host, findings);
      const bool answered = std::ranges::none_of(
          findings, [](const Finding& finding) { return finding.check == "host"; });
      if (answered) all.push_back(CheckClock(config, host));
      if (!answered) unreachable.insert(host);  // has been said; everything else would say it again
    }
  }
  // The manager's own machine, which is this one, as for `lamina cluster up`.
  if (!links.contains(config.controller_host)) {
    const HostNeeds needs = NeedsOf(config, config.controller_host);
    for (std::vector<Finding> findings : {CheckSecret(needs), CheckTls(needs)}) {
      for (Finding& finding : findings)
        finding.subject = config.controller_host + " " + finding.subject;
      take(config.controller_host, findings);
    }
  }
  for (Finding& finding : JudgeSecrets(secrets)) all.push_back(std::move(finding));
  ExcuseOwnPorts(OwnAddresses(config), all);
  if (IsLocalHost(config.controller_host)) {
    all.push_back(
        CheckManagerPort(config, config.http_port, "http-port", ManagerUrl(config), "http_port"));
    for (Finding& finding : CheckHttps(config.https, config.controller_host))
      all.push_back(std::move(finding));
    if (config.front_port != 0) {
      all.push_back(CheckManagerPort(config, config.front_port, "front-port", config.FrontAddress(),
                                     "front_port"));
    }
  }
  for (const auto& [from, to] : PairsOf(config)) {
    if (unreachable.contains(from) || unreachable.contains(to)) continue;
    const Link &a = links[from], &b = links[to];
    if (a.mtu > 0 && b.mtu > 0 && from != to) all.push_back(JudgeMtu(from, a.mtu, to, b.mtu));
    const double rate = a.bits_per_second > 0 && b.bits_per_second > 0
                            ? std::min(a.bits_per_second, b.bits_per_second)
                            : 0;
    for (const auto& [source, target] : {std::pair(from, to), std::pair(to, from)}) {
      say("measuring " + source + " -> " + target);
      all.push_back(MeasurePair(config, source, target, rate, options));
      if (from == to) break;
    }
  }
  return all;
}

}  // namespace lamina
