#include "manager/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <sstream>
#include <thread>

namespace lamina {
namespace {

// How often a child that is waited for is looked at. Nothing here is on a hot path.
constexpr auto kChildPollInterval = milliseconds(5);

// What the child needs between fork and exec. It is prepared before the fork, because after it only
// async-signal-safe calls are allowed: another thread of the parent may have held malloc's lock.
struct Launch {
  explicit Launch(const std::vector<std::string>& args,
                  const std::vector<std::pair<std::string, std::string>>& env) {
    for (const std::string& arg : args) argv.push_back(const_cast<char*>(arg.c_str()));
    argv.push_back(nullptr);
    for (char** old = environ; *old != nullptr; ++old) {
      const std::string_view entry = *old;
      const auto replaced = [&](const auto& item) { return entry.starts_with(item.first + "="); };
      if (std::none_of(env.begin(), env.end(), replaced)) environment.push_back(*old);
    }
    for (const auto& [name, value] : env) texts.push_back(name + "=" + value);
    for (std::string& text : texts) environment.push_back(text.data());
    environment.push_back(nullptr);
  }

  std::vector<char*> argv;
  std::vector<char*> environment;
  std::deque<std::string> texts;
  int in_fd = -1;
  int out_fd = -1;
  int err_fd = -1;
  int failure_fd = -1;  // gets errno if exec fails
  pid_t parent = getpid();
  bool own_session = false;
};

[[noreturn]] void RunInChild(const Launch& launch) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The parent may have died before prctl, and then no signal would ever come.
  if (getppid() != launch.parent) _exit(127);
  // A time-out reaches everything the command started, and ssh cannot ask the terminal for a
  // password.
  if (launch.own_session) setsid();
  // The signal mask and an ignored SIGPIPE would be inherited across exec.
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);
  const int null_fd = open("/dev/null", O_RDWR);
  dup2(launch.in_fd >= 0 ? launch.in_fd : null_fd, STDIN_FILENO);
  dup2(launch.out_fd >= 0 ? launch.out_fd : null_fd, STDOUT_FILENO);
  dup2(launch.err_fd >= 0 ? launch.err_fd : null_fd, STDERR_FILENO);
  // Not closed here, only on exec: failure_fd is needed if that fails.
  close_range(3, UINT_MAX, CLOSE_RANGE_CLOEXEC);
  execvpe(launch.argv[0], launch.argv.data(), launch.environment.data());
  const int error = errno;
  [[maybe_unused]] const ssize_t written = write(launch.failure_fd, &error, sizeof(error));
  _exit(127);
}

Result<pid_t> Fork(Launch& launch) {
  std::array<int, 2> failure{};
  if (pipe2(failure.data(), O_CLOEXEC) != 0)
    return InternalError(std::string("pipe: ") + std::strerror(errno));
  launch.failure_fd = failure[1];
  const pid_t pid = fork();
  if (pid == 0) RunInChild(launch);
  const int fork_error = errno;
  close(failure[1]);
  int error = 0;
  // The pipe's other end closes on exec, so the read finds the end of file if that succeeded, and
  // the child's errno if it failed.
  const bool exec_failed = pid > 0 && read(failure[0], &error, sizeof(error)) == sizeof(error);
  close(failure[0]);
  if (pid < 0) return InternalError(std::string("fork: ") + std::strerror(fork_error));
  if (exec_failed) {
    waitpid(pid, nullptr, 0);
    return NotFound(std::string(launch.argv[0]) + ": " + std::strerror(error));
  }
  return pid;
}

std::string DescribeExit(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    return "was killed by signal " + std::to_string(WTERMSIG(wait_status)) + " (" +
           strsignal(WTERMSIG(wait_status)) + ")";
  }
  return "exited with status " + std::to_string(WEXITSTATUS(wait_status));
}

// Reads both pipes at the same time, so that a command does not block on the one while it fills the
// other, until both are closed. False at the deadline.
bool Drain(std::array<int, 2> fds, std::array<std::string*, 2> texts, Deadline deadline) {
  std::array<pollfd, 2> polls = {pollfd{fds[0], POLLIN, 0}, pollfd{fds[1], POLLIN, 0}};
  while (polls[0].fd >= 0 || polls[1].fd >= 0) {
    const int ready = poll(polls.data(), polls.size(), deadline.RemainingMs());
    if (ready == 0) return false;
    if (ready < 0) continue;  // EINTR
    for (size_t i = 0; i < polls.size(); ++i) {
      if (polls[i].fd < 0 || polls[i].revents == 0) continue;
      std::array<char, 4096> buffer;
      const ssize_t count = read(polls[i].fd, buffer.data(), buffer.size());
      if (count > 0) texts[i]->append(buffer.data(), static_cast<size_t>(count));
      if (count == 0) polls[i].fd = -1;  // poll skips negative descriptors
    }
  }
  return true;
}

}  // namespace

std::optional<ProcessId> FindProcess(pid_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(in, line)) return std::nullopt;
  // "PID (name) STATE ...", see proc(5). The name may hold spaces and parentheses, so fields are
  // counted from the last one: STATE is field 3, the start time field 22.
  const size_t name_end = line.rfind(") ");
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(line.substr(name_end + 2));
  std::string state;
  fields >> state;
  std::string skipped;
  for (int field = 4; field < 22; ++field) fields >> skipped;
  ProcessId id{pid, 0};
  if (!(fields >> id.start_time) || state == "Z" || state == "X") return std::nullopt;
  return id;
}

std::string ProgramFolder() {
  std::array<char, PATH_MAX> path;
  const ssize_t length = readlink("/proc/self/exe", path.data(), path.size());
  const std::string text(path.data(), length > 0 ? static_cast<size_t>(length) : 0);
  return text.substr(0, text.rfind('/'));
}

std::string ShellQuote(const std::string& text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=@,+%";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'') {  // ends the quotes, adds an escaped one, begins quotes again
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

std::string ShellJoin(const std::vector<std::string>& argv) {
  std::string line;
  for (const std::string& arg : argv) line += (line.empty() ? "" : " ") + ShellQuote(arg);
  return line;
}

Result<ChildProcess> ChildProcess::Spawn(const Options& options) {
  Launch launch(options.argv, options.env);
  if (!options.log_path.empty()) {
    launch.out_fd = open(options.log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (launch.out_fd < 0) return InternalError(options.log_path + ": " + std::strerror(errno));
    launch.err_fd = launch.out_fd;
  }
  std::array<int, 2> in = {-1, -1};
  Status piped;
  if (options.holds_stdin && pipe2(in.data(), O_CLOEXEC) != 0)
    piped = InternalError(std::string("pipe: ") + std::strerror(errno));
  launch.in_fd = in[0];
  const Result<pid_t> pid = piped.ok() ? Fork(launch) : piped;
  for (const int fd : {launch.out_fd, in[0]}) {
    if (fd >= 0) close(fd);
  }
  if (!pid.ok() && in[1] >= 0) close(in[1]);
  if (!pid.ok()) return pid.status();
  return ChildProcess(*pid, in[1]);
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept { *this = std::move(other); }

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(stdin_fd_, other.stdin_fd_);
  std::swap(reaped_, other.reaped_);
  std::swap(exit_description_, other.exit_description_);
  return *this;
}

ChildProcess::~ChildProcess() {
  Stop(Deadline::After(Clock::duration::zero()));
  if (stdin_fd_ >= 0) close(stdin_fd_);
}

bool ChildProcess::running() {
  if (pid_ == 0 || reaped_) return false;
  int wait_status = 0;
  if (waitpid(pid_, &wait_status, WNOHANG) == 0) return true;
  reaped_ = true;
  exit_description_ = DescribeExit(wait_status);
  return false;
}

void ChildProcess::Kill(int signal) {
  if (running()) kill(pid_, signal);
}

void ChildProcess::AskToEnd() {
  if (stdin_fd_ >= 0) close(std::exchange(stdin_fd_, -1));
  Kill(SIGTERM);
  Kill(SIGCONT);  // a stopped process would not see it
}

bool ChildProcess::Wait(Deadline deadline) {
  while (running()) {
    if (deadline.Passed()) return false;
    std::this_thread::sleep_for(
        std::min<Clock::duration>(kChildPollInterval, deadline.Remaining()));
  }
  return true;
}

void ChildProcess::Stop(Deadline deadline) {
  if (!running()) return;
  if (!deadline.Passed()) AskToEnd();
  if (Wait(deadline)) return;
  Kill(SIGKILL);
  // This loop ends, as no process survives SIGKILL.
  while (running()) std::this_thread::sleep_for(kChildPollInterval);
}

Result<CommandOutput> RunCommand(const std::vector<std::string>& argv, Deadline deadline,
                                 const std::vector<std::pair<std::string, std::string>>& env) {
  std::array<int, 2> out{}, err{};
  if (pipe2(out.data(), O_CLOEXEC) != 0)
    return InternalError(std::string("pipe: ") + std::strerror(errno));
  if (pipe2(err.data(), O_CLOEXEC) != 0) {
    const int error = errno;
    close(out[0]);
    close(out[1]);
    return InternalError(std::string("pipe: ") + std::strerror(error));
  }
  Launch launch(argv, env);
  launch.own_session = true;
  launch.out_fd = out[1];
  launch.err_fd = err[1];
  const Result<pid_t> pid = Fork(launch);
  close(out[1]);
  close(err[1]);

  CommandOutput output;
  bool in_time = !pid.ok() || Drain({out[0], err[0]}, {&output.out, &output.err}, deadline);
  close(out[0]);
  close(err[0]);
  if (!pid.ok()) return pid.status();
  // To the whole process group, which setsid made: what the command started goes as well, also if
  // the command itself has ended. Not after waitpid, when the group may be another's.
  const auto kill_late = [&] {
    if (deadline.Passed()) in_time = false;
    if (!in_time) kill(-*pid, SIGKILL);
  };
  if (!in_time) kill_late();
  int wait_status = 0;
  while (waitpid(*pid, &wait_status, WNOHANG) == 0) {
    kill_late();
    std::this_thread::sleep_for(kChildPollInterval);
  }
  if (!in_time) return TimedOut("'" + ShellJoin(argv) + "' did not end in time");
  output.exit_status =
      WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
  return output;
}

std::string TailOfFile(const std::string& path, int num_lines) {
  std::ifstream in(path);
  std::deque<std::string> lines;
  for (std::string line; std::getline(in, line);) {
    lines.push_back(line);
    if (lines.size() > static_cast<size_t>(num_lines)) lines.pop_front();
  }
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

}  // namespace lamina
