// The subcommands of `lamina`, one file each. A Register function adds one subcommand, and OnRun
// gives it its work.
//
// Exit statuses: 0 done, 1 failed (the reason is on stderr), 2 the command line is wrong.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>

#include "base/status.h"
#include "manager/cluster_settings.h"

namespace lamina {

inline constexpr int kExitFailure = 1;
inline constexpr int kExitUsage = 2;

void RegisterServe(CLI::App& app);
void RegisterPull(CLI::App& app);
void RegisterModels(CLI::App& app);
void RegisterFront(CLI::App& app);
void RegisterComplete(CLI::App& app);
void RegisterChat(CLI::App& app);
void RegisterCluster(CLI::App& app);
void RegisterSplit(CLI::App& app);
void RegisterTokenize(CLI::App& app);
void RegisterDoctor(CLI::App& app);
void RegisterPlan(CLI::App& app);
void RegisterSimulate(CLI::App& app);

// What the process returns; 0 unless set. For work that returns no error and yet does not end well.
// Thread: main.
void SetExitStatus(int status);

// Makes `work` what the command does. Its error is printed to stderr as "WHO: MESSAGE" and makes
// the process return kExitFailure.
void OnRun(CLI::App& command, const std::string& who, std::function<Status()> work);

// For a command whose figures should stand alone: only warnings are logged while it runs, and a
// server that goes away is the error of a write, not a signal.
void QuietWhileItRuns(CLI::App& command);

// The whole program; returns the exit status. `register_more` adds the commands that cli/ does not
// have.
int RunCli(int argc, char** argv, const std::function<void(CLI::App&)>& register_more);

// "--max-tokens", and "MAX,--max-tokens" (by position too), is LAMINA_MAX_TOKENS in the
// environment; the command line wins.
std::string EnvironmentName(const std::string& flag);

// An option or, for bool, a flag that can also be given in the environment. `flag`: "--max-tokens".
// Types with a default show it in --help.
template <typename T>
CLI::Option* AddOption(CLI::App& command, const std::string& flag, T& value,
                       const std::string& help) {
  if constexpr (std::is_same_v<T, bool>) {
    return command.add_flag(flag, value, help)->envname(EnvironmentName(flag));
  } else {
    CLI::Option* option = command.add_option(flag, value, help)->envname(EnvironmentName(flag));
    if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>)
      option->capture_default_str();
    return option;
  }
}

// An option of a command that takes one of the words of a setting. `value`: the setting, whose word
// --help shows as the default; or a std::optional of it, which stays as it is without the option.
template <typename Setting, typename Value>
CLI::Option* AddSetting(CLI::App& command, const std::string& flag,
                        const SettingWords<Setting>& words, Value& value, const std::string& help) {
  const auto set = [words, &value](const std::string& word) {
    if (const std::optional<Setting> named = words.Named(word)) value = *named;
  };
  CLI::Option* option = command.add_option_function<std::string>(flag, set, help)
                            ->check(CLI::IsMember(words.words()));
  if constexpr (std::is_same_v<Value, Setting>)
    option->default_str(std::string(words.NameOf(value)));
  return option;
}

// Such an option that can also be given in the environment.
template <typename Setting, typename Value>
CLI::Option* AddOption(CLI::App& command, const std::string& flag,
                       const SettingWords<Setting>& words, Value& value, const std::string& help) {
  return AddSetting(command, flag, words, value, help)->envname(EnvironmentName(flag));
}

}  // namespace lamina
