#include "manager/local_cluster.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/log.h"
#include "manager/api_key.h"
#include "manager/cluster_commands.h"
#include "transport/reserved_port.h"

namespace lamina {
namespace {

namespace fs = std::filesystem;

// How long daemons get to end before they are killed.
constexpr auto kStopGrace = std::chrono::seconds(5);
constexpr int kLogTailLines = 20;

// The waits of Revive: a daemon that ends at once every time must not keep the machine busy.
constexpr auto kFirstRevival = std::chrono::seconds(1);
constexpr auto kLastRevival = std::chrono::seconds(30);
constexpr auto kHealthyAfter = std::chrono::minutes(1);

constexpr std::string_view kLogFolderPattern = "lamina-XXXXXX";
// A file in a temporary log folder. The process that made the folder holds a lock on it, which the
// kernel releases when the process ends, so an unlocked file means that the owner was killed.
constexpr char kOwnerFile[] = "owner";

// Locks the folder's owner file and returns its descriptor. -1 if there is no such file, or if
// another process holds the lock or has removed the file. `flags` are further flags of open().
int OwnLogs(const std::string& folder, int flags) {
  const int fd =
      open((folder + "/" + kOwnerFile).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags, 0600);
  if (fd < 0) return -1;
  struct stat file {};
  // No links: another process removed the folder between open and flock.
  if (flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &file) == 0 && file.st_nlink > 0) return fd;
  close(fd);
  return -1;
}

// Removes the temporary log folders of this user's managers that were killed. They had no chance to
// do so themselves, and their logs tell of no error of a node.
void RemoveOrphanedLogs() {
  constexpr std::string_view kPrefix = kLogFolderPattern.substr(0, kLogFolderPattern.find('X'));
  std::error_code ignored;
  for (fs::directory_iterator entry(fs::temp_directory_path(ignored), ignored), end; entry != end;
       entry.increment(ignored)) {
    const std::string path = entry->path().string(), name = entry->path().filename().string();
    struct stat folder {};
    // lstat, and O_NOFOLLOW above: others may put links into a shared temporary folder.
    if (!name.starts_with(kPrefix) || name.size() != kLogFolderPattern.size() ||
        lstat(path.c_str(), &folder) != 0)
      continue;
    if (!S_ISDIR(folder.st_mode) || folder.st_uid != geteuid()) continue;
    const int owner = OwnLogs(path, 0);
    if (owner < 0) continue;
    fs::remove_all(path, ignored);
    close(owner);
  }
}

}  // namespace

std::vector<NodeConfig> LocalNodes(const LocalClusterOptions& options) {
  if (!options.nodes.empty()) return options.nodes;
  std::vector<NodeConfig> nodes;
  for (int i = 0; i < options.num_compute_nodes + options.num_memory_nodes; ++i) {
    const bool compute = i < options.num_compute_nodes;
    NodeConfig node;
    node.role = compute ? NodeRole::kCompute : NodeRole::kMemory;
    node.name =
        compute ? "c" + std::to_string(i) : "m" + std::to_string(i - options.num_compute_nodes);
    node.threads = compute ? options.compute_threads : options.memory_threads;
    node.device = compute ? options.device : options.memory_device;
    node.memory_bytes = compute && options.num_memory_nodes > 0 ? 0 : options.memory_bytes;
    nodes.push_back(node);
  }
  return nodes;
}

namespace {

// Looks the port up in the kernel's table. A trial connection would appear in the daemon's log as
// one that broke off.
bool IsListening(int port) {
  char address[16];
  // 127.0.0.1 as the table writes it.
  std::snprintf(address, sizeof(address), "0100007F:%04X", static_cast<unsigned>(port));
  std::ifstream table("/proc/net/tcp");
  for (std::string line; std::getline(table, line);) {
    std::istringstream fields(line);
    std::string index, local, remote, state;
    fields >> index >> local >> remote >> state;
    if (local == address && state == "0A") return true;  // TCP_LISTEN
  }
  return false;
}

}  // namespace

Result<std::unique_ptr<LocalCluster>> LocalCluster::Create(const LocalClusterOptions& options) {
  std::unique_ptr<LocalCluster> cluster(new LocalCluster(options));
  const Status status = cluster->Start();
  if (status.ok()) return cluster;
  // Who interrupts with a signal to all processes ends those that do not know yet that it is not
  // for them.
  const bool interrupted = options.interrupted && options.interrupted();
  for (auto& [name, expected] : cluster->expected_end_) expected = expected || interrupted;
  for (const auto& [name, pid] : cluster->pids()) {
    // SIGKILL rather than the destructor's gentler way: a daemon that is still starting may take
    // long to notice that it shall end, and has nothing to lose.
    const Status killed = cluster->Kill(name, SIGKILL);
    if (!killed.ok()) LAMINA_LOG_WARN("{}", killed.message());
  }
  return status;
}

Result<std::unique_ptr<LocalCluster>> LocalCluster::CreateFor(ClusterConfig& config,
                                                              std::function<bool()> interrupted) {
  LocalClusterOptions options;
  options.nodes = config.nodes;
  options.standbys = config.standbys;
  options.transport = config.transport;
  options.device_catalog = config.device_catalog;
  options.interrupted = std::move(interrupted);
  LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<LocalCluster> cluster, Create(options));
  config.nodes = cluster->config().nodes;
  config.standbys = cluster->config().standbys;
  return cluster;
}

Status LocalCluster::Start() {
  if (options_.bin_dir.empty()) options_.bin_dir = ProgramFolder();
  if (options_.log_dir.empty()) {
    RemoveOrphanedLogs();
    LAMINA_RETURN_IF_ERROR(MakeLogFolder());
  }
  std::error_code error;
  fs::create_directories(options_.log_dir, error);
  if (error) return InternalError(options_.log_dir + ": " + error.message());

  config_.name = "local";
  config_.transport = options_.transport;
  config_.log_dir = options_.log_dir;
  config_.device_catalog = options_.device_catalog;
  config_.nodes = LocalNodes(options_);
  config_.standbys = options_.standbys;
  for (std::vector<NodeConfig>* nodes : {&config_.nodes, &config_.standbys}) {
    for (NodeConfig& node : *nodes) {
      LAMINA_ASSIGN_OR_RETURN(ReservedPort reserved, ReservePort());
      node.host = "127.0.0.1";
      node.port = reserved.port;
      ports_.push_back(std::move(reserved.socket));
    }
  }
  for (const NodeConfig& node : config_.daemons()) LAMINA_RETURN_IF_ERROR(Spawn(node));
  const Deadline deadline = Deadline::After(options_.start_timeout);
  for (const NodeConfig& node : config_.daemons())
    LAMINA_RETURN_IF_ERROR(WaitUntilListening(node, deadline));
  return OkStatus();
}

Status LocalCluster::MakeLogFolder() {
  // Another process that looks for orphans takes a new folder for one while its file is there and
  // not yet locked, and removes it.
  constexpr int kTries = 10;
  for (int i = 0; i < kTries && log_owner_fd_ < 0; ++i) {
    options_.log_dir = (fs::temp_directory_path() / kLogFolderPattern).string();
    if (mkdtemp(options_.log_dir.data()) == nullptr)
      return InternalError(options_.log_dir + ": " + std::strerror(errno));
    log_owner_fd_ = OwnLogs(options_.log_dir, O_CREAT);
  }
  if (log_owner_fd_ >= 0) return OkStatus();
  return InternalError(options_.log_dir + "/" + kOwnerFile + ": cannot be locked");
}

Status LocalCluster::Spawn(const NodeConfig& node) {
  ClusterConfig one = config_;
  one.nodes = {node};
  one.standbys.clear();
  ChildProcess::Options options;
  options.argv = DaemonCommands(one, "", false)[0].argv;
  options.argv[0] = options_.bin_dir + "/" + options.argv[0];
  // The API key, which may be in our environment, is for the API server alone.
  options.env = {{kApiKeyVariable, ""}, {kApiKeyFileVariable, ""}};
  // Daemons leave when their stdin ends rather than for a signal: one that goes to all processes
  // would otherwise take the nodes away from requests that the manager lets finish.
  options.argv.push_back("--leave-with-stdin");
  options.holds_stdin = true;
  options.log_path = options_.log_dir + "/" + node.name + ".log";
  LAMINA_ASSIGN_OR_RETURN(ChildProcess child, ChildProcess::Spawn(options));
  children_.insert_or_assign(node.name, std::move(child));
  expected_end_[node.name] = false;
  return OkStatus();
}

Status LocalCluster::WaitUntilListening(const NodeConfig& node, Deadline deadline) {
  while (!IsListening(node.port)) {
    if (options_.interrupted && options_.interrupted()) return TryAgain("interrupted");
    if (!children_.at(node.name).running()) return PeerLost(DescribeEnd(node.name));
    if (deadline.Passed()) {
      keep_logs_ = true;
      return TimedOut("node " + node.name + " does not listen on " + ClusterConfig::Address(node) +
                      "; its log: " + options_.log_dir);
    }
    std::this_thread::sleep_for(milliseconds(10));
  }
  return OkStatus();
}

LocalCluster::~LocalCluster() {
  for (auto& [name, child] : children_) {
    if (!child.running()) {
      keep_logs_ |= !expected_end_[name];
      continue;
    }
    child.AskToEnd();  // all of them before the first wait, so that they end side by side
  }
  const Deadline deadline = Deadline::After(kStopGrace);
  for (auto& [name, child] : children_) child.Stop(deadline);
  if (log_owner_fd_ < 0) return;
  std::error_code ignored;  // a folder that stays in /tmp harms nobody
  if (keep_logs_) {
    // Without an owner file, RemoveOrphanedLogs leaves the folder alone.
    fs::remove(options_.log_dir + "/" + kOwnerFile, ignored);
  } else {
    fs::remove_all(options_.log_dir, ignored);
  }
  close(log_owner_fd_);
}

std::map<std::string, pid_t> LocalCluster::pids() {
  std::map<std::string, pid_t> pids;
  for (auto& [name, child] : children_) {
    if (child.running()) pids[name] = child.pid();
  }
  return pids;
}

Status LocalCluster::Kill(const std::string& node, int signal) {
  const auto child = children_.find(node);
  if (child == children_.end() || !child->second.running())
    return NotFound("no node '" + node + "' runs");
  child->second.Kill(signal);
  // Daemons survive these two.
  if (signal != SIGSTOP && signal != SIGCONT) expected_end_[node] = true;
  return OkStatus();
}

Status LocalCluster::Check() {
  for (auto& [name, child] : children_) {
    if (!child.running() && !expected_end_[name]) return PeerLost(DescribeEnd(name));
  }
  return OkStatus();
}

Status LocalCluster::Restart(const std::string& node) {
  const auto child = children_.find(node);
  if (child == children_.end()) return NotFound("there is no node '" + node + "'");
  if (!child->second.Wait(Deadline::After(kStopGrace)))
    return TryAgain("node " + node + " still runs");
  for (const NodeConfig& config : config_.daemons()) {
    if (config.name != node) continue;
    LAMINA_RETURN_IF_ERROR(Spawn(config));
    return WaitUntilListening(config, Deadline::After(options_.start_timeout));
  }
  return NotFound("there is no node '" + node + "'");
}

void LocalCluster::Revive() {
  const TimePoint now = Clock::now();
  for (const NodeConfig& node : config_.daemons()) {
    if (children_.at(node.name).running() || expected_end_[node.name]) continue;
    Revival& revival = revivals_[node.name];
    if (!revival.due) {  // its end is noticed now
      const bool again =
          revival.wait > Clock::duration::zero() && now - revival.started < kHealthyAfter;
      revival.wait =
          again ? std::min<Clock::duration>(2 * revival.wait, kLastRevival) : kFirstRevival;
      revival.due = now + revival.wait;
      LAMINA_LOG_ERROR("{}\nIt is started again in {} s", DescribeEnd(node.name),
                       std::chrono::duration_cast<std::chrono::seconds>(revival.wait).count());
    }
    if (now < *revival.due) continue;
    revival.due.reset();
    revival.started = now;
    if (const Status spawned = Spawn(node); !spawned.ok())
      LAMINA_LOG_ERROR("{}", spawned.message());
  }
}

std::string LocalCluster::DescribeEnd(const std::string& node) {
  keep_logs_ = true;
  const std::string log = options_.log_dir + "/" + node + ".log";
  return "node " + node + " " + children_.at(node).exit_description() + "; its log " + log +
         " ends with:\n" + TailOfFile(log, kLogTailLines);
}

}  // namespace lamina
