#include "cli/cluster_daemons.h"

#include <fmt/format.h>

#include <map>
#include <random>
#include <regex>
#include <set>
#include <sstream>

namespace lamina {
namespace {

// A command on a host, beyond what it waits for by itself.
constexpr auto kCommandTimeout = std::chrono::seconds(30);
constexpr int kTailLines = 20;

using Environment = std::vector<std::pair<std::string, std::string>>;

// Runs the script on the host, with `env` if that is this machine, and returns what it printed.
// kTimeout and kPeerLost: the host did not answer, or its connection broke.
Result<std::string> RunOnHost(const ClusterConfig& config, const std::string& host,
                              const std::string& script, Clock::duration timeout = kCommandTimeout,
                              const Environment& env = {}) {
  constexpr int kSshFailed = 255;  // everything else is the script's own
  const Result<CommandOutput> output =
      RunCommand(CommandOnHost(config, host, script), Deadline::After(timeout), env);
  if (output.status().code() == StatusCode::kTimeout) {
    return TimedOut(host + ": no answer within " +
                    std::to_string(std::chrono::ceil<std::chrono::seconds>(timeout).count()) +
                    " s");
  }
  if (!output.ok()) return output.status().WithContext(host);
  if (output->exit_status != 0) {
    const std::string reason = output->err.substr(0, output->err.find_last_not_of('\n') + 1);
    const bool is_lost = output->exit_status == kSshFailed && !IsLocalHost(host);
    return Status(is_lost ? StatusCode::kPeerLost : StatusCode::kInternal,
                  host + ": the command failed with status " + std::to_string(output->exit_status) +
                      ": " + (reason.empty() ? "no message" : reason));
  }
  return output->out;
}

bool IsUnreachable(const Status& status) {
  return status.code() == StatusCode::kTimeout || status.code() == StatusCode::kPeerLost;
}

// What runs of a daemon whose start nobody saw the end of: none, itself, or the shell that starts
// it, too.
Result<std::vector<DaemonRecord>> FindStarted(const ClusterConfig& config,
                                              const DaemonRecord& intended) {
  LAMINA_ASSIGN_OR_RETURN(const std::string printed,
                          RunOnHost(config, intended.host, FindMarkedScript(intended.start_id)));
  std::vector<DaemonRecord> found;
  std::istringstream fields(printed);
  for (ProcessId id; fields >> id.pid >> id.start_time;) {
    found.push_back(intended);
    found.back().process = id;
  }
  return found;
}

// An error if the process may still be there.
Status StopDaemon(const ClusterConfig& config, const DaemonRecord& daemon, Clock::duration grace,
                  std::ostream& out) {
  if (daemon.may_be_starting()) {
    while (true) {  // until nothing is left that could start more
      LAMINA_ASSIGN_OR_RETURN(const std::vector<DaemonRecord> found, FindStarted(config, daemon));
      if (found.empty()) return OkStatus();
      for (const DaemonRecord& one : found)
        LAMINA_RETURN_IF_ERROR(StopDaemon(config, one, grace, out));
    }
  }
  const std::string script = StopScript(daemon.process, GraceSeconds(grace));
  LAMINA_ASSIGN_OR_RETURN(const std::string word,
                          RunOnHost(config, daemon.host, script, kCommandTimeout + grace));
  const std::string who =
      daemon.name + " on " + daemon.host + ", pid " + std::to_string(daemon.process.pid);
  if (word == "stopped\n") {
    out << "stopped " << who << std::endl;
  } else if (word == "killed\n") {
    out << "killed " << who << ": it did not end within " << GraceSeconds(grace)
        << " s after SIGTERM" << std::endl;
  } else if (word == "absent\n") {
    out << "not running any more: " << who << std::endl;
  } else {
    return InternalError(who + " survived SIGKILL: it may hang inside the kernel");
  }
  return OkStatus();
}

}  // namespace

int GraceSeconds(Clock::duration grace) {
  return static_cast<int>(std::chrono::ceil<std::chrono::seconds>(grace).count());
}

Result<DaemonRecord> StartDaemon(const ClusterConfig& config, const DaemonCommand& command,
                                 const std::string& bin_dir, const std::string& start_id) {
  const std::string script = MarkedScript(start_id, StartScript(config, command, bin_dir));
  const Result<std::string> printed =
      RunOnHost(config, command.host, script, kCommandTimeout, HiddenEnvironment(config, command));
  if (!printed.ok()) return printed.status().WithContext("cannot start " + command.name);
  DaemonRecord daemon;
  daemon.name = command.name;
  daemon.host = command.host;
  daemon.start_id = start_id;
  std::istringstream fields(*printed);
  fields >> daemon.process.pid >> daemon.process.start_time >> std::ws;
  std::getline(fields, daemon.log);
  if (fields.fail() || daemon.process.pid <= 1)
    return InternalError(command.name + " on " + command.host + ": expected a pid, got '" +
                         *printed + "'");
  return daemon;
}

std::string NewStartId() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}", device(), device());
}

Status ResolveStarts(const ClusterConfig& config, ClusterState* state) {
  Status first_error;
  std::vector<DaemonRecord> resolved;
  for (const DaemonRecord& daemon : state->daemons) {
    Result<std::vector<DaemonRecord>> found = std::vector<DaemonRecord>{daemon};
    if (daemon.may_be_starting()) found = FindStarted(config, daemon);
    if (!found.ok() && first_error.ok())
      first_error =
          found.status().WithContext("cannot tell whether " + daemon.name + " was started");
    if (found.ok()) {
      resolved.insert(resolved.end(), found->begin(), found->end());
    } else {
      resolved.push_back(daemon);
    }
  }
  state->daemons = std::move(resolved);
  return first_error;
}

Result<std::vector<bool>> FindDaemons(const ClusterConfig& config,
                                      const std::vector<DaemonRecord>& daemons) {
  std::map<std::string, std::vector<ProcessId>> per_host;
  for (const DaemonRecord& daemon : daemons) {
    if (!daemon.may_be_starting()) per_host[daemon.host].push_back(daemon.process);
  }
  std::set<std::pair<std::string, pid_t>> running;
  for (const auto& [host, ids] : per_host) {
    LAMINA_ASSIGN_OR_RETURN(const std::string printed, RunOnHost(config, host, FindScript(ids)));
    std::istringstream pids(printed);
    for (pid_t pid = 0; pids >> pid;) running.emplace(host, pid);
  }
  std::vector<bool> result;
  for (const DaemonRecord& daemon : daemons)
    result.push_back(running.contains({daemon.host, daemon.process.pid}));
  return result;
}

Status StopDaemons(const ClusterConfig& config, const StopOptions& options,
                   const ClusterStateFile& file, ClusterState* state, std::ostream& out) {
  std::map<std::string, Status> unreachable;  // by host
  Status first_error;
  for (size_t i = state->daemons.size(); i-- > options.keep_first;) {
    const DaemonRecord& daemon = state->daemons[i];
    Status status;
    if (const auto known = unreachable.find(daemon.host); known != unreachable.end()) {
      status = known->second;
    } else {
      status = StopDaemon(config, daemon, options.grace, out);
    }
    if (IsUnreachable(status)) unreachable.emplace(daemon.host, status);
    if (options.forget_unreachable && IsUnreachable(status)) {
      out << "forgot " << daemon.name << " on " << daemon.host << ", pid " << daemon.process.pid
          << ": " << status.message() << std::endl;
      status = OkStatus();
    }
    if (status.ok()) {
      state->daemons.erase(state->daemons.begin() + static_cast<ptrdiff_t>(i));
      status = file.Write(*state);
    } else {
      status = status.WithContext("cannot stop " + daemon.name);
    }
    if (first_error.ok()) first_error = status;
  }
  return first_error;
}

std::string TailOfLog(const ClusterConfig& config, const DaemonRecord& daemon) {
  const Result<std::string> text =
      RunOnHost(config, daemon.host, TailScript(daemon.log, kTailLines));
  if (!text.ok()) return text.status().message();
  // StartScript's line: earlier ones are of earlier runs.
  static const std::regex kStart("(^|\n)--- \\d{4}-\\d\\d-\\d\\d [^\n]*\n");
  size_t begin = 0;
  for (std::sregex_iterator match(text->begin(), text->end(), kStart), end; match != end; ++match)
    begin = static_cast<size_t>(match->position() + match->length());
  return text->substr(begin);
}

}  // namespace lamina
