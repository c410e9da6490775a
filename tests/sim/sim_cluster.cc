// Runs simulations of whole clusters: many seeds, one with all its events, or ever smaller parts of
// one that fails.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "base/log.h"
#include "tests/sim/world.h"
#include "tests/support/sanitized.h"

namespace lamina::sim {
namespace {

constexpr size_t kMostFailuresShown = 20;

// Of real time. A run takes some 20 ms; one that takes this long does not end.
constexpr unsigned kLongestRunSeconds = 60;

// For the message when a run ends the process.
char current_seed[64] = "";

void Tell(std::string_view text) { (void)!write(STDERR_FILENO, text.data(), text.size()); }

void OnFatal(int signal_number) {
  Tell(signal_number == SIGALRM ? "a run did not end" : "the process was aborted");
  Tell(", while it simulated seed ");
  Tell({current_seed, strnlen(current_seed, sizeof(current_seed))});
  Tell("\n");
  signal(signal_number, SIG_DFL);
  (void)raise(signal_number);
}

struct Options {
  std::string seeds;
  uint64_t seed = 0;
  uint64_t shrink = 0;
  std::string drop;
  bool verbose = false;
  bool stop_at_first = false;
};

RunResult RunOne(const Scenario& scenario, Expected& expected, const EventLog& log = nullptr) {
  fmt::format_to_n(current_seed, sizeof(current_seed) - 1, "{}", scenario.seed);
  return RunScenario(scenario, expected, log);
}

std::string Command(uint64_t seed, const std::string& dropped) {
  return fmt::format("sim_cluster --seed {}{} --verbose", seed,
                     dropped.empty() ? "" : " --drop " + dropped);
}

bool ParseRange(const std::string& text, uint64_t& first, uint64_t& last) {
  const size_t dots = text.find("..");
  const auto parse = [](std::string_view part, uint64_t& into) {
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), into);
    return error == std::errc() && end == part.data() + part.size();
  };
  if (dots == std::string::npos) return parse(text, first) && parse(text, last);
  return parse(std::string_view(text).substr(0, dots), first) &&
         parse(std::string_view(text).substr(dots + 2), last) && first <= last;
}

void PrintSeen(const Coincidences& seen) {
  for (size_t i = 0; i < kNumCoincidences; ++i) {
    const auto coincidence = static_cast<Coincidence>(i);
    fmt::print("  {:>8}  {}\n", seen.count(coincidence), NameOf(coincidence));
  }
}

int RunMany(uint64_t first, uint64_t last, bool stop_at_first, Expected& expected) {
  const auto start = std::chrono::steady_clock::now();
  Coincidences seen;
  uint64_t hash = 0, num_runs = 0, num_failed = 0, num_requests = 0, num_tokens = 0;
  double virtual_seconds = 0;
  for (uint64_t seed = first; seed <= last && (num_failed == 0 || !stop_at_first); ++seed) {
    const Scenario scenario = DrawScenario(seed);
    (void)alarm(kLongestRunSeconds);
    const RunResult result = RunOne(scenario, expected);
    (void)alarm(0);
    ++num_runs;
    hash = hash * 0x100000001b3u + result.hash;
    seen.Add(result.seen);
    num_requests += scenario.requests.size();
    num_tokens += result.num_tokens;
    virtual_seconds += std::chrono::duration<double>(result.lasted).count();
    if (result.failure.empty()) continue;
    if (++num_failed <= kMostFailuresShown)
      fmt::print("seed {} FAILED {}\n  {}\n", seed, result.failure, Command(seed, ""));
    std::fflush(stdout);
  }
  const double real_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  fmt::print(
      "{} runs in {:.1f} s: {:.0f} a minute; {:.0f} s of virtual time, {} requests, {} tokens; "
      "hash {:016x}; {} runs FAILED\n",
      num_runs, real_seconds, static_cast<double>(num_runs) / real_seconds * 60, virtual_seconds,
      num_requests, num_tokens, hash, num_failed);
  PrintSeen(seen);
  return num_failed == 0 ? 0 : 1;
}

int RunVerbosely(Scenario scenario, const Options& options, Expected& expected) {
  if (!DropParts(scenario, options.drop)) {
    fmt::print(stderr, "--drop {}: the seed has no such part\n{}", options.drop,
               Describe(scenario));
    return 2;
  }
  fmt::print("{}", Describe(scenario));
  // The processes' own lines stand between the events, whose times are those of the simulation.
  spdlog::set_pattern("         %l: %v");
  if (const char* const level = std::getenv("LAMINA_LOG"))
    spdlog::set_level(spdlog::level::from_str(level));
  const EventLog log = [](const std::string& line) { fmt::print("{}\n", line); };
  const RunResult result = RunOne(scenario, expected, options.verbose ? log : nullptr);
  fmt::print("{} events, {} tokens, {:.3f} s of virtual time, hash {:016x}\n{}\n",
             result.num_events, result.num_tokens,
             std::chrono::duration<double>(result.lasted).count(), result.hash,
             result.failure.empty() ? "ok" : "FAILED " + result.failure);
  return result.failure.empty() ? 0 : 1;
}

// Leaves out one part after the other for as long as the run fails in the same way.
int Shrink(uint64_t seed, Expected& expected) {
  Scenario scenario = DrawScenario(seed);
  const RunResult whole = RunOne(scenario, expected);
  if (whole.failure.empty()) {
    fmt::print("seed {} does not fail\n", seed);
    return 0;
  }
  std::vector<std::string> names;
  for (const Fault& fault : scenario.faults) names.push_back(fault.name);
  for (const PlannedRequest& request : scenario.requests) names.push_back(request.name);
  std::string dropped;
  for (bool smaller = true; std::exchange(smaller, false);) {
    for (const std::string& name : names) {
      Scenario without = scenario;
      if (!DropParts(without, name)) continue;  // it was left out before
      if (RunOne(without, expected).kind() != whole.kind()) continue;
      scenario = std::move(without);
      dropped += (dropped.empty() ? "" : ",") + name;
      smaller = true;
    }
  }
  fmt::print("{}FAILED {}\n  {}\n", Describe(scenario), RunOne(scenario, expected).failure,
             Command(seed, dropped));
  return 1;
}

int Main(int argc, char** argv) {
  CLI::App app(
      "Simulates whole clusters in virtual time: the manager's engine, compute nodes and memory "
      "nodes, clients and faults, all drawn from a seed.\n"
      "Exit status: 0 if no run failed, 1 if one did, 2 for a mistake in the command.");
  app.footer(
      "Examples:\n"
      "  sim_cluster --seeds 1..2000         runs them, and counts what was seen\n"
      "  sim_cluster --seed 17 --verbose     one with all its events; LAMINA_LOG says how much "
      "else\n"
      "  sim_cluster --shrink 17             finds the requests and faults that matter\n"
      "  sim_cluster --seed 17 --drop r0,f2  without its first request and its third fault");
  Options options;
  CLI::Option* const seeds = app.add_option("--seeds", options.seeds, "FIRST..LAST to run");
  CLI::Option* const seed = app.add_option("--seed", options.seed, "the only one to run");
  CLI::Option* const shrink =
      app.add_option("--shrink", options.shrink, "a seed that fails, to leave parts out of");
  app.add_flag("--stop-at-first", options.stop_at_first, "run no seed behind one that fails")
      ->needs(seeds);
  app.add_option("--drop", options.drop, "parts of the seed to leave out")->needs(seed);
  app.add_flag("--verbose", options.verbose, "print all events")->needs(seed);
  app.require_option(1, 3);
  seeds->excludes(seed)->excludes(shrink);
  seed->excludes(shrink);
  CLI11_PARSE(app, argc, argv);
  signal(SIGABRT, OnFatal);
  signal(SIGALRM, OnFatal);
  if (!testing::kSanitized) signal(SIGSEGV, OnFatal);
  const Result<std::unique_ptr<Expected>> expected = Expected::Create();
  if (!expected.ok()) {
    fmt::print(stderr, "{}\n", expected.status().ToString());
    return 2;
  }
  if (*shrink) return Shrink(options.shrink, **expected);
  if (*seed) return RunVerbosely(DrawScenario(options.seed), options, **expected);
  uint64_t first = 0, last = 0;
  if (!ParseRange(options.seeds, first, last)) {
    fmt::print(stderr, "--seeds {}: expected FIRST..LAST\n", options.seeds);
    return 2;
  }
  return RunMany(first, last, options.stop_at_first, **expected);
}

}  // namespace
}  // namespace lamina::sim

int main(int argc, char** argv) { return lamina::sim::Main(argc, argv); }
