// Other processes: start, observe, stop. Linux only.
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

// Which process is meant: pids are used again, (pid, start time) is not within one boot.
struct ProcessId {
  pid_t pid = 0;
  uint64_t start_time = 0;  // field 22 of /proc/PID/stat: clock ticks after boot

  bool operator==(const ProcessId&) const = default;
};

// The process that has this pid now; nothing if there is none or it is only waiting to be reaped.
std::optional<ProcessId> FindProcess(pid_t pid);

// The folder of the running program, without a '/' at its end: siblings such as lamina-memory-node
// stand there.
std::string ProgramFolder();

// `text` as one word of a POSIX shell; quoted only if it has to be.
std::string ShellQuote(const std::string& text);
std::string ShellJoin(const std::vector<std::string>& argv);

// A child of this process. Kills and reaps it at destruction. Thread: owner; the child dies when
// the thread that spawned it ends.
class ChildProcess {
 public:
  struct Options {
    std::vector<std::string> argv;                         // argv[0]: a path, or a name on PATH
    std::vector<std::pair<std::string, std::string>> env;  // in addition to ours
    // Where its stdout and stderr are appended; "": nowhere.
    std::string log_path;
    // Its stdin ends when it is told to end; else it is empty.
    bool holds_stdin = false;
  };

  // kNotFound if argv[0] cannot be executed, kInternal if the system refuses; both name argv[0] and
  // the cause.
  static Result<ChildProcess> Spawn(const Options& options);

  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ~ChildProcess();

  pid_t pid() const { return pid_; }
  bool running();  // reaps it if it ended
  // "exited with status 1", "was killed by signal 9"; "" while running.
  std::string exit_description() const { return exit_description_; }

  // Nothing happens if it ended.
  void Kill(int signal);

  // Asks it to end: SIGTERM, and the end of its stdin if that is held.
  void AskToEnd();

  // True once it ended.
  bool Wait(Deadline deadline);

  // AskToEnd, then SIGKILL at the deadline; returns when it is reaped.
  void Stop(Deadline deadline);

 private:
  ChildProcess(pid_t pid, int stdin_fd) : pid_(pid), stdin_fd_(stdin_fd) {}

  pid_t pid_ = 0;      // 0: moved from
  int stdin_fd_ = -1;  // the other end of its stdin; -1: not held, or closed
  bool reaped_ = false;
  std::string exit_description_;
};

// Runs a command to its end with nothing on its stdin and `env` in addition to our environment.
// kTimeout kills it and what it started; kNotFound as Spawn.
struct CommandOutput {
  int exit_status = 0;  // 128 + signal if a signal ended it
  std::string out;
  std::string err;
};
Result<CommandOutput> RunCommand(const std::vector<std::string>& argv, Deadline deadline,
                                 const std::vector<std::pair<std::string, std::string>>& env = {});

// The last `num_lines` lines of a file, "" if it cannot be read.
std::string TailOfFile(const std::string& path, int num_lines);

}  // namespace lamina
