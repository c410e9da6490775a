// Objectives and priorities of requests over the API of a served cluster.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "tests/support/paths.h"
#include "tests/support/server_process.h"
#include "tests/support/serving.h"

namespace lamina::testing {
namespace {

using nlohmann::json;
using std::chrono::seconds;
using ::testing::HasSubstr;

class Latency : public ::testing::Test {
 protected:
  // One sequence runs at a time.
  void Serve(std::vector<std::string> more) {
    std::vector<std::string> arguments = {SourcePath("/models/tiny-stories"), "--memory-nodes", "1",
                                          "--max-num-seqs", "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    Result<std::unique_ptr<ServerProcess>> started = ServerProcess::Start(arguments);
    ASSERT_TRUE(started.ok()) << started.status();
    server_ = std::move(*started);
  }

  HttpResponse Complete(json body) {
    body.update({{"prompt", {1, 300, 301}}, {"ignore_eos", true}});
    Result<HttpResponse> response = server_->client().PostJson("/v1/completions", body.dump());
    EXPECT_TRUE(response.ok()) << response.status();
    return response.ok() ? *std::move(response) : HttpResponse();
  }

  int Count(const std::string& state) const {
    return server_->Status()["scheduler"]["num_" + state].get<int>();
  }
  bool Await(const std::string& state, int count) const {
    return AwaitTrue([&] { return Count(state) == count; }, Deadline::After(seconds(30)));
  }

  std::unique_ptr<ServerProcess> server_;
};

// Whatever runs has the only place for longer than the other may wait.
TEST_F(Latency, WhatCannotBeInTimeIsRefusedWhileItWaits) {
  Serve({"--scheduling-policy", "deadline", "--on-hopeless", "drop", "--slo-ttft", "5m"});
  std::jthread first([&] { EXPECT_EQ(Complete({{"max_tokens", 1000}}).status, 200); });
  ASSERT_TRUE(Await("running", 1));
  const HttpResponse late = Complete({{"max_tokens", 2}, {"slo", {{"ttft_ms", 5}}}});
  EXPECT_EQ(late.status, 503);
  EXPECT_THAT(late.body, HasSubstr("the first token was due after 5 ms"));
  EXPECT_EQ(Complete({{"max_tokens", 2}, {"slo", {{"tpot_ms", 60000}}}}).status, 200);
  first.join();
  EXPECT_EQ(Complete({{"max_tokens", 2}, {"priority", 1}}).status, 400);
  const Result<HttpResponse> metrics = server_->client().Get("/metrics");
  ASSERT_TRUE(metrics.ok());
  const auto counted = [&](const std::string& text, int count) {
    EXPECT_THAT(metrics->body, HasSubstr("\n" + text + " " + std::to_string(count) + "\n"));
  };
  const std::string labels = "model_name=\"tiny-stories\"}";
  counted("lamina:slo_met_total{engine=\"0\"," + labels, 2);
  counted("lamina:slo_missed_total{engine=\"0\",missed=\"dropped\"," + labels, 1);
  counted("lamina:slo_missed_total{engine=\"0\",missed=\"ttft\"," + labels, 0);
  EXPECT_EQ(server_->AwaitIdle(Deadline::After(seconds(10))), "");
}

TEST_F(Latency, TheSmallerPriorityIsServedFirst) {
  Serve({"--scheduling-policy", "priority"});
  std::mutex mutex;
  std::vector<int> ended;
  const auto complete = [&](int priority, int64_t max_tokens) {
    EXPECT_EQ(Complete({{"max_tokens", max_tokens}, {"priority", priority}}).status, 200);
    std::lock_guard lock(mutex);
    ended.push_back(priority);
  };
  std::vector<std::jthread> clients;
  clients.emplace_back(complete, 0, 1000);
  ASSERT_TRUE(Await("running", 1));
  clients.emplace_back(complete, 5, 50);
  ASSERT_TRUE(Await("waiting", 1));
  clients.emplace_back(complete, -5, 50);
  ASSERT_TRUE(Await("waiting", 2)) << "the first one was over too early";
  clients.clear();
  EXPECT_THAT(ended, ::testing::ElementsAre(0, -5, 5));
}

}  // namespace
}  // namespace lamina::testing
