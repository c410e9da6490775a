#include "manager/cluster_commands.h"

#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <memory>
#include <sstream>

#include "base/departure.h"
#include "base/mutex.h"
#include "cost/node_device.h"
#include "manager/api_key.h"
#include "transport/network_interface.h"

namespace lamina {
namespace {

// Defines alive(): the process $1 with start time $2 exists and is not a zombie. Fields of
// /proc/PID/stat are counted behind the name.
constexpr char kAliveFunction[] =
    "alive() { p=$1; t=$2; set -- $(sed 's/.*) //' /proc/$p/stat 2>/dev/null); [ \"${20}\" = $t ] "
    "&& [ \"$1\" != Z ]; }\n";

void AddExpansion(const std::string& prefix, const OffloadOptions& offload,
                  std::vector<std::string>& argv) {
  const std::string expansion = fmt::format("{}", offload.expansion);
  argv.insert(argv.end(), {prefix + "expansion", offload.is_auto ? "auto" : expansion});
  if (offload.is_auto) argv.insert(argv.end(), {prefix + "max-expansion", expansion});
}

std::vector<std::string> NodeArgv(const ClusterConfig& config, const NodeConfig& node) {
  const bool is_memory = node.role == NodeRole::kMemory;
  std::vector<std::string> argv = {is_memory ? "lamina-memory-node" : "lamina-compute-node",
                                   "--name", node.name, "--listen", ClusterConfig::Address(node)};
  if (is_memory) argv.insert(argv.end(), {"--memory", FormatSize(node.memory_bytes)});
  if (node.host_memory_bytes > 0)
    argv.insert(argv.end(), {"--host-memory", FormatSize(node.host_memory_bytes)});
  if (const OffloadOptions& offload = node.offload; offload.any()) {
    if (offload.expansion > 0) {
      AddExpansion("--offload-", offload, argv);
    } else {
      argv.insert(argv.end(), {"--offload-interval",
                               offload.is_auto ? "auto" : std::to_string(offload.interval)});
    }
    argv.insert(argv.end(), {"--offload-buffers", std::to_string(offload.buffers),
                             "--offload-gb-per-s", fmt::format("{}", offload.gb_per_s)});
    if (offload.num_in_group > 1) {
      argv.insert(argv.end(), {"--offload-num-in-group", std::to_string(offload.num_in_group)});
    }
    if (offload.portion < 1)
      argv.insert(argv.end(), {"--offload-portion", fmt::format("{}", offload.portion)});
    if (!offload.bus.empty()) argv.insert(argv.end(), {"--offload-bus", offload.bus});
    if (offload.memory_bytes > 0)
      argv.insert(argv.end(), {"--offload-memory", FormatSize(offload.memory_bytes)});
    if (!offload.folder.empty()) argv.insert(argv.end(), {"--offload-folder", offload.folder});
  }
  if (const OffloadOptions& offload = node.kv_offload; offload.any()) {
    if (offload.expansion > 0) {
      AddExpansion("--kv-offload-", offload, argv);
    } else {
      argv.insert(argv.end(), {"--kv-offload-interval", std::to_string(offload.interval)});
    }
    argv.insert(argv.end(), {"--kv-offload-buffers", std::to_string(offload.buffers),
                             "--kv-offload-gb-per-s", fmt::format("{}", offload.gb_per_s)});
    if (offload.num_in_group > 1)
      argv.insert(argv.end(), {"--kv-offload-num-in-group", std::to_string(offload.num_in_group)});
    if (!offload.folder.empty()) argv.insert(argv.end(), {"--kv-offload-folder", offload.folder});
  }
  argv.insert(argv.end(), {"--threads", std::to_string(node.threads)});
  if (!node.cpus.empty()) argv.insert(argv.end(), {"--cpus", node.cpus});
  if (node.device != "cpu") argv.insert(argv.end(), {"--device", node.device});
  if (IsModelledName(node.device))
    argv.insert(argv.end(), {"--device-catalog", config.device_catalog});
  if (config.drain_timeout + kNodeDrainMargin != Clock::duration(kNodeDrainTimeout)) {
    const auto seconds =
        std::chrono::ceil<std::chrono::seconds>(config.drain_timeout + kNodeDrainMargin);
    argv.insert(argv.end(), {"--drain-timeout", std::to_string(seconds.count())});
  }
  if (!config.secret_file.empty()) argv.insert(argv.end(), {"--secret-file", config.secret_file});
  if (!config.tls.empty()) {
    argv.insert(argv.end(), {"--tls-certificate", config.tls.certificate, "--tls-key",
                             config.tls.key, "--tls-ca", config.tls.ca});
  }
  return argv;
}

// In the environment of what `up` starts.
constexpr char kStartMark[] = "LAMINA_START_ID";

// An address, or a name with an address, of one of this machine's interfaces.
bool IsNameOfThisMachine(const std::string& host) {
  static Mutex mutex;
  static std::map<std::string, bool> known GUARDED_BY(mutex);
  MutexLock lock(mutex);
  const auto [answer, is_new] = known.emplace(host, !InterfaceOf(host).empty());
  addrinfo wanted{}, *found = nullptr;
  wanted.ai_socktype = SOCK_STREAM;
  if (!is_new || answer->second || getaddrinfo(host.c_str(), nullptr, &wanted, &found) != 0)
    return answer->second;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, freeaddrinfo);
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    std::array<char, NI_MAXHOST> text{};
    if (getnameinfo(entry->ai_addr, entry->ai_addrlen, text.data(), text.size(), nullptr, 0,
                    NI_NUMERICHOST) != 0)
      continue;
    const std::string address = text.data();
    answer->second |=
        address == "::1" || address.starts_with("127.") || !InterfaceOf(address).empty();
  }
  return answer->second;
}

std::vector<std::string> SplitWords(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

}  // namespace

std::vector<DaemonCommand> DaemonCommands(const ClusterConfig& config,
                                          const std::string& config_path, bool with_manager) {
  std::vector<DaemonCommand> daemons;
  for (const NodeRole role : {NodeRole::kMemory, NodeRole::kCompute}) {
    for (const NodeConfig& node : config.daemons()) {
      if (node.role == role) daemons.push_back({node.name, node.host, NodeArgv(config, node)});
    }
  }
  if (with_manager)
    daemons.push_back(
        {kManagerName, config.controller_host, {"lamina", "serve", "--cluster", config_path}});
  return daemons;
}

bool IsLocalHost(const std::string& host) {
  if (host == "localhost" || host == "::1" || host.starts_with("127.")) return true;
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) == 0) {
    const std::string own = name.data();
    if (host == own || host == own.substr(0, own.find('.'))) return true;
  }
  return IsNameOfThisMachine(host);
}

std::vector<std::string> CommandOnHost(const ClusterConfig& config, const std::string& host,
                                       const std::string& script) {
  if (IsLocalHost(host)) return {"/bin/sh", "-c", script};
  std::vector<std::string> argv = SplitWords(config.ssh);
  // Ssh hands one text to the login shell, which may not be POSIX.
  argv.insert(argv.end(), {host, "sh -c " + ShellQuote(script)});
  return argv;
}

std::vector<std::pair<std::string, std::string>> HiddenEnvironment(const ClusterConfig& config,
                                                                   const DaemonCommand& daemon) {
  std::vector<std::pair<std::string, std::string>> hidden;
  if (daemon.name != kManagerName) return hidden;
  std::ranges::copy_if(config.env, std::back_inserter(hidden),
                       [](const auto& variable) { return variable.first == kApiKeyVariable; });
  return hidden;
}

std::string StartScript(const ClusterConfig& config, const DaemonCommand& daemon,
                        const std::string& bin_dir) {
  const bool is_local = IsLocalHost(daemon.host);
  std::vector<std::string> argv = daemon.argv;
  if (is_local) argv[0] = bin_dir + "/" + argv[0];
  std::string command = "setsid nohup env";
  // Only the API server needs its key. It comes in the environment of this script:
  // HiddenEnvironment.
  if (daemon.name != kManagerName)
    command += std::string(" -u ") + kApiKeyVariable + " -u " + kApiKeyFileVariable;
  if (!is_local) command += " PATH=" + ShellQuote(bin_dir) + ":\"$PATH\"";
  for (const auto& [name, value] : config.env) {
    if (name == kApiKeyVariable || (name == kApiKeyFileVariable && daemon.name != kManagerName))
      continue;
    command += " " + ShellQuote(name + "=" + value);
  }
  command += " " + ShellJoin(argv);

  std::string script = "set -e\n";
  if (!config.workdir.empty()) script += "cd " + ShellQuote(config.workdir) + "\n";
  script += "dir=" +
            (config.log_dir.empty()
                 ? "\"${XDG_STATE_HOME:-$HOME/.local/state}\"/lamina/" + config.name + "/logs"
                 : ShellQuote(config.log_dir)) +
            "\n";
  script += "mkdir -p \"$dir\"\n";
  script += "log=$dir/" + daemon.name + ".log\n";
  script += "echo \"--- $(date '+%F %T')\" " + ShellQuote(ShellJoin(argv)) + " >> \"$log\"\n";
  script += command + " >> \"$log\" 2>&1 < /dev/null &\n";
  script += "set -- $(sed 's/.*) //' /proc/$!/stat)\n";
  script += "echo \"$! ${20} $log\"\n";
  return script;
}

std::string MarkedScript(const std::string& start_id, const std::string& script) {
  return std::string(kStartMark) + "=" + start_id + " exec /bin/sh -c " + ShellQuote(script);
}

std::string FindMarkedScript(const std::string& start_id) {
  std::string script = std::string("for f in $(grep -ls ") + kStartMark + "=" + start_id +
                       " /proc/[0-9]*/environ); do\n";
  script += "p=${f#/proc/}; p=${p%/environ}\n";
  script += "set -- $(sed 's/.*) //' /proc/$p/stat 2>/dev/null)\n";
  script += "[ -n \"${20}\" ] && [ \"$1\" != Z ] && echo \"$p ${20}\"\n";
  return script + "done\ntrue\n";
}

std::string FindScript(const std::vector<ProcessId>& ids) {
  std::string script = kAliveFunction;
  for (const ProcessId& id : ids) {
    const std::string pid = std::to_string(id.pid);
    script += "alive " + pid + " " + std::to_string(id.start_time) + " && echo " + pid + "\n";
  }
  return script + "true\n";
}

std::string StopScript(const ProcessId& id, int grace_seconds) {
  const std::string pid = std::to_string(id.pid);
  const std::string alive = "alive " + pid + " " + std::to_string(id.start_time);
  const std::string wait = "i=0; while " + alive + " && [ $i -lt ";
  const std::string pause = " ]; do sleep 0.1; i=$((i+1)); done\n";
  std::string script = kAliveFunction;
  script += alive + " || { echo absent; exit 0; }\n";
  script += "kill -TERM " + pid + "; kill -CONT " + pid + "\n";
  script += wait + std::to_string(grace_seconds * 10) + pause;
  script += alive + " || { echo stopped; exit 0; }\n";
  script += "kill -KILL " + pid + "\n";
  script += wait + "50" + pause;
  script += alive + " && echo survived || echo killed\n";
  return script;
}

std::string TailScript(const std::string& log, int num_lines) {
  return "tail -n " + std::to_string(num_lines) + " " + ShellQuote(log) + "\n";
}

}  // namespace lamina
