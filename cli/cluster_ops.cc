#include "cli/cluster_ops.h"

#include <algorithm>
#include <thread>
#include <vector>

#include "api/http_client.h"
#include "cli/cluster_daemons.h"
#include "cli/cluster_state.h"
#include "cli/cluster_status.h"
#include "manager/cluster_commands.h"
#include "transport/secret_file.h"
#include "transport/tls_context.h"

namespace lamina {
namespace {

constexpr auto kPollInterval = milliseconds(100);
// Between two looks at the processes: a command per host.
constexpr auto kLivenessInterval = std::chrono::seconds(1);

// Says what to do about a host that does not answer, if that is the error.
Status WithWayOut(const Status& status, const ClusterOpsOptions& options) {
  if (status.code() != StatusCode::kTimeout && status.code() != StatusCode::kPeerLost)
    return status;
  return Status(status.code(),
                status.message() +
                    "; if the host is gone for good, `lamina cluster down --forget-unreachable " +
                    ShellQuote(options.config_path) + "` forgets what was started there");
}

bool IsOf(const DaemonRecord& daemon, const DaemonCommand& command) {
  return daemon.name == command.name && daemon.host == command.host;
}

// One run of ClusterUp behind the checks: what was started so far, and how it is taken back.
class Starting {
 public:
  // `running`: what needs no start. A manager among it takes nodes back that are started.
  Starting(const ClusterConfig& config, const ClusterOpsOptions& options,
           const ClusterStateFile& file, std::vector<DaemonRecord> running, std::ostream& out)
      : config_(config), options_(options), file_(file), out_(out), num_running_(running.size()) {
    state_.cluster = config.name;
    state_.config_path = options.config_path;
    state_.daemons = std::move(running);
  }

  Status Run() {
    const bool manager_starts = options_.with_manager && !Runs(kManagerName);
    Status status = StartAll();
    if (status.ok()) status = manager_starts ? WaitForManager() : WaitForNodes();
    if (!status.ok()) TakeBack();
    return status;
  }

  bool Runs(std::string_view name) const {
    return std::ranges::find(state_.daemons, name, &DaemonRecord::name) != state_.daemons.end();
  }

 private:
  Status StartAll() {
    for (const DaemonRecord& daemon : state_.daemons) {
      out_ << daemon.name << " runs on " << daemon.host << " already, pid " << daemon.process.pid
           << std::endl;
    }
    for (const DaemonCommand& command :
         DaemonCommands(config_, options_.config_path, options_.with_manager)) {
      if (std::ranges::any_of(state_.daemons,
                              [&](const DaemonRecord& daemon) { return IsOf(daemon, command); }))
        continue;
      if (options_.interrupted()) return TryAgain("interrupted");
      LAMINA_RETURN_IF_ERROR(Start(command));
    }
    return OkStatus();
  }

  // The record stands in the file before anything runs, and is completed after: if we are killed in
  // between, `down` asks the host.
  Status Start(const DaemonCommand& command) {
    state_.daemons.push_back({command.name, command.host, {}, "", NewStartId()});
    LAMINA_RETURN_IF_ERROR(file_.Write(state_));
    Result<DaemonRecord> daemon =
        StartDaemon(config_, command, options_.bin_dir, state_.daemons.back().start_id);
    if (!daemon.ok()) {
      // A host that does not answer now either cannot have heard the command. After a time-out
      // nobody knows: the record stays.
      const bool timed_out = daemon.status().code() == StatusCode::kTimeout;
      if (!timed_out && !ResolveStarts(config_, &state_).ok()) state_.daemons.pop_back();
      LAMINA_RETURN_IF_ERROR(file_.Write(state_));
      return daemon.status();
    }
    out_ << "started " << daemon->name << " on " << daemon->host << ", pid " << daemon->process.pid
         << ", log " << daemon->log << std::endl;
    state_.daemons.back() = *std::move(daemon);
    return file_.Write(state_);
  }

  // An error names the first daemon that ended, with the end of its log.
  Status CheckDaemons() {
    if (Clock::now() < next_check_) return OkStatus();
    next_check_ = Clock::now() + kLivenessInterval;
    LAMINA_ASSIGN_OR_RETURN(const std::vector<bool> running, FindDaemons(config_, state_.daemons));
    for (size_t i = 0; i < running.size(); ++i) {
      if (running[i]) continue;
      const DaemonRecord& daemon = state_.daemons[i];
      return PeerLost(daemon.name + " on " + daemon.host + " ended; its log " + daemon.log +
                      " ends with:\n" + TailOfLog(config_, daemon));
    }
    return OkStatus();
  }

  Status WaitForManager() {
    std::string last_detail;
    Deadline deadline = Deadline::After(options_.no_progress);
    while (true) {
      const ManagerAnswer answer = AskManager(config_);
      if (answer.healthy) {
        next_check_ = {};
        LAMINA_RETURN_IF_ERROR(CheckDaemons());
        if (options_.interrupted()) return TryAgain("interrupted");
        out_ << "serving " << config_.served_name << " on " << ManagerUrl(config_) << std::endl;
        return OkStatus();
      }
      const std::string detail =
          answer.reachable ? answer.detail
                           : "the manager does not answer on " + ManagerUrl(config_) + " yet";
      if (detail != last_detail) {
        last_detail = detail;
        deadline = Deadline::After(options_.no_progress);
        out_ << "waiting: " << detail << std::endl;
      }
      LAMINA_RETURN_IF_ERROR(Pause(deadline, "the manager to serve; last news: " + last_detail));
    }
  }

  Status WaitForNodes() {
    const Deadline deadline = Deadline::After(config_.start_timeout);
    for (const NodeConfig& node : config_.daemons()) {
      while (!CanConnect(node.host, node.port, std::chrono::seconds(1))) {
        LAMINA_RETURN_IF_ERROR(
            Pause(deadline, node.name + " to listen on " + ClusterConfig::Address(node)));
      }
      out_ << node.name << " listens on " << ClusterConfig::Address(node) << std::endl;
    }
    return options_.interrupted() ? TryAgain("interrupted") : OkStatus();
  }

  Status Pause(Deadline deadline, const std::string& waiting_for) {
    LAMINA_RETURN_IF_ERROR(CheckDaemons());
    if (options_.interrupted()) return TryAgain("interrupted");
    if (deadline.Passed()) return TimedOut("gave up waiting for " + waiting_for);
    std::this_thread::sleep_for(kPollInterval);
    return OkStatus();
  }

  void TakeBack() {
    out_ << "stopping what was started" << std::endl;
    const Status status = StopDaemons(
        config_, {.grace = options_.grace, .keep_first = num_running_}, file_, &state_, out_);
    if (!status.ok()) out_ << WithWayOut(status, options_).message() << std::endl;
  }

  const ClusterConfig& config_;
  const ClusterOpsOptions& options_;
  const ClusterStateFile& file_;
  std::ostream& out_;
  const size_t num_running_;
  ClusterState state_;  // first what ran before
  TimePoint next_check_{};
};

void PrintUpCommands(const ClusterConfig& config, const ClusterOpsOptions& options,
                     std::ostream& out) {
  for (const DaemonCommand& command :
       DaemonCommands(config, options.config_path, options.with_manager)) {
    out << "# " << command.name << " on " << command.host << ": " << ShellJoin(command.argv)
        << "\n";
    out << ShellJoin(
               CommandOnHost(config, command.host, StartScript(config, command, options.bin_dir)))
        << "\n\n";
  }
}

// What an earlier `up` left and still runs. An error unless this one only has to add to it: all of
// these are of the YAML, and others of it do not run.
Result<std::vector<DaemonRecord>> WhatRuns(const ClusterConfig& config,
                                           const ClusterOpsOptions& options,
                                           const ClusterStateFile& file) {
  LAMINA_ASSIGN_OR_RETURN(ClusterState old, file.Read());
  const std::string unknown = "cannot tell whether cluster '" + config.name + "' is up already";
  if (const Status resolved = ResolveStarts(config, &old); !resolved.ok())
    return WithWayOut(resolved, options).WithContext(unknown);
  const Result<std::vector<bool>> running = FindDaemons(config, old.daemons);
  if (!running.ok()) return WithWayOut(running.status(), options).WithContext(unknown);
  std::vector<DaemonRecord> kept;
  for (size_t i = 0; i < old.daemons.size(); ++i) {
    if ((*running)[i]) kept.push_back(old.daemons[i]);
  }
  const std::vector<DaemonCommand> wanted =
      DaemonCommands(config, options.config_path, options.with_manager);
  const bool are_wanted = std::ranges::all_of(kept, [&](const DaemonRecord& daemon) {
    // From a start that was not seen to its end: it may be half of it.
    if (daemon.log.empty()) return false;
    return std::ranges::any_of(wanted,
                               [&](const DaemonCommand& command) { return IsOf(daemon, command); });
  });
  if (kept.empty() || (are_wanted && kept.size() < wanted.size())) return kept;
  const DaemonRecord& daemon = kept.front();
  return TryAgain("already up: " + daemon.name + " of cluster '" + config.name + "' runs on " +
                  daemon.host + " with pid " + std::to_string(daemon.process.pid) +
                  "; use lamina cluster down " + ShellQuote(old.config_path) + " first");
}

}  // namespace

Status ClusterUp(const ClusterConfig& config, const ClusterOpsOptions& options, std::ostream& out) {
  if (options.with_manager && !IsLocalHost(config.controller_host)) {
    return InvalidArgument("the controller is '" + config.controller_host +
                           "', which is not this machine: run `lamina cluster up` there");
  }
  if (options.dry_run) {
    PrintUpCommands(config, options, out);
    return OkStatus();
  }
  if (options.with_manager) {
    LAMINA_RETURN_IF_ERROR(ReadSecretFile(config.secret_file).status());
    LAMINA_RETURN_IF_ERROR(TlsContext::Load(config.tls).status());
    if (!config.https.empty())
      LAMINA_RETURN_IF_ERROR(
          TlsContext::LoadServer(config.https.certificate, config.https.key).status());
  }
  LAMINA_ASSIGN_OR_RETURN(const ClusterStateFile file, ClusterStateFile::Open(config.name));
  LAMINA_ASSIGN_OR_RETURN(std::vector<DaemonRecord> running, WhatRuns(config, options, file));
  Starting starting(config, options, file, std::move(running), out);
  if (options.with_manager && !starting.Runs(kManagerName) &&
      CanConnect(config.controller_host, config.http_port, std::chrono::seconds(1))) {
    return InvalidArgument("something else listens on " + ManagerUrl(config) +
                           " already: stop it, or change cluster.http_port in " +
                           options.config_path);
  }
  return starting.Run();
}

Status ClusterDown(const ClusterConfig& config, const ClusterOpsOptions& options,
                   std::ostream& out) {
  if (options.dry_run) {
    LAMINA_ASSIGN_OR_RETURN(const ClusterState state, ReadClusterState(config.name));
    for (auto daemon = state.daemons.rbegin(); daemon != state.daemons.rend(); ++daemon) {
      out << "# " << daemon->name << " on " << daemon->host << "\n";
      if (daemon->may_be_starting()) {
        out << "# its start was not seen to its end: what runs of it is found by\n"
            << ShellJoin(CommandOnHost(config, daemon->host, FindMarkedScript(daemon->start_id)))
            << "\n\n";
        continue;
      }
      out << ShellJoin(CommandOnHost(config, daemon->host,
                                     StopScript(daemon->process, GraceSeconds(options.grace))))
          << "\n\n";
    }
    return OkStatus();
  }
  LAMINA_ASSIGN_OR_RETURN(const ClusterStateFile file, ClusterStateFile::Open(config.name));
  LAMINA_ASSIGN_OR_RETURN(ClusterState state, file.Read());
  if (state.daemons.empty()) {
    out << "nothing to stop: cluster '" << config.name << "' is not up" << std::endl;
    return OkStatus();
  }
  const StopOptions stop = {.grace = options.grace,
                            .forget_unreachable = options.forget_unreachable};
  return WithWayOut(StopDaemons(config, stop, file, &state, out), options);
}

bool ClusterStatus(const ClusterConfig& config, bool json, std::ostream& out) {
  const ManagerAnswer answer = AskManager(config);
  if (answer.reachable) {
    out << (json ? answer.status_json : StatusTable(answer.status_json));
    return answer.serving;
  }
  Result<ClusterState> state = ReadClusterState(config.name);
  if (!state.ok()) {
    out << state.status().message() << "\n";
    return false;
  }
  const Status resolved = ResolveStarts(config, &*state);
  if (!resolved.ok()) {
    out << ProcessReport(answer.detail, state->daemons, resolved, json);
    return false;
  }
  const Result<std::vector<bool>> running = FindDaemons(config, state->daemons);
  out << ProcessReport(answer.detail, state->daemons, running, json);
  return false;
}

}  // namespace lamina
