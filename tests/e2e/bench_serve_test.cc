// `lamina bench serve` against `lamina serve`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/paths.h"
#include "tests/support/server_process.h"
#include "tests/support/temporary_folder.h"

namespace lamina::testing {
namespace bench_serve_test {

using nlohmann::json;
using ::testing::HasSubstr;

const std::string kModel = SourcePath("/models/tiny-stories");

std::string Contents(const std::string& path) {
  std::ostringstream bytes;
  bytes << std::ifstream(path).rdbuf();
  return bytes.str();
}

class BenchServe : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    Result<std::unique_ptr<ServerProcess>> started =
        ServerProcess::Start({kModel, "--memory-nodes", "1", "--api-key", "secret"});
    ASSERT_TRUE(started.ok()) << started.status();
    server_ = *std::move(started);
  }
  static void TearDownTestSuite() { server_.reset(); }

  static CommandOutput RunBench(std::vector<std::string> arguments) {
    const std::vector<std::string> common = {"bench",        "serve",     "--base-url",
                                             server_->url(), "--api-key", "secret"};
    arguments.insert(arguments.begin(), common.begin(), common.end());
    return RunLamina(arguments);
  }

  // Tokens that the server itself counted.
  static double Counter(const std::string& name) {
    const std::string metrics = server_->client().Get("/metrics")->body;
    const size_t at = metrics.find("\n" + name + "{");
    return at == std::string::npos ? 0 : std::stod(metrics.substr(metrics.find("} ", at) + 2));
  }

  static std::unique_ptr<ServerProcess> server_;
  TemporaryFolder folder_;
};

std::unique_ptr<ServerProcess> BenchServe::server_;

TEST_F(BenchServe, CountsWhatTheServerCounts) {
  const double prompt_before = Counter("vllm:prompt_tokens_total"),
               output_before = Counter("vllm:generation_tokens_total"),
               met_before = Counter("lamina:slo_met_total");
  const CommandOutput out = RunBench({"--random-input-len",
                                      "uniform:20:60",
                                      "--extra-body",
                                      R"({"slo": {"ttft_ms": 600000}})",
                                      "--random-output-len",
                                      "uniform:1:9",
                                      "--num-prompts",
                                      "30",
                                      "--request-rate",
                                      "100",
                                      "--ignore-eos",
                                      "--num-warmups",
                                      "0",
                                      "--json",
                                      "--price-per-hour",
                                      "3.6",
                                      "--goodput",
                                      "ttft:60000",
                                      "tpot:60000",
                                      "--result-filename",
                                      folder_ / "r.json",
                                      "--requests-filename",
                                      folder_ / "r.jsonl",
                                      "--svg-filename",
                                      folder_ / "r.svg"});
  ASSERT_EQ(out.exit_status, 0) << out.err;
  const json result = json::parse(out.out);
  EXPECT_EQ(result["completed"], 30);
  EXPECT_EQ(result["shorter_than_wanted"], 0);
  EXPECT_EQ(result["total_input_tokens"], Counter("vllm:prompt_tokens_total") - prompt_before);
  EXPECT_EQ(result["total_output_tokens"], Counter("vllm:generation_tokens_total") - output_before);
  EXPECT_EQ(Counter("lamina:slo_met_total") - met_before, 30) << "objectives of --extra-body";
  EXPECT_GE(result["duration"].get<double>(), 0.3);
  EXPECT_NEAR(result["cost"]["tokens_per_dollar"].get<double>(),
              result["output_throughput"].get<double>() * 1000, 1e-3);
  EXPECT_DOUBLE_EQ(result["request_goodput"].get<double>(),
                   result["request_throughput"].get<double>());
  EXPECT_GT(result["mean_ttft_ms"].get<double>(), 0);
  EXPECT_LE(result["median_ttft_ms"].get<double>(), result["p99_ttft_ms"].get<double>());
  EXPECT_EQ(result["tokenizer_id"], kModel);  // the server names its folder
  EXPECT_THAT(result["command"].get<std::string>(), HasSubstr("--api-key KEY"));
  EXPECT_EQ(json::parse(Contents(folder_ / "r.json"))["duration"], result["duration"]);
  EXPECT_THAT(Contents(folder_ / "r.svg"), HasSubstr("</svg>"));
  std::istringstream lines(Contents(folder_ / "r.jsonl"));
  double input = 0;
  for (std::string line; std::getline(lines, line);) {
    const json request = json::parse(line);
    const auto tokens = request["input_tokens"].get<double>();
    // Prompts of the lengths that were asked for.
    EXPECT_TRUE(tokens >= 20 && tokens <= 60) << line;
    input += tokens;
  }
  EXPECT_EQ(input, result["total_input_tokens"]);
}

TEST_F(BenchServe, TokenIdsChatsAndClosedLoops) {
  CommandOutput out =
      RunBench({"--random-input-len", "33", "--random-output-len", "3", "--num-prompts", "12",
                "--prompt-format", "ids", "--ignore-eos", "--max-concurrency", "2", "--json"});
  ASSERT_EQ(out.exit_status, 0) << out.err;
  json result = json::parse(out.out);
  EXPECT_EQ(result["total_input_tokens"], 12 * 33);
  EXPECT_EQ(result["generator"]["connections"], 2);
  out = RunBench({"--backend", "openai-chat", "--random-input-len", "33", "--random-output-len",
                  "3", "--num-prompts", "5", "--ignore-eos"});
  ASSERT_EQ(out.exit_status, 0) << out.err;
  EXPECT_THAT(out.out,
              HasSubstr("completed requests                                               5"));
}

TEST_F(BenchServe, ATraceWhosePrefixesTheServerFinds) {
  std::string trace;
  for (int i = 0; i < 4; ++i)
    trace += json{{"timestamp", 100 * i},
                  {"input_length", 520 + i},
                  {"output_length", 2},
                  {"hash_ids", {7, 100 + i}}}
                 .dump() +
             "\n";
  trace += json{{"timestamp", 400},
                {"input_length", 90000},
                {"output_length", 2},
                {"hash_ids", std::vector<int>(176)}}
               .dump() +
           "\n";
  WriteFile(folder_ / "trace.jsonl", trace);
  const double hits_before = Counter("vllm:prefix_cache_hits_total");
  const CommandOutput out = RunBench({"--dataset-path", folder_ / "trace.jsonl", "--request-rate",
                                      "trace", "--rate-scale", "0.2", "--ignore-eos", "--json"});
  ASSERT_EQ(out.exit_status, 0) << out.err;
  const json result = json::parse(out.out);
  EXPECT_EQ(result["completed"], 4);
  EXPECT_EQ(result["workload"]["left_out"], 1);  // longer than the model's context
  EXPECT_EQ(result["total_input_tokens"], 4 * 520 + 6);
  EXPECT_GE(result["duration"].get<double>(), 1.5);
  EXPECT_GE(Counter("vllm:prefix_cache_hits_total") - hits_before, 3 * 512);
}

// Another client, written apart, puts the same load on the same server: the counts are equal, and
// the times as close as two runs on a busy machine are.
TEST_F(BenchServe, ASecondClientMeasuresTheSame) {
  constexpr int kRequests = 25, kRate = 10, kInputTokens = 500, kOutputTokens = 12;
  const std::string count = std::to_string(kRequests), rate = std::to_string(kRate),
                    input = std::to_string(kInputTokens), output = std::to_string(kOutputTokens);
  const auto ours = [&](const std::string& seed) {  // prompts of its own
    const CommandOutput out =
        RunBench({"--num-prompts", count, "--request-rate", rate, "--burstiness", "inf",
                  "--prompt-format", "ids", "--ignore-eos", "--random-input-len", input,
                  "--random-output-len", output, "--seed", seed, "--json"});
    EXPECT_EQ(out.exit_status, 0) << out.err;
    return json::parse(out.out, nullptr, false);
  };
  const json first = ours("7");
  const Result<CommandOutput> python =
      RunCommand({"python3", SourcePath("/tests/e2e/second_client.py"), server_->url(), count, rate,
                  input, output, "3", "secret"},
                 Deadline::After(std::chrono::seconds(60)));
  if (python.status().code() == StatusCode::kNotFound) GTEST_SKIP() << "python3 is not installed";
  ASSERT_TRUE(python.ok()) << python.status();
  ASSERT_EQ(python->exit_status, 0) << python->err;
  const json theirs = json::parse(python->out, nullptr, false);
  const json second = ours("8");
  for (const json& run : {first, second}) {
    ASSERT_FALSE(run.is_discarded() || theirs.is_discarded()) << python->out;
    EXPECT_EQ(run["completed"], theirs["completed"]);
    EXPECT_EQ(run["completed"], kRequests);
    EXPECT_EQ(run["total_input_tokens"], theirs["total_input_tokens"]);
    EXPECT_EQ(run["total_input_tokens"], kRequests * kInputTokens);
    EXPECT_EQ(run["total_output_tokens"], theirs["total_output_tokens"]);
    EXPECT_EQ(run["total_output_tokens"], kRequests * kOutputTokens);
    EXPECT_EQ(run["counted_by_events"], 0);
    EXPECT_GE(run["duration"].get<double>(), static_cast<double>(kRequests - 1) / kRate);
    EXPECT_NEAR(run["duration"].get<double>() / theirs["duration"].get<double>(), 1, 0.3);
  }
  // Python needs some milliseconds of its own, next to which prompts must take long, and the
  // machine is as busy as it is; of our two runs the one that is nearer counts.
  for (const char* time : {"median_ttft_ms", "median_tpot_ms"}) {
    const double their = theirs[time].get<double>();
    const auto ratio = [&](const json& run) {
      return std::max(run[time].get<double>() / their, their / run[time].get<double>());
    };
    EXPECT_LT(std::min(ratio(first), ratio(second)), 3)
        << time << ": " << first[time] << ", " << second[time] << " and " << their;
  }
}

TEST_F(BenchServe, WhatIsWrongIsSaid) {
  const auto error = [](std::vector<std::string> arguments) {
    const CommandOutput out = RunBench(std::move(arguments));
    EXPECT_EQ(out.exit_status, 1);
    return out.err;
  };
  EXPECT_THAT(error({"--goodput", "speed:3"}), HasSubstr("--goodput 'speed:3'"));
  EXPECT_THAT(error({"--extra-body", "[1]", "--random-input-len", "9"}),
              HasSubstr("--extra-body is not a JSON object: [1]"));
  EXPECT_THAT(error({"--dataset-path", "/no/such"}), HasSubstr("/no/such: No such file"));
  EXPECT_THAT(error({"--result-filename", "/no/such/r.json"}),
              HasSubstr("cannot write /no/such/r.json"));
  EXPECT_THAT(error({"--endpoint", "/v1/nothing", "--random-input-len", "9"}),
              HasSubstr("the warm-up request failed: HTTP 404"));
  EXPECT_THAT(error({"--random-input-len", "5000"}), HasSubstr("no request fits into 1024 tokens"));
  EXPECT_THAT(RunLamina({"bench", "serve", "--base-url", server_->url()}).err,
              HasSubstr("API key"));
  EXPECT_THAT(RunLamina({"bench", "serve", "--base-url", "http://127.0.0.1:1"}).err,
              HasSubstr("cannot connect to 127.0.0.1:1"));
  EXPECT_THAT(RunLamina({"bench", "serve", "--help"}).out,
              HasSubstr("lamina bench serve --random-input-len"));
}

}  // namespace bench_serve_test
}  // namespace lamina::testing
