#include "bench/serve/load_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "bench/serve/answer_meter.h"
#include "tests/support/timed_server.h"

namespace lamina::testing {
namespace {

using ::testing::HasSubstr;

std::vector<LoadRequest> Requests(int count, double gap_seconds = 0) {
  std::vector<LoadRequest> requests;
  for (int i = 0; i < count; ++i)
    requests.push_back({gap_seconds * i, "{\"request\":" + std::to_string(i) + "}", 5, 4});
  return requests;
}

LoadResult RunAll(const HttpUrl& url, const std::vector<LoadRequest>& requests,
                  const LoadOptions& options = {}) {
  Result<LoadResult> result = RunLoad(url, requests, options);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? *result : LoadResult();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// A busy machine makes single requests late, never early, so that the best of some is held to the
// truth.
TEST(LoadRun, MeasuresTheTimesOfTheServer) {
  const TimedServer server(
      [](const std::string&) { return Tokens(11, milliseconds(60), milliseconds(8)); });
  const LoadResult result = RunAll(server.url(), Requests(8, 0.05));
  std::vector<double> ttft, tpot, e2el;
  for (const RequestRecord& record : result.records) {
    ASSERT_TRUE(record.ok()) << record.error;
    EXPECT_EQ(record.input_tokens, 7);  // as the server counts
    EXPECT_EQ(record.output_tokens, 11);
    EXPECT_EQ(record.itl.size(), 10u);
    EXPECT_GE(record.ttft, 0.0599);
    EXPECT_GE(record.e2el, 0.1399);
    EXPECT_NEAR(record.tpot(), (record.e2el - record.ttft) / 10, 1e-12);
    ttft.push_back(record.ttft);
    tpot.push_back(record.tpot());
    e2el.push_back(record.e2el);
  }
  EXPECT_NEAR(*std::min_element(ttft.begin(), ttft.end()), 0.060, 0.003);
  EXPECT_NEAR(Median(tpot), 0.008, 0.0012);
  EXPECT_NEAR(*std::min_element(e2el.begin(), e2el.end()), 0.140, 0.004);
  EXPECT_GE(result.duration_seconds, 7 * 0.05 + 0.14 - 0.001);
  EXPECT_LT(result.duration_seconds, 7 * 0.05 + 0.14 + 0.5);
}

// A server breaks the silence of a stream by comments, before the first token and between two.
TEST(LoadRun, CommentsAreNoTokens) {
  const TimedServer server([](const std::string&) {
    TimedAnswer answer = Tokens(2, milliseconds(30), milliseconds(30));
    const std::string comment = Chunk(": waiting\n\n");
    answer.pieces[1].bytes = comment + answer.pieces[1].bytes;
    answer.pieces[0].bytes = Chunk(kTokenEvent);  // its head goes ahead, with a comment
    answer.pieces.insert(answer.pieces.begin(), TimedPiece{milliseconds(0), kStreamHead + comment});
    return answer;
  });
  const LoadResult result = RunAll(server.url(), Requests(1));
  const RequestRecord& record = result.records.at(0);
  ASSERT_TRUE(record.ok()) << record.error;
  EXPECT_EQ(record.output_tokens, 2);
  EXPECT_EQ(record.itl.size(), 1u);
  EXPECT_GE(record.ttft, 0.0299);
}

TEST(LoadRun, SendsAtTheTimesOfTheWorkload) {
  const TimedServer server(
      [](const std::string&) { return Tokens(1, milliseconds(0), milliseconds(0)); });
  const LoadResult result = RunAll(server.url(), Requests(20, 0.01));
  for (size_t i = 0; i < result.records.size(); ++i) {
    EXPECT_EQ(result.records[i].arrival, 0.01 * static_cast<double>(i));
    EXPECT_GE(result.records[i].sent, result.records[i].arrival);
  }
  const std::vector<TimePoint> times = server.request_times();
  ASSERT_EQ(times.size(), 20u);
  // 0.19 if the first was not late.
  EXPECT_GE(std::chrono::duration<double>(times.back() - times.front()).count(), 0.1);
  // Kept alive.
  EXPECT_LT(result.num_connections, 20);
}

TEST(LoadRun, KeepsToTheConcurrency) {
  const TimedServer server(
      [](const std::string&) { return Tokens(2, milliseconds(5), milliseconds(5)); });
  LoadOptions options;
  options.max_concurrency = 3;
  size_t most_in_flight = 0, last_done = 0;
  options.on_progress = [&](const LoadProgress& progress) {
    most_in_flight = std::max(most_in_flight, progress.in_flight);
    last_done = progress.completed;
    EXPECT_EQ(progress.total, 60u);
  };
  const LoadResult result = RunAll(server.url(), Requests(60), options);
  EXPECT_EQ(server.most_at_a_time(), 3);
  EXPECT_EQ(result.num_connections, 3);
  EXPECT_LE(most_in_flight, 3u);
  EXPECT_EQ(last_done, 60u);
  EXPECT_EQ(std::count_if(result.records.begin(), result.records.end(),
                          [](const RequestRecord& r) { return r.ok(); }),
            60);
}

TEST(LoadRun, AConnectionThatTheServerClosedWhileIdleIsReplaced) {
  const TimedServer server([](const std::string&) {
    TimedAnswer answer = Tokens(1, milliseconds(0), milliseconds(0));
    answer.close = true;
    return answer;
  });
  const LoadResult result = RunAll(server.url(), Requests(5, 0.03));
  for (const RequestRecord& record : result.records) EXPECT_TRUE(record.ok()) << record.error;
  EXPECT_EQ(result.num_connections, 5);
}

TEST(LoadRun, ErrorsHaveTheirKinds) {
  std::string half = kStreamHead + Chunk(kTokenEvent);
  const std::vector<std::pair<std::string, TimedAnswer>> cases = {
      {"HTTP 503", Plain("HTTP/1.1 503 X\r\nContent-Length: "
                         "37\r\n\r\n{\"error\":{\"message\":\"queue is full\"}}")},
      {"error in the stream",
       Plain(half + Chunk("data: {\"error\":{\"message\":\"node lost\"}}\n\n") +
             Chunk("data: [DONE]\n\n") + "0\r\n\r\n")},
      {"incomplete stream", Plain(half + "0\r\n\r\n")},
      {"connection lost", {{{milliseconds(0), half}}, true}},
      {"timed out", {{{milliseconds(0), half}, {milliseconds(600), ""}}, true}},
      {"no tokens", Plain("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")},
      {"not HTTP", Plain("SSH-2.0-OpenSSH_9.2\r\n\r\n")},
  };
  const TimedServer server([&](const std::string& request) {
    const size_t at = request.find("\"request\":");
    return cases.at(std::stoul(request.substr(at + strlen("\"request\":")))).second;
  });
  LoadOptions options;
  options.timeout = milliseconds(300);
  options.max_concurrency = 1;
  const LoadResult result = RunAll(server.url(), Requests(static_cast<int>(cases.size())), options);
  for (size_t i = 0; i < cases.size(); ++i)
    EXPECT_EQ(result.records[i].error_kind, cases[i].first) << result.records[i].error;
  EXPECT_EQ(result.records[0].error, "queue is full");
  EXPECT_EQ(result.records[1].error, "node lost");
  EXPECT_EQ(result.records[3].e2el, 0);
}

TEST(LoadRun, NobodyListens) {
  std::string url;
  {
    const TimedServer server([](const std::string&) { return Plain(""); });
    url = server.url_text();
  }
  const LoadResult result = RunAll(*HttpUrl::Parse(url), Requests(2));
  EXPECT_EQ(result.records[1].error_kind, "cannot connect");
  EXPECT_THAT(result.records[1].error, HasSubstr(url.substr(strlen("http://"))));
  const Result<LoadResult> unknown =
      RunLoad(*HttpUrl::Parse("http://no-such-host.invalid"), Requests(1), {});
  EXPECT_EQ(unknown.status().code(), StatusCode::kPeerLost);
}

// What it takes from a core is time of the processor, which a busy machine does not change.
TEST(LoadRun, TwoHundredRequestsASecondAreLittleWork) {
  const TimedServer server(
      [](const std::string&) { return Tokens(1, milliseconds(0), milliseconds(0)); });
  const LoadResult result = RunAll(server.url(), Requests(400, 0.005));
  EXPECT_EQ(std::count_if(result.records.begin(), result.records.end(),
                          [](const RequestRecord& r) { return r.ok(); }),
            400);
  EXPECT_LT(result.cpu_share, 0.3);
  EXPECT_GT(result.cpu_share, 0);
  EXPECT_LT(result.duration_seconds, 2 * 400 * 0.005);
}

TEST(LoadRun, NothingToSend) {
  EXPECT_EQ(RunAll(*HttpUrl::Parse("http://127.0.0.1:1"), {}).records.size(), 0u);
}

TEST(AnswerMeter, ARoleIsNoToken) {
  const TimePoint start;
  AnswerMeter meter(start);
  meter.Take(R"({"choices":[{"delta":{"role":"assistant","content":""},"finish_reason":null}]})",
             start + milliseconds(1));
  EXPECT_FALSE(meter.has_tokens());
  meter.Take(R"({"choices":[{"delta":{"role":"assistant","content":"Hi"},"finish_reason":null}]})",
             start + milliseconds(20));
  meter.Take(R"({"choices":[{"delta":{"content":""},"finish_reason":null}],"usage":null})",
             start + milliseconds(25));
  meter.Take(R"({"choices":[{"delta":{},"finish_reason":"stop"}]})", start + milliseconds(45));
  meter.Take(R"({"choices":[],"usage":{"prompt_tokens":12,"completion_tokens":9}})",
             start + milliseconds(70));
  EXPECT_FALSE(meter.done());
  meter.Take("[DONE]", start + milliseconds(71));
  EXPECT_TRUE(meter.done());
  EXPECT_DOUBLE_EQ(meter.ttft_seconds(), 0.020);
  EXPECT_DOUBLE_EQ(meter.e2el_seconds(), 0.045);
  EXPECT_THAT(meter.itl_seconds(), ::testing::ElementsAre(0.005, 0.020));
  EXPECT_EQ(meter.prompt_tokens(), 12);
  EXPECT_EQ(meter.output_tokens(), 9);
}

// An OpenAI endpoint without usage: an empty chunk at once, five tokens, and an empty one that says
// why the answer is over.
TEST(AnswerMeter, EmptyEventsAtBothEndsAreNoTokens) {
  const TimePoint start;
  for (const bool has_usage : {false, true}) {
    AnswerMeter meter(start);
    meter.Take(R"({"choices":[{"text":"","finish_reason":null}]})", start + milliseconds(29));
    EXPECT_TRUE(meter.has_tokens());
    for (int i = 0; i < 5; ++i)
      meter.Take(R"({"choices":[{"text":"a","finish_reason":null}]})",
                 start + milliseconds(102 + 10 * i));
    meter.Take(R"({"choices":[{"text":"","finish_reason":"stop"}]})", start + milliseconds(152));
    if (has_usage)
      meter.Take(R"({"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":6}})",
                 start + milliseconds(152));
    EXPECT_DOUBLE_EQ(meter.ttft_seconds(), 0.102);
    EXPECT_EQ(meter.counted_by_server(), has_usage);
    EXPECT_EQ(meter.output_tokens(), has_usage ? 6 : 5);
    EXPECT_DOUBLE_EQ(meter.e2el_seconds(), has_usage ? 0.152 : 0.142)
        << "the server counts the token that ends the text";
    EXPECT_EQ(meter.itl_seconds().size(), has_usage ? 5u : 4u);
  }
}

TEST(AnswerMeter, AnAnswerWithoutTextHasItsTimes) {
  const TimePoint start;
  AnswerMeter meter(start);
  meter.Take(R"({"choices":[{"text":"","finish_reason":"stop"}]})", start + milliseconds(7));
  meter.Take(R"({"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":1}})",
             start + milliseconds(8));
  ASSERT_TRUE(meter.has_tokens());
  EXPECT_DOUBLE_EQ(meter.ttft_seconds(), 0.007);
  EXPECT_DOUBLE_EQ(meter.e2el_seconds(), 0.007);
}

TEST(AnswerMeter, ReasoningAndCallsOfToolsAreTokens) {
  for (const char* delta : {R"({"role":"assistant","reasoning_content":"Hm"})",
                            R"({"tool_calls":[{"index":0}]})", R"({"content":"a"})"}) {
    AnswerMeter meter{TimePoint()};
    meter.Take(R"({"choices":[{"delta":)" + std::string(delta) + R"(,"finish_reason":null}]})",
               TimePoint() + milliseconds(1));
    meter.Take(R"({"choices":[{"delta":{},"finish_reason":"stop"}]})",
               TimePoint() + milliseconds(2));
    EXPECT_EQ(meter.output_tokens(), 1) << delta;
  }
}

TEST(AnswerMeter, CountsThatNoAnswerHasAreIgnored) {
  for (const char* count : {"9200000000000000000", "18446744073709551615", "-1", "1.5", "\"2\""}) {
    AnswerMeter meter{TimePoint()};
    meter.Take(R"({"choices":[{"text":"a"}]})", TimePoint() + milliseconds(1));
    meter.Take(R"({"choices":[],"usage":{"prompt_tokens":)" + std::string(count) +
                   R"(,"completion_tokens":)" + count + "}}",
               TimePoint() + milliseconds(2));
    EXPECT_EQ(meter.output_tokens(), 1) << count;
    EXPECT_EQ(meter.prompt_tokens(), 0) << count;
  }
}

TEST(AnswerMeter, WithoutUsageEventsAreCounted) {
  AnswerMeter meter{TimePoint()};
  for (const char* event : {R"({"choices":[{"text":"a"}]})", R"({"choices":[{"text":""}]})",
                            R"({"choices":[{"text":"b"}]})", "not json", "[]", R"({"choices":3})"})
    meter.Take(event, TimePoint() + milliseconds(1));
  EXPECT_EQ(meter.output_tokens(), 2);
  EXPECT_EQ(meter.prompt_tokens(), 0);
}

}  // namespace
}  // namespace lamina::testing
