#include "manager/process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "tests/cli/fake_programs.h"
#include "tests/support/free_port.h"
#include "tests/support/temporary_folder.h"

namespace lamina {
namespace {

Deadline Soon() { return Deadline::After(std::chrono::seconds(10)); }

TEST(Process, ShellQuoteSurvivesTheShell) {
  EXPECT_EQ(ShellQuote("--memory"), "--memory");
  EXPECT_EQ(ShellQuote(""), "''");
  for (const std::string text :
       {"a b", "it's", "$HOME `x` \"y\" \\ ! *", "line\nline", "~", "#", "a;b|c&d"}) {
    const Result<CommandOutput> output =
        RunCommand({"/bin/sh", "-c", "printf %s " + ShellQuote(text)}, Soon());
    ASSERT_TRUE(output.ok()) << output.status();
    EXPECT_EQ(output->out, text);
  }
}

TEST(Process, RunCommandSeparatesOutputAndStatus) {
  const Result<CommandOutput> output =
      RunCommand({"sh", "-c", "cat; echo out; echo err >&2; exit 7"}, Soon());
  ASSERT_TRUE(output.ok()) << output.status();
  EXPECT_EQ(output->exit_status, 7);
  EXPECT_EQ(output->out, "out\n");
  EXPECT_EQ(output->err, "err\n");
  EXPECT_EQ(RunCommand({"sh", "-c", "kill -9 $$"}, Soon())->exit_status, 128 + 9);
}

TEST(Process, RunCommandTakesLargeOutput) {
  const Result<CommandOutput> output =
      RunCommand({"sh", "-c", "head -c 1000000 /dev/zero; head -c 500000 /dev/zero >&2"}, Soon());
  ASSERT_TRUE(output.ok()) << output.status();
  EXPECT_EQ(output->out.size(), 1000000u);
  EXPECT_EQ(output->err.size(), 500000u);
}

TEST(Process, ACommandEndsWithWhoeverRunsIt) {
  const TemporaryFolder folder;
  const pid_t runner = fork();
  if (runner == 0) {
    (void)RunCommand({"sh", "-c",
                      "echo $$ > " + folder / "new" + "; mv " + folder / "new" + " " +
                          folder / "pid; exec sleep 600"},
                     Soon());
    _exit(0);
  }
  const Deadline deadline = Soon();
  while (!std::filesystem::exists(folder / "pid") && !deadline.Passed()) usleep(1000);
  const std::string text = ReadFile(folder / "pid");
  ASSERT_FALSE(text.empty());
  kill(runner, SIGKILL);
  waitpid(runner, nullptr, 0);
  while (FindProcess(std::stoi(text)).has_value()) {
    ASSERT_FALSE(deadline.Passed()) << "process " << text << " goes on alone";
    usleep(1000);
  }
}

TEST(Process, RunCommandEndsAtItsDeadline) {
  const TimePoint start = Clock::now();
  EXPECT_EQ(RunCommand({"sh", "-c", "sleep 60 | cat"}, Deadline::After(milliseconds(100)))
                .status()
                .code(),
            StatusCode::kTimeout);
  EXPECT_EQ(
      RunCommand({"sh", "-c", "exec sleep 60 >/dev/null 2>&1"}, Deadline::After(milliseconds(100)))
          .status()
          .code(),
      StatusCode::kTimeout);
  EXPECT_LT(SecondsSince(start), 30);
}

TEST(Process, WhatACommandThatHasEndedLeftRunningEndsAtTheDeadline) {
  const TemporaryFolder folder;
  EXPECT_EQ(RunCommand({"sh", "-c", "sleep 600 & echo $! > " + folder / "pid"},
                       Deadline::After(std::chrono::seconds(1)))
                .status()
                .code(),
            StatusCode::kTimeout)
      << "it holds stdout";
  const pid_t left = std::stoi(ReadFile(folder / "pid"));
  const Deadline deadline = Soon();
  while (FindProcess(left).has_value() && !deadline.Passed()) usleep(1000);
  EXPECT_FALSE(FindProcess(left).has_value());
}

TEST(Process, AMissingProgramIsNamed) {
  const Status status = RunCommand({"/nonexistent/program"}, Soon()).status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_EQ(status.message(), "/nonexistent/program: No such file or directory");
  EXPECT_EQ(ChildProcess::Spawn({{"/nonexistent/program"}, {}, ""}).status().code(),
            StatusCode::kNotFound);
}

TEST(Process, FindProcessTellsProcessesApart) {
  const std::optional<ProcessId> self = FindProcess(getpid());
  ASSERT_TRUE(self.has_value());
  EXPECT_EQ(self, FindProcess(getpid()));
  Result<ChildProcess> child = ChildProcess::Spawn({{"sleep", "60"}, {}, ""});
  ASSERT_TRUE(child.ok()) << child.status();
  ASSERT_TRUE(FindProcess(child->pid()).has_value());
  EXPECT_GE(FindProcess(child->pid())->start_time, self->start_time);

  kill(child->pid(), SIGKILL);
  siginfo_t info{};
  // It is a zombie now.
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child->pid()), &info, WEXITED | WNOWAIT), 0);
  EXPECT_FALSE(FindProcess(child->pid()).has_value());
}

TEST(Process, ChildGetsEnvironmentAndLog) {
  const TemporaryFolder folder;
  const std::string log = folder.path() + "/log";
  setenv("LAMINA_TEST_OLD", "old", 1);
  setenv("LAMINA_TEST_BOTH", "old", 1);
  const std::string script =
      "echo $LAMINA_TEST_OLD $LAMINA_TEST_BOTH $LAMINA_TEST_NEW; echo error >&2; exit 4";
  Result<ChildProcess> child = ChildProcess::Spawn(
      {{"sh", "-c", script}, {{"LAMINA_TEST_BOTH", "new"}, {"LAMINA_TEST_NEW", "a b"}}, log});
  ASSERT_TRUE(child.ok()) << child.status();
  ASSERT_TRUE(child->Wait(Soon()));
  EXPECT_EQ(child->exit_description(), "exited with status 4");
  EXPECT_EQ(ReadFile(log), "old new a b\nerror\n");
  EXPECT_EQ(TailOfFile(log, 1), "error\n");
}

TEST(Process, StopAsksFirstAndThenKills) {
  Result<ChildProcess> polite = ChildProcess::Spawn({{"sleep", "60"}, {}, ""});
  ASSERT_TRUE(polite.ok());
  polite->Stop(Soon());
  EXPECT_EQ(polite->exit_description(), "was killed by signal 15 (Terminated)");

  const TemporaryFolder folder;
  const std::string log = folder.path() + "/log";
  Result<ChildProcess> deaf = ChildProcess::Spawn(
      {{"sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.01; done"}, {}, log});
  ASSERT_TRUE(deaf.ok());
  const Deadline deadline = Soon();
  while (ReadFile(log).empty() && !deadline.Passed()) usleep(1000);
  deaf->Stop(Deadline::After(milliseconds(100)));
  EXPECT_EQ(deaf->exit_description(), "was killed by signal 9 (Killed)");
}

TEST(Process, AHeldStdinEndsWhenTheChildIsAskedToEnd) {
  Result<ChildProcess> child =
      ChildProcess::Spawn({{"sh", "-c", "trap '' TERM; cat; exit 7"}, {}, "", true});
  ASSERT_TRUE(child.ok()) << child.status();
  // Must not hold the first one's.
  Result<ChildProcess> other = ChildProcess::Spawn({{"cat"}, {}, "", true});
  ASSERT_TRUE(other.ok()) << other.status();
  ChildProcess moved = *std::move(child);
  EXPECT_TRUE(moved.running());
  moved.Stop(Soon());
  EXPECT_THAT(moved.exit_description(),
              ::testing::AnyOf("exited with status 7", "was killed by signal 15 (Terminated)"));
  EXPECT_TRUE(other->running());
}

TEST(Process, AStoppedChildCanBeStopped) {
  Result<ChildProcess> child = ChildProcess::Spawn({{"sleep", "60"}, {}, ""});
  ASSERT_TRUE(child.ok());
  child->Kill(SIGSTOP);
  child->Stop(Soon());
  EXPECT_EQ(child->exit_description(), "was killed by signal 15 (Terminated)");
}

TEST(Process, DestructionLeavesNoProcess) {
  pid_t pid = 0;
  {
    Result<ChildProcess> child = ChildProcess::Spawn({{"sleep", "60"}, {}, ""});
    ASSERT_TRUE(child.ok());
    pid = child->pid();
    const ChildProcess moved = std::move(*child);
    EXPECT_EQ(moved.pid(), pid);
    EXPECT_TRUE(FindProcess(pid).has_value());
  }
  EXPECT_FALSE(FindProcess(pid).has_value());
}

TEST(Process, ChildrenDieWithTheirParent) {
  // A program in between starts the child as ChildProcess does and is then killed without a chance
  // to clean up.
  std::array<int, 2> channel{};
  ASSERT_EQ(pipe(channel.data()), 0);
  const pid_t parent = fork();
  if (parent == 0) {
    Result<ChildProcess> child = ChildProcess::Spawn({{"sleep", "60"}, {}, ""});
    const pid_t pid = child.ok() ? child->pid() : 0;
    if (write(channel[1], &pid, sizeof(pid)) != sizeof(pid)) _exit(1);
    pause();
    _exit(0);
  }
  pid_t child = 0;
  ASSERT_EQ(read(channel[0], &child, sizeof(child)), static_cast<ssize_t>(sizeof(child)));
  ASSERT_TRUE(FindProcess(child).has_value());
  kill(parent, SIGKILL);
  waitpid(parent, nullptr, 0);
  const Deadline deadline = Soon();
  while (FindProcess(child).has_value() && !deadline.Passed()) usleep(1000);
  EXPECT_FALSE(FindProcess(child).has_value());
  close(channel[0]);
  close(channel[1]);
}

}  // namespace
}  // namespace lamina
