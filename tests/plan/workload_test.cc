#include "plan/workload/workload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <set>
#include <thread>
#include <tuple>

#include "base/input_file.h"
#include "plan/workload/trace_reader.h"
#include "tests/support/temporary_folder.h"

namespace lamina {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A word is a token.
TokenCounter Words() {
  return {[](std::string_view text) { return 1 + std::count(text.begin(), text.end(), ' '); },
          "words"};
}

class TraceTest : public ::testing::Test {
 protected:
  std::string File(const std::string& bytes) {
    const std::string path = folder_ / "trace";
    WriteFile(path, bytes);
    return path;
  }

  RequestTrace Read(const std::string& bytes) {
    const std::string path = File(bytes);
    const Result<TraceFormat> format = DetectTraceFormat(path);
    EXPECT_TRUE(format.ok()) << format.status();
    if (!format.ok()) return {};
    const Result<RequestTrace> trace = ReadTrace(path, *format, Words());
    EXPECT_TRUE(trace.ok()) << trace.status();
    return trace.ok() ? *trace : RequestTrace();
  }

  // The message behind the folder's name.
  std::string Error(const std::string& bytes, TraceFormat format) {
    const Status status = ReadTrace(File(bytes), format, Words()).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr(folder_.path()));
    return status.message().substr(std::min(status.message().size(), folder_.path().size() + 1));
  }

  Result<RequestTrace> Make(const std::string& bytes, WorkloadOptions options) {
    if (!bytes.empty()) options.dataset_path = File(bytes);
    return MakeWorkload(options, Words());
  }

  TemporaryFolder folder_;
};

std::vector<double> ArrivalsOf(const RequestTrace& trace) {
  std::vector<double> arrivals;
  for (const TraceRequest& request : trace.requests) arrivals.push_back(request.arrival_seconds);
  return arrivals;
}

std::vector<int64_t> InputsOf(const RequestTrace& trace) {
  std::vector<int64_t> inputs;
  for (const TraceRequest& request : trace.requests) inputs.push_back(request.input_tokens);
  return inputs;
}

constexpr char kAzure[] =
    "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
    "2023-12-31 23:59:59.5000000,374,44\r\n"
    "2024-01-01 00:00:01.2500000,396,109\r\n"
    "2024-01-01 00:00:02.0000000,5,0\r\n"
    "2024-01-01 01:00:00.5000000,879,55";  // no end of line

TEST_F(TraceTest, Azure) {
  const RequestTrace trace = Read(kAzure);
  EXPECT_THAT(ArrivalsOf(trace), ElementsAre(0, 1.75, 3601));
  EXPECT_THAT(InputsOf(trace), ElementsAre(374, 396, 879));
  EXPECT_EQ(trace.requests[2].output_tokens, 55);
  EXPECT_EQ(trace.num_left_out, 1);  // without an answer
  EXPECT_TRUE(trace.has_arrivals);
  EXPECT_EQ(trace.counted_by, "the trace");
  const RequestTrace later = Read(
      "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.009930+00:00,1,2\n2024-05-10 "
      "00:00:01.009930+00:00,1,2\n");
  EXPECT_NEAR(later.requests[1].arrival_seconds, 1, 1e-6);
}

TEST_F(TraceTest, AzureErrorsNameTheLine) {
  const std::string head =
      "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:15:46.68,1,2\r\n";
  const auto error = [&](const std::string& line) {
    return Error(head + line, TraceFormat::kAzure);
  };
  EXPECT_THAT(error("yesterday,1,2"), HasSubstr("trace:3: 'yesterday' is no time"));
  EXPECT_THAT(error("2023-13-16 18:15:46.68,1,2"), HasSubstr("trace:3: '2023-13-16"));
  EXPECT_THAT(error("2023-11-16 18:15:46.68,x,2"),
              HasSubstr("trace:3: 'x' is no number of tokens"));
  EXPECT_THAT(error("2023-11-16 18:15:46.68,9223372036854775807,1"),
              HasSubstr("is no number of tokens"));
  EXPECT_THAT(error("2023-11-16 18:15:46.68,1,-2"),
              HasSubstr("trace:3: '-2' is no number of tokens"));
  EXPECT_THAT(error("\r\n2023-11-16 18:15:46.68,1"),
              HasSubstr("trace:4: 2 fields; the header has 3"));
  EXPECT_THAT(Error("Time,Context\n", TraceFormat::kAzure),
              HasSubstr("trace:1: there is no column 'TIMESTAMP'"));
  EXPECT_THAT(Error("", TraceFormat::kAzure), HasSubstr("empty"));
  EXPECT_THAT(Error("TIMESTAMP,ContextTokens,GeneratedTokens\n", TraceFormat::kAzure),
              HasSubstr("no request in it"));
}

TEST_F(TraceTest, BurstGptColumnsAreFoundByName) {
  const RequestTrace trace = Read(
      "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log "
      "Type\n"
      "45.5,\"a,b\",1,GPT-4,472,18,490,Conversation log\n"
      "5,,1,ChatGPT,10,0,10,API log\n"
      "50,,1,ChatGPT,1087,230,1317,API log\n");
  EXPECT_THAT(ArrivalsOf(trace), ElementsAre(0, 4.5));
  EXPECT_THAT(InputsOf(trace), ElementsAre(472, 1087));
  EXPECT_EQ(trace.num_left_out, 1);
  EXPECT_THAT(Error("Timestamp,Request tokens,Response tokens\nsoon,1,1\n", TraceFormat::kBurstGpt),
              HasSubstr("trace:2: 'soon' is no time"));
}

TEST_F(TraceTest, TimesBeyondAYearNameTheLine) {
  const std::string head = "Timestamp,Request tokens,Response tokens\n5,1,1\n";
  EXPECT_THAT(Error(head + "1e300,1,1\n", TraceFormat::kBurstGpt),
              HasSubstr("trace:3: a request at 1e+300 s is more than a year away"));
  EXPECT_THAT(
      Error("Timestamp,Request tokens,Response tokens\n1e300,1,1\n", TraceFormat::kBurstGpt),
      HasSubstr("trace:2: "));
  EXPECT_THAT(Error(head + "40000000,1,1\n", TraceFormat::kBurstGpt), HasSubstr("trace:3: "));
  EXPECT_THAT(Error("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-01-01 00:00:00,1,1\n2025-01-01 "
                    "00:00:00,1,1\n",
                    TraceFormat::kAzure),
              HasSubstr("trace:3: "));
  EXPECT_THAT(Error("{\"timestamp\": 0, \"input_length\": 1, \"output_length\": 1}\n"
                    "{\"timestamp\": 1e25, \"input_length\": 1, \"output_length\": 1}\n",
                    TraceFormat::kMooncake),
              HasSubstr("trace:2: "));
  WorkloadOptions options;
  options.request_rate = "trace";
  options.rate_scale = 1e-30;
  EXPECT_THAT(Make(kAzure, options).status().message(),
              HasSubstr("--rate-scale 1e-30 makes the trace longer than a year"));
  options.rate_scale = 1;
  options.request_rate = "1e-30";
  EXPECT_THAT(Make(kAzure, options).status().message(), HasSubstr("--request-rate"));
}

constexpr char kMooncake[] =
    "{\"timestamp\": 1000, \"input_length\": 600, \"output_length\": 5, \"hash_ids\": [46, 47]}\n"
    "{\"timestamp\": 3500, \"input_length\": 512, \"output_length\": 3, \"hash_ids\": [46]}\n";

TEST_F(TraceTest, Mooncake) {
  const RequestTrace trace = Read(kMooncake);
  EXPECT_THAT(ArrivalsOf(trace), ElementsAre(0, 2.5));
  EXPECT_THAT(InputsOf(trace), ElementsAre(600, 512));
  EXPECT_THAT(trace.requests[0].prefix_blocks, ElementsAre(46, 47));
  EXPECT_EQ(trace.block_tokens, 512);
  const auto error = [&](const std::string& line) {
    return Error(kMooncake + line, TraceFormat::kMooncake);
  };
  EXPECT_THAT(error("{\"timestamp\": 1"), HasSubstr("trace:3: this is not a JSON object"));
  EXPECT_THAT(error("{\"timestamp\": 1, \"input_length\": 3}"),
              HasSubstr("trace:3: expected 'output_length'"));
  EXPECT_THAT(
      error("{\"timestamp\": 1, \"input_length\": 513, \"output_length\": 3, \"hash_ids\": [1]}"),
      HasSubstr("not 1"));
  EXPECT_THAT(
      error("{\"timestamp\": 1, \"input_length\": 5, \"output_length\": 3, \"hash_ids\": [\"a\"]}"),
      HasSubstr("list of integers"));
}

std::string WordsOf(int count) {
  std::string text = "w";
  for (int i = 1; i < count; ++i) text += " w";
  return text;
}

std::string ShareGptEntry(int prompt, int answer) {
  return "{\"conversations\": [{\"from\": \"human\", \"value\": \"" + WordsOf(prompt) +
         "\"}, {\"from\": \"gpt\", \"value\": \"" + WordsOf(answer) + "\"}]}";
}

TEST_F(TraceTest, ShareGptIsPrunedAsVllmDoes) {
  const std::string one_turn = "{\"conversations\": [{\"value\": \"a [ \\\" b\"}]}";
  const RequestTrace trace =
      Read("[" + ShareGptEntry(4, 4) + ",\n" + one_turn + "," + ShareGptEntry(3, 9) + "," +
           ShareGptEntry(9, 3) + "," + ShareGptEntry(1024, 1024) + "," + ShareGptEntry(1025, 4) +
           "," + ShareGptEntry(1024, 1025) + "]");
  EXPECT_THAT(InputsOf(trace), ElementsAre(4, 1024));
  EXPECT_EQ(trace.num_left_out, 5);
  EXPECT_EQ(trace.requests[0].prompt, "w w w w");
  EXPECT_EQ(trace.counted_by, "words");
  EXPECT_FALSE(trace.has_arrivals);
  EXPECT_THAT(
      Error("[" + one_turn + ",\n " + ShareGptEntry(4, 4) + ",\n\n 7]", TraceFormat::kShareGpt),
      HasSubstr("trace:4: entry 2: expected an object"));
  EXPECT_THAT(Error("[{},\n", TraceFormat::kShareGpt), HasSubstr("trace:2: this is not JSON"));
  EXPECT_THAT(Error("[1e999]", TraceFormat::kShareGpt), HasSubstr("trace: this is not JSON"));
  EXPECT_THAT(Error("{}", TraceFormat::kShareGpt), HasSubstr("trace:1: expected a JSON list"));
  EXPECT_THAT(Error("[\n{}]", TraceFormat::kShareGpt), HasSubstr("trace:2: entry 0"));
}

TEST_F(TraceTest, AlpacaJoinsInstructionAndInput) {
  const RequestTrace trace =
      Read(R"([{"instruction": "Add", "input": "1 and 2", "output": "It is 3"},
                                      {"instruction": "Say nothing", "input": "", "output": ""}])");
  ASSERT_EQ(trace.requests.size(), 1u);
  EXPECT_EQ(trace.requests[0].prompt, "Add\n1 and 2");
  EXPECT_EQ(trace.requests[0].output_tokens, 3);
  EXPECT_EQ(trace.num_left_out, 1);
  EXPECT_THAT(Error("[{\"instruction\": 3}]", TraceFormat::kAlpaca),
              HasSubstr("trace:1: entry 0: expected an object with an 'instruction'"));
}

TEST_F(TraceTest, WhatIsNoTraceIsSaid) {
  EXPECT_EQ(DetectTraceFormat(folder_ / "absent").status().code(), StatusCode::kNotFound);
  EXPECT_THAT(DetectTraceFormat(File("once upon a time")).status().message(),
              HasSubstr("azure, burstgpt, mooncake, sharegpt, alpaca"));
  EXPECT_THAT(DetectTraceFormat(File("once upon a time")).status().message(),
              ::testing::Not(HasSubstr("--")))
      << "each command has options of its own";
  EXPECT_THAT(Make("once upon a time", {}).status().message(),
              HasSubstr("say what it is with --dataset-name"));
  EXPECT_THAT(ParseTraceFormat("parquet").status().message(), HasSubstr("'parquet' is no format"));
}

TEST_F(TraceTest, FilesThatNeverEndAreRefused) {
  for (const TraceFormat format :
       {TraceFormat::kAzure, TraceFormat::kBurstGpt, TraceFormat::kMooncake, TraceFormat::kShareGpt,
        TraceFormat::kAlpaca}) {
    const Status status = ReadTrace("/dev/zero", format, Words()).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("/dev/zero:"));
    EXPECT_LT(status.message().size(), 200u);
  }
  EXPECT_THAT(DetectTraceFormat("/dev/zero").status().message(),
              HasSubstr("/dev/zero is no regular file"));
  EXPECT_THAT(DetectTraceFormat(folder_.path()).status().message(),
              HasSubstr("is no regular file"));
}

TEST_F(TraceTest, LinesHaveAnEnd) {
  constexpr size_t kMiB = 1 << 20;
  const std::string lines = std::string(kAzure) + "\n";
  EXPECT_THAT(Error(lines + std::string(kMiB + 1, '1'), TraceFormat::kAzure),
              HasSubstr("trace:6: the line has more than 1048576 bytes"));
  EXPECT_THAT(Error(lines + std::string(3 * kMiB, '1') + "\n" + kAzure, TraceFormat::kAzure),
              HasSubstr("trace:6: the line has more"));
  std::string long_one = "2024-01-01 02:00:00,7,8";
  long_one += std::string(kMiB - 1 - long_one.size(), ' ') + "\n2024-01-01 03:00:00,9,8";
  EXPECT_THAT(InputsOf(Read(lines + long_one)), ::testing::ElementsAre(374, 396, 879, 7, 9))
      << "as long as it may be";
}

TEST_F(TraceTest, APipeIsReadOnce) {
  const std::string pipe = folder_ / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(DetectTraceFormat(pipe).status().message(), HasSubstr("is no regular file"))
      << "what was read would be missing later";
  for (const auto& [format, bytes, num_requests] :
       {std::tuple(TraceFormat::kAzure, std::string(kAzure), 3u),
        std::tuple(TraceFormat::kAlpaca, std::string(R"([{"instruction": "a b", "output": "c"}])"),
                   1u)}) {
    std::thread writer([&pipe, text = bytes] { std::ofstream(pipe) << text; });
    const Result<RequestTrace> trace = ReadTrace(pipe, format, Words());
    writer.join();
    ASSERT_TRUE(trace.ok()) << trace.status();
    EXPECT_EQ(trace->requests.size(), num_requests);
  }
}

TEST(InputFile, HasSoManyBytesAndNoMore) {
  const TemporaryFolder folder;
  const std::string text(3'000'000, 'x');
  WriteFile(folder / "text", text);
  EXPECT_EQ(ReadInput(folder / "text", text.size()).value(), text);
  EXPECT_THAT(ReadInput(folder / "text", text.size() - 1).status().message(),
              HasSubstr("more than the 2999999 bytes"));
  EXPECT_EQ(ReadInput("/dev/zero", 1 << 21).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(ReadInput(folder / "none", 1).status().code(), StatusCode::kNotFound);
  EXPECT_FALSE(ReadInput(folder.path(), 1).ok()) << "a folder";
  WriteFile(folder / "empty", "");
  EXPECT_EQ(ReadInput(folder / "empty", 0).value(), "");
}

TEST_F(TraceTest, TheTracesOwnTimesCanBeSpedUp) {
  WorkloadOptions options;
  options.request_rate = "trace";
  options.rate_scale = 2;
  Result<RequestTrace> trace = Make(kAzure, options);
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_THAT(ArrivalsOf(*trace), ElementsAre(0, 0.875, 1800.5));
  options.max_total_len = 900;
  options.output_len_override = 510;  // 374 + 510 fits, the others do not
  trace = Make(kAzure, options);
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_THAT(InputsOf(*trace), ElementsAre(374));
  EXPECT_EQ(trace->num_left_out, 3);
}

TEST_F(TraceTest, OtherArrivalsReplaceTheTraces) {
  WorkloadOptions options;
  options.num_prompts = 2;
  options.request_rate = "4";
  options.burstiness = std::numeric_limits<double>::infinity();
  const Result<RequestTrace> trace = Make(kAzure, options);
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_THAT(ArrivalsOf(*trace), ElementsAre(0.25, 0.5));
}

TEST_F(TraceTest, TextsAreChosenBySeed) {
  std::string list = "[";
  for (int i = 4; i < 40; ++i) list += (i == 4 ? "" : ",") + ShareGptEntry(i, 4);
  WorkloadOptions options;
  options.num_prompts = 10;
  const std::vector<int64_t> first = InputsOf(*Make(list + "]", options)),
                             again = InputsOf(*Make(list + "]", options));
  options.seed = 1;
  EXPECT_EQ(first, again);
  EXPECT_NE(first, InputsOf(*Make(list + "]", options)));
  EXPECT_EQ(std::set<int64_t>(first.begin(), first.end()).size(), 10u);
}

TEST_F(TraceTest, RandomLengths) {
  WorkloadOptions options;
  options.num_prompts = 100;
  options.input_len = "uniform:3:5";
  options.output_len = "7";
  const Result<RequestTrace> trace = Make("", options);
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_EQ(trace->source, "random, uniform:3:5 in, 7 out");
  EXPECT_EQ(trace->requests.size(), 100u);
  const std::vector<int64_t> inputs = InputsOf(*trace);
  EXPECT_EQ(std::set<int64_t>(inputs.begin(), inputs.end()), (std::set<int64_t>{3, 4, 5}));
  EXPECT_FALSE(trace->has_arrivals);
}

TEST_F(TraceTest, ContradictionsAreSaid) {
  const auto error = [&](const std::string& bytes,
                         const std::function<void(WorkloadOptions&)>& change) {
    WorkloadOptions options;
    change(options);
    return Make(bytes, options).status().message();
  };
  EXPECT_THAT(error("", [](auto& o) { o.request_rate = "trace"; }), HasSubstr("has no times"));
  EXPECT_THAT(error("", [](auto& o) { o.request_rate = "fast"; }),
              HasSubstr("'fast' is not understood"));
  EXPECT_THAT(error("", [](auto& o) { o.rate_scale = 2; }),
              HasSubstr("needs --request-rate trace"));
  EXPECT_THAT(error("", [](auto& o) { o.dataset_name = "azure"; }),
              HasSubstr("needs a --dataset-path"));
  EXPECT_THAT(error("", [](auto& o) { o.num_prompts = 0; }), HasSubstr("need --num-prompts"));
  EXPECT_THAT(error("", [](auto& o) { o.max_total_len = 10; }),
              HasSubstr("no request fits into 10 tokens"));
  EXPECT_THAT(error(kAzure, [](auto& o) { o.lengths_of = "alpaca"; }), HasSubstr("--lengths-of"));
  EXPECT_THAT(error(kAzure, [](auto& o) { o.ramp = "linear", o.request_rate = "3"; }),
              HasSubstr("leave --request-rate out"));
}

struct TraceSummary {
  double mean_input_tokens = 0, mean_output_tokens = 0;
  double requests_per_second = 0;  // between the first and the last arrival
  // The standard deviation over the mean of the gaps between arrivals: 1 for Poisson arrivals, more
  // for bursts.
  double gap_cv = 0;
};

// REQUIRES: the requests do not all arrive at the same time.
TraceSummary Summarize(const std::vector<TraceRequest>& requests) {
  TraceSummary summary;
  const auto count = static_cast<double>(requests.size());
  for (const TraceRequest& request : requests) {
    summary.mean_input_tokens += static_cast<double>(request.input_tokens) / count;
    summary.mean_output_tokens += static_cast<double>(request.output_tokens) / count;
  }
  const double span = requests.back().arrival_seconds - requests.front().arrival_seconds;
  const double mean_gap = span / (count - 1);
  summary.requests_per_second = 1 / mean_gap;
  double squares = 0;
  for (size_t i = 1; i < requests.size(); ++i)
    squares +=
        std::pow(requests[i].arrival_seconds - requests[i - 1].arrival_seconds - mean_gap, 2);
  summary.gap_cv = std::sqrt(squares / (count - 1)) / mean_gap;
  return summary;
}

// The files that the figures of the documentation come from: `LAMINA_TRACES` is the folder that
// holds them.
TEST(PublishedTraces, HaveTheirMeans) {
  const char* folder = std::getenv("LAMINA_TRACES");
  if (folder == nullptr)
    GTEST_SKIP() << "LAMINA_TRACES, the folder of the published traces, is not set";
  struct Case {
    const char* file;
    size_t requests;
    double input, output, rate, gap_cv;
  };
  for (const Case& c : {Case{"azure_llm_2023_conv.csv", 19366, 1154.7, 211.1, 5.53, 1.09},
                        {"azure_llm_2023_code.csv", 8819, 2047.8, 27.9, 2.57, 13.2},
                        {"mooncake_conversation.jsonl", 12031, 12035.1, 342.6, 3.40, 1.0}}) {
    const std::string path = std::string(folder) + "/" + c.file;
    const Result<RequestTrace> trace = ReadTrace(path, *DetectTraceFormat(path), Words());
    ASSERT_TRUE(trace.ok()) << trace.status();
    const TraceSummary summary = Summarize(trace->requests);
    EXPECT_EQ(trace->requests.size(), c.requests);
    EXPECT_NEAR(summary.mean_input_tokens, c.input, 0.06);
    EXPECT_NEAR(summary.mean_output_tokens, c.output, 0.06);
    EXPECT_NEAR(summary.requests_per_second, c.rate, 0.006);
    if (trace->block_tokens == 0) {  // Mooncake's times are in steps of 3 seconds
      EXPECT_NEAR(summary.gap_cv, c.gap_cv, 0.06);
    }
  }
}

}  // namespace
}  // namespace lamina
