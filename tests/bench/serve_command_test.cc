// `lamina bench serve` as a user runs it, against servers that answer as no server should.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/paths.h"
#include "tests/support/server_process.h"
#include "tests/support/serving.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/timed_server.h"

namespace lamina::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

std::string Contents(const std::string& path) {
  std::ostringstream bytes;
  bytes << std::ifstream(path).rdbuf();
  return bytes.str();
}

TimedAnswer WithStatus(const std::string& status, const std::string& body) {
  return Plain("HTTP/1.1 " + status + "\r\nContent-Length: " + std::to_string(body.size()) +
               "\r\n\r\n" + body);
}

// Names a model, and answers each request in the same way.
TimedServer ServerThatAnswers(const TimedAnswer& answer) {
  return TimedServer([answer](const std::string& request) {
    return request.starts_with("GET") ? WithStatus("200 OK", R"({"data":[{"id":"m"}]})") : answer;
  });
}

CommandOutput RunBench(const TimedServer& server, std::vector<std::string> arguments) {
  const std::vector<std::string> common = {"bench",
                                           "serve",
                                           "--base-url",
                                           server.url_text(),
                                           "--num-prompts",
                                           "3",
                                           "--num-warmups",
                                           "0",
                                           "--random-input-len",
                                           "5",
                                           "--random-output-len",
                                           "4"};
  arguments.insert(arguments.begin(), common.begin(), common.end());
  return RunLamina(arguments);
}

TEST(ServeCommand, TakesABaseUrlWithTheVersion) {
  const TimedServer server([](const std::string& request) {
    if (request.starts_with("GET /v1/models "))
      return WithStatus("200 OK", R"({"data":[{"id":"m"}]})");
    return request.starts_with("POST /v1/completions ")
               ? Tokens(4, milliseconds(0), milliseconds(0))
               : WithStatus("404 Not Found", "");
  });
  for (const char* end : {"/v1", "/v1/"}) {
    const CommandOutput out = RunLamina(
        {"bench", "serve", "--base-url", server.url_text() + end, "--num-prompts", "3",
         "--num-warmups", "0", "--random-input-len", "5", "--random-output-len", "4", "--json"});
    ASSERT_EQ(out.exit_status, 0) << out.err;
    EXPECT_EQ(json::parse(out.out)["completed"], 3);
  }
}

TEST(ServeCommand, ReportsAnswersThatAreNotUtf8) {
  const TimedServer server = ServerThatAnswers(WithStatus("500 Internal Server Error", "\xff\xfe"));
  const TemporaryFolder folder;
  const std::string file = folder / "run.json";
  const CommandOutput out = RunBench(server, {"--json", "--result-filename", file});
  EXPECT_EQ(out.exit_status, 1);
  EXPECT_THAT(out.err, HasSubstr("no request was answered"));
  for (const std::string& text : {out.out, Contents(file)}) {
    const json report = json::parse(text, nullptr, false);
    ASSERT_FALSE(report.is_discarded()) << text;
    EXPECT_EQ(report.at("failed"), 3);
    EXPECT_EQ(report.at("errors").at("HTTP 500").at("count"), 3);
  }
}

// A disk that is full can be opened and not written.
TEST(ServeCommand, PrintsItsFiguresThoughAFileCannotBeWritten) {
  const TimedServer server = ServerThatAnswers(Tokens(4, milliseconds(0), milliseconds(0)));
  const TemporaryFolder folder;
  const std::string requests = folder / "requests.jsonl";
  const CommandOutput out =
      RunBench(server, {"--json", "--json-out", "/dev/full", "--requests-out", requests});
  EXPECT_EQ(out.exit_status, 1);
  EXPECT_THAT(out.err, HasSubstr("cannot write /dev/full: No space left on device"));
  const json report = json::parse(out.out, nullptr, false);
  ASSERT_TRUE(report.is_object()) << out.out;
  EXPECT_EQ(report["completed"], 3);
  EXPECT_EQ(std::ranges::count(Contents(requests), '\n'), 3) << "the others are written";
}

// Answers the first requests with so many tokens at once, and begins answers of seconds then.
class ServerThatSlowsDown {
 public:
  ServerThatSlowsDown(int num_fast, int tokens)
      : server_([this, num_fast, tokens](const std::string& request) {
          if (request.starts_with("GET")) return WithStatus("200 OK", R"({"data":[{"id":"m"}]})");
          if (++num_asked_ <= num_fast) return Tokens(tokens, milliseconds(0), milliseconds(0));
          return Tokens(2, milliseconds(0), std::chrono::seconds(4));
        }) {}

  const TimedServer& server() const { return server_; }
  bool AwaitAsked(int count) const {
    return AwaitTrue([&] { return num_asked_ >= count; },
                     Deadline::After(std::chrono::seconds(30)));
  }

 private:
  std::atomic<int> num_asked_{0};
  TimedServer server_;
};

Result<ChildProcess> StartBench(const TimedServer& server, const std::string& log_path,
                                const std::vector<std::string>& arguments) {
  ChildProcess::Options options;
  options.argv = {BinPath("/lamina"),
                  "bench",
                  "serve",
                  "--base-url",
                  server.url_text(),
                  "--num-prompts",
                  "20",
                  "--num-warmups",
                  "0",
                  "--random-input-len",
                  "5",
                  "--random-output-len",
                  "4",
                  "--max-concurrency",
                  "2"};
  options.argv.insert(options.argv.end(), arguments.begin(), arguments.end());
  options.log_path = log_path;
  return ChildProcess::Spawn(options);
}

TEST(ServeCommand, ASignalEndsARunWithWhatWasMeasured) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const ServerThatSlowsDown slow(5, 3);
    const TemporaryFolder folder;
    const std::string log = folder / "log", result = folder / "run.json",
                      requests = folder / "requests.jsonl", svg = folder / "run.svg";
    Result<ChildProcess> bench = StartBench(
        slow.server(), log,
        {"--result-filename", result, "--requests-filename", requests, "--svg-filename", svg});
    ASSERT_TRUE(bench.ok()) << bench.status();
    ASSERT_TRUE(slow.AwaitAsked(7)) << Contents(log);
    const TimePoint signalled = Clock::now();
    bench->Kill(signal);
    ASSERT_TRUE(bench->Wait(Deadline::After(std::chrono::seconds(30))));
    EXPECT_LT(SecondsSince(signalled), 3) << "it waits for answers";
    EXPECT_EQ(bench->exit_description(), "exited with status 130") << Contents(log);
    EXPECT_THAT(Contents(log),
                HasSubstr("interrupted: 2 requests were still under way and 13 not sent"));
    const json report = json::parse(Contents(result), nullptr, false);
    ASSERT_FALSE(report.is_discarded()) << Contents(result);
    EXPECT_EQ(report.at("num_prompts"), 20);
    EXPECT_EQ(report.at("completed"), 5);
    EXPECT_EQ(report.at("failed"), 0);
    EXPECT_EQ(report.at("total_output_tokens"), 15);
    EXPECT_EQ(report.at("interrupted"), json({{"in_flight", 2}, {"not_sent", 13}}));
    std::istringstream lines(Contents(requests));
    int num_lines = 0, num_interrupted = 0;
    for (std::string line; std::getline(lines, line); ++num_lines)
      num_interrupted += json::parse(line).value("error_kind", "") == "interrupted" ? 1 : 0;
    EXPECT_EQ(num_lines, 7);
    EXPECT_EQ(num_interrupted, 2);
    EXPECT_THAT(Contents(svg), HasSubstr("</svg>"));
  }
}

// Nobody reads the pipe that it writes its requests to, so that the report never ends.
TEST(ServeCommand, ASecondSignalEndsAtOnce) {
  const ServerThatSlowsDown slow(5, 6000);
  const TemporaryFolder folder;
  const std::string log = folder / "log", pipe = folder / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const int held = open(pipe.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(held, 0);
  Result<ChildProcess> bench = StartBench(slow.server(), log, {"--requests-filename", pipe});
  ASSERT_TRUE(bench.ok()) << bench.status();
  ASSERT_TRUE(slow.AwaitAsked(7)) << Contents(log);
  bench->Kill(SIGINT);
  ASSERT_TRUE(
      AwaitTrue([&] { return Contents(log).find("once more ends at once") != std::string::npos; },
                Deadline::After(std::chrono::seconds(30))))
      << Contents(log);
  EXPECT_TRUE(bench->running());
  bench->Kill(SIGINT);
  EXPECT_TRUE(bench->Wait(Deadline::After(std::chrono::seconds(10))));
  EXPECT_EQ(bench->exit_description(), "was killed by signal 2 (Interrupt)");
  close(held);
}

// Options of lamina's benchmarks, plans and simulations.
TEST(CommandLines, NumbersThatAreNoneAreRefusedWithTheirFlag) {
  const std::string cluster = SourcePath("/configs/modelled-13b.yaml"),
                    model = SourcePath("/configs/models/llama-13b");
  const std::vector<std::vector<std::string>> wrong = {
      {"plan", model, "--rate", "nan"},
      {"plan", model, "--years", "nan"},
      {"plan", model, "--years", "1e-300"},
      {"plan", model, "--nic-gb-per-s", "inf"},
      {"plan", model, "--memory-utilization", "nan"},
      {"bench", "serve", "--price-per-hour", "nan"},
      {"bench", "serve", "--metric-percentiles", "50,nan"},
      {"bench", "serve", "--temperature", "nan"},
      {"bench", "serve", "--rate-scale", "nan"},
      {"simulate", cluster, "--gb-per-s", "nan"},
      {"simulate", cluster, "--gb-per-s", "1e-300"},
      {"simulate", cluster, "--ramp-up-start-rps", "nan"},
      {"simulate", cluster, "--request-rate", "1e-30"},
      {"simulate", cluster, "--request-rate", "nan"},
      {"simulate", cluster, "--request-rate", "2", "--burstiness", "1e-30"},
      {"simulate", cluster, "--slow", "m0:1e300@0s"},
      {"simulate", cluster, "--num-prompts", "1000000000000"},
      {"simulate", cluster, "--num-prompts", "-1"},
      {"simulate", cluster, "--output-len", "9000000000000000000"},
      {"bench", "serve", "--num-warmups", "1000000000000"},
  };
  for (const std::vector<std::string>& arguments : wrong) {
    const CommandOutput out = RunLamina(arguments);
    EXPECT_NE(out.exit_status, 0) << arguments.back();
    EXPECT_THAT(out.err, HasSubstr(arguments[arguments.size() - 2])) << arguments.back();
  }
}

TEST(CommandLines, WhatDoesNotFitIntoMemoryIsSaid) {
  const std::string cluster = SourcePath("/configs/modelled-13b.yaml");
  EXPECT_THAT(RunLamina({"simulate", cluster, "--num-prompts", "30000001"}).err,
              HasSubstr("--num-prompts: '30000001' is not a number from 0 to 30000000; more do not "
                        "fit into memory"));
  EXPECT_THAT(RunLamina({"simulate", cluster, "--dataset-path", "/dev/zero"}).err,
              HasSubstr("say what it is with --dataset-name"));
  EXPECT_THAT(
      RunLamina({"simulate", cluster, "--dataset-path", "/dev/zero", "--dataset-name", "mooncake"})
          .err,
      HasSubstr("/dev/zero:1: the line has more than 1048576 bytes"));
  EXPECT_THAT(RunLamina({"simulate", cluster, "--events", "/dev/zero"}).err,
              HasSubstr("/dev/zero: it begins with a zero byte: this is no text"));
  const TimedServer server = ServerThatAnswers(WithStatus("200 OK", ""));
  EXPECT_THAT(RunLamina({"bench", "serve", "--base-url", server.url_text(), "--random-input-len",
                         "1000000", "--num-prompts", "501"})
                  .err,
              HasSubstr("the prompts of 501 requests have more than 500000000 tokens altogether "
                        "and do not fit into memory"));
}

TEST(CommandLines, ASimulationThatServesNothingFails) {
  const std::string cluster = SourcePath("/configs/modelled-13b.yaml");
  const CommandOutput none = RunLamina({"simulate", cluster, "--random-input-len", "1000000",
                                        "--num-prompts", "3", "--seed", "7", "--json"});
  EXPECT_EQ(none.exit_status, 1);
  EXPECT_THAT(
      none.err,
      HasSubstr(
          "no request was served; limited by refusals: 3 refused: longer than max_model_len"));
  const json report = json::parse(none.out, nullptr, false);
  ASSERT_FALSE(report.is_discarded()) << none.out;
  EXPECT_EQ(report.at("seed"), 7);
  EXPECT_EQ(report.at("request_rate"), "inf");
  EXPECT_EQ(report.at("num_left_out"), 0);
}

TEST(ServeCommand, APortThatThereIsNotIsNamed) {
  EXPECT_THAT(RunLamina({"bench", "serve", "--base-url", "http://127.0.0.1:99999"}).err,
              HasSubstr("there is no port 99999"));
}

}  // namespace
}  // namespace lamina::testing
