// Starts, observes and stops other processes: the daemons of a local cluster as children
// (ChildProcess), short commands such as ssh (RunCommand). Linux only: it reads /proc.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace lamina {

// Identifies a process for as long as the machine runs: the system gives a pid to a new process
// once the old one is gone, but not with the same start time.
struct ProcessId {
  pid_t pid = 0;
  uint64_t start_time = 0;  // field 22 of /proc/PID/stat: clock ticks after boot

  bool operator==(const ProcessId&) const = default;
};

// The process that has this pid now. nullopt if there is none, or only a zombie that waits to be
// reaped.
std::optional<ProcessId> FindProcess(pid_t pid);

// The folder of the running program, without a '/' at its end. Other programs of lamina, such as
// lamina-memory-node, stand in the same folder.
std::string ProgramFolder();

// `text` as one word of a POSIX shell, in quotes only if it needs them.
std::string ShellQuote(const std::string& text);
// The command line that makes a POSIX shell run `argv`.
std::string ShellJoin(const std::vector<std::string>& argv);

// A child of this process. The destructor kills and reaps it. The child also dies when the thread
// that spawned it ends, however that happens (PR_SET_PDEATHSIG). Thread: owner.
class ChildProcess {
 public:
  struct Options {
    // argv[0] is a path, or a name that is looked up on PATH.
    std::vector<std::string> argv;
    // Variables that the child gets besides this process's, or instead of those of the same name.
    std::vector<std::pair<std::string, std::string>> env;
    // The file to which its stdout and stderr are appended. Empty: they are discarded.
    std::string log_path;
    // True: its stdin is a pipe that stays open until AskToEnd, so that the child can take the end
    // of its stdin for the wish that it ends. False: its stdin is /dev/null.
    bool holds_stdin = false;
  };

  // Starts the child and returns once it runs the program. kNotFound if argv[0] cannot be executed;
  // kInternal if the log cannot be opened or the system has no pipe or process left.
  static Result<ChildProcess> Spawn(const Options& options);

  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ~ChildProcess();

  pid_t pid() const { return pid_; }
  // Whether it still runs. Reaps it if it ended.
  bool running();
  // "exited with status 1", "was killed by signal 9 (Killed)". Empty until running() or Wait() has
  // seen the end.
  std::string exit_description() const { return exit_description_; }

  // Sends a signal. Does nothing if the child ended.
  void Kill(int signal);

  // Asks it to end: closes its stdin if that is held, and sends SIGTERM. Does not wait.
  void AskToEnd();

  // Waits until it ends. False if it still runs at the deadline.
  bool Wait(Deadline deadline);

  // Calls AskToEnd, sends SIGKILL at the deadline, and returns when the child is reaped. A deadline
  // that has passed already means SIGKILL at once.
  void Stop(Deadline deadline);

 private:
  ChildProcess(pid_t pid, int stdin_fd) : pid_(pid), stdin_fd_(stdin_fd) {}

  pid_t pid_ = 0;      // 0: moved from
  int stdin_fd_ = -1;  // our end of its stdin; -1: not held, or closed
  bool reaped_ = false;
  std::string exit_description_;
};

// What a command that has ended left behind.
struct CommandOutput {
  int exit_status = 0;  // 128 + signal if a signal ended it, as shells count
  std::string out;
  std::string err;
};
// Runs a command to its end, in a session of its own, with /dev/null as its stdin and with `env`
// added to this process's environment. A command that fails is no error: see exit_status. kNotFound
// if argv[0] cannot be executed; kInternal if the system has no pipe or process left; kTimeout if
// at the deadline the command runs or somebody holds its stdout or stderr open. Then its process
// group is killed. Thread: any.
Result<CommandOutput> RunCommand(const std::vector<std::string>& argv, Deadline deadline,
                                 const std::vector<std::pair<std::string, std::string>>& env = {});

// The last `num_lines` lines of a file. Empty if it cannot be read.
std::string TailOfFile(const std::string& path, int num_lines);

}  // namespace lamina
