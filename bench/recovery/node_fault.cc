#include "bench/recovery/node_fault.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>

#include "base/units.h"
#include "manager/cluster_commands.h"

namespace lamina {
namespace {

const char* VerbOf(FaultKind kind) {
  switch (kind) {
    case FaultKind::kKill: return "kill";
    case FaultKind::kStop: return "stop";
    case FaultKind::kContinue: return "continue";
    case FaultKind::kRestart: return "restart";
  }
  return "";
}

Status Unreadable(FaultKind kind, const std::string& text, const std::string& why) {
  return InvalidArgument(std::string("--") + VerbOf(kind) + " '" + text + "': expected " +
                         (kind == FaultKind::kStop
                              ? "NAME@TIME or NAME@TIME+DURATION, such as m0@5s+3s"
                              : "NAME@TIME, such as m0@5s") +
                         (why.empty() ? "" : "; " + why));
}

// Adds the fault, and for one that ends by itself also its end.
Status ParseFault(FaultKind kind, const std::string& text, std::vector<NodeFault>& faults) {
  const size_t at = text.find('@');
  if (at == std::string::npos || at == 0) return Unreadable(kind, text, "");
  const size_t plus = kind == FaultKind::kStop ? text.find('+', at) : std::string::npos;
  const std::string node = text.substr(0, at);
  const Result<Clock::duration> time = ParseDuration(text.substr(at + 1, plus - at - 1));
  if (!time.ok()) return Unreadable(kind, text, time.status().message());
  faults.push_back({kind, node, *time});
  if (plus == std::string::npos) return OkStatus();
  const Result<Clock::duration> length = ParseDuration(text.substr(plus + 1));
  if (!length.ok()) return Unreadable(kind, text, length.status().message());
  faults.push_back({FaultKind::kContinue, node, *time + *length});
  return OkStatus();
}

// How a daemon is, by what was done to it.
struct DaemonState {
  enum { kRuns, kStopped, kKilled } now = kRuns;
  const NodeFault* since = nullptr;
};

// Why the fault cannot be done to a daemon in this state; "" if it can.
std::string Objection(const NodeFault& fault, const DaemonState& daemon) {
  const std::string since = daemon.since != nullptr ? daemon.since->Name() : "";
  switch (fault.kind) {
    case FaultKind::kKill:
      if (daemon.now != DaemonState::kKilled) return "";
      return "it is dead since '" + since + "'; --restart " + fault.node +
             "@TIME between the two starts it again";
    case FaultKind::kStop:
      if (daemon.now == DaemonState::kRuns) return "";
      return "it does not run since '" + since + "'";
    case FaultKind::kContinue:
      if (daemon.now == DaemonState::kStopped) return "";
      return "it cannot go on, because of '" + since + "'; leave out one of the two";
    case FaultKind::kRestart:
      if (daemon.now == DaemonState::kKilled) return "";
      return "it was not killed before; add --kill " + fault.node + "@TIME with an earlier time";
  }
  return "";
}

void DoTo(const NodeFault& fault, DaemonState& daemon) {
  daemon.since = &fault;
  daemon.now = fault.kind == FaultKind::kKill   ? DaemonState::kKilled
               : fault.kind == FaultKind::kStop ? DaemonState::kStopped
                                                : DaemonState::kRuns;
}

Status NoSuchNode(const NodeFault& fault, const ClusterConfig& config) {
  std::string known;
  for (const NodeConfig& node : config.daemons()) known += (known.empty() ? "" : ", ") + node.name;
  return InvalidArgument(fault.Name() + ": the cluster file has no node '" + fault.node +
                         "'; it has " + known + ", and 'manager' is the manager");
}

}  // namespace

std::string NodeFault::Name() const {
  return std::string(VerbOf(kind)) + " " + node + "@" + FormatDuration(at);
}

Result<std::vector<NodeFault>> ParseFaults(const FaultTexts& texts) {
  std::vector<NodeFault> faults;
  for (const std::string& text : texts.kill)
    LAMINA_RETURN_IF_ERROR(ParseFault(FaultKind::kKill, text, faults));
  for (const std::string& text : texts.stop)
    LAMINA_RETURN_IF_ERROR(ParseFault(FaultKind::kStop, text, faults));
  for (const std::string& text : texts.restart)
    LAMINA_RETURN_IF_ERROR(ParseFault(FaultKind::kRestart, text, faults));
  // At the same time a node is killed before it is started again.
  std::ranges::stable_sort(faults, std::less<>(), &NodeFault::at);
  return faults;
}

Status CheckFaults(const std::vector<NodeFault>& faults, const ClusterConfig& config) {
  const std::vector<NodeConfig> nodes = config.daemons();
  for (const NodeConfig& node : nodes) {
    if (IsLocalHost(node.host)) continue;
    return InvalidArgument("node '" + node.name + "' is on host " + node.host +
                           ": faults are done to daemons that this command starts on this machine, "
                           "so every node needs host: 127.0.0.1");
  }
  std::map<std::string, DaemonState> daemons;
  for (const NodeFault& fault : faults) {
    if (fault.OfManager() != faults.front().OfManager())
      return InvalidArgument(fault.Name() + " and " + faults.front().Name() +
                             ": what is done to the manager is measured by itself");
    if (!fault.OfManager() &&
        std::ranges::find(nodes, fault.node, &NodeConfig::name) == nodes.end())
      return NoSuchNode(fault, config);
    DaemonState& daemon = daemons[fault.node];
    if (const std::string objection = Objection(fault, daemon); !objection.empty())
      return InvalidArgument(fault.Name() + ": " + objection);
    DoTo(fault, daemon);
  }
  return OkStatus();
}

}  // namespace lamina
