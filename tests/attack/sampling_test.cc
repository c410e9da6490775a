// What clients can do to the random numbers and the distributions that tokens are drawn from.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "tests/support/http_fixture.h"
#include "tests/support/paths.h"
#include "tests/support/server_process.h"

namespace lamina::testing {
namespace {

using nlohmann::json;

class SamplingAttack : public ::testing::Test {
 protected:
  void SetUp() override {
    Result<std::unique_ptr<ServerProcess>> started =
        ServerProcess::Start({SourcePath("/models/tiny-stories"), "--memory-nodes", "1"});
    ASSERT_TRUE(started.ok()) << started.status();
    server_ = *std::move(started);
  }

  // The texts of all choices.
  std::vector<std::string> Texts(json body) const {
    body["ignore_eos"] = true;
    ClientConnection connection(static_cast<uint16_t>(server_->port()));
    connection.SendRequest("POST", "/v1/completions", body.dump());
    const ClientResponse response = connection.Receive();
    EXPECT_EQ(response.status, 200) << response.body;
    std::vector<std::string> texts;
    if (response.status != 200) return texts;
    const json answer = response.json();
    for (const json& choice : answer["choices"]) texts.push_back(choice["text"]);
    return texts;
  }

  std::unique_ptr<ServerProcess> server_;
};

size_t NumDifferent(const std::vector<std::string>& texts) {
  return std::set<std::string>(texts.begin(), texts.end()).size();
}

TEST_F(SamplingAttack, EqualPromptsOfOneRequestGetAnswersOfTheirOwn) {
  const std::vector<std::string> prompts(8, "Once upon a time");
  const json body = {{"prompt", prompts}, {"temperature", 1}, {"max_tokens", 48}};
  EXPECT_EQ(NumDifferent(Texts(body)), 8u);
  json seeded = body;
  seeded.update({{"seed", 5}, {"n", 2}});
  const std::vector<std::string> texts = Texts(seeded);
  EXPECT_EQ(NumDifferent(texts), 16u);
  EXPECT_EQ(Texts(seeded), texts) << "a seed decides all of them";
}

TEST_F(SamplingAttack, NeighbouringSeedsShareNoAnswer) {
  const json body = {
      {"prompt", "Once upon a time"}, {"temperature", 1}, {"max_tokens", 48}, {"n", 4}};
  std::vector<std::string> all;
  for (int seed = 20; seed < 24; ++seed) {
    json seeded = body;
    seeded["seed"] = seed;
    const std::vector<std::string> texts = Texts(seeded);
    all.insert(all.end(), texts.begin(), texts.end());
  }
  EXPECT_EQ(all.size(), 16u);
  EXPECT_EQ(NumDifferent(all), 16u);
}

// 1e-45 is the smallest float; what is smaller yet reads as 0.
TEST_F(SamplingAttack, TheLowestTemperaturesAreGreedy) {
  const json body = {{"prompt", "Once upon a time"}, {"max_tokens", 24}, {"seed", 3}};
  const auto at = [&](double temperature) {
    json asked = body;
    asked["temperature"] = temperature;
    return Texts(asked);
  };
  const std::vector<std::string> greedy = at(0);
  ASSERT_THAT(greedy, ::testing::ElementsAre(::testing::HasSubstr("in a garden")));
  for (const double temperature :
       {1e-300, 1e-45, 1.4e-45, 1e-40, 2.9e-39, 2.95e-39, 1e-38, 1e-30, 1e-10, 1e-6}) {
    EXPECT_EQ(at(temperature), greedy) << temperature;
  }
}

// Steps of the server so far.
int NumSteps(const ServerProcess& server) {
  const std::string name = "lamina:step_seconds_count{",
                    metrics = server.client().Get("/metrics")->body;
  const size_t at = metrics.find(name);
  return at == std::string::npos ? 0 : std::stoi(metrics.substr(metrics.find("} ", at) + 2));
}

// Followers used to start one by one, each a step after the other.
TEST(ManyChoices, OfOnePromptTakeNoMoreStepsThanAsManyRequests) {
  Result<std::unique_ptr<ServerProcess>> started = ServerProcess::Start(
      {SourcePath("/models/tiny-stories"), "--memory-nodes", "1", "--max-num-seqs", "160"});
  ASSERT_TRUE(started.ok()) << started.status();
  const int before = NumSteps(**started);
  ClientConnection connection(static_cast<uint16_t>((*started)->port()));
  connection.SendRequest(
      "POST", "/v1/completions",
      json{{"prompt", "Once upon a time"}, {"n", 128}, {"max_tokens", 16}, {"ignore_eos", true}}
          .dump());
  const ClientResponse response = connection.Receive();
  ASSERT_EQ(response.status, 200) << response.body;
  EXPECT_EQ(response.json()["choices"].size(), 128u);
  ASSERT_EQ((*started)->AwaitIdle(Deadline::After(std::chrono::seconds(20))), "");
  const int steps = NumSteps(**started) - before;
  EXPECT_GE(steps, 16);
  EXPECT_LE(steps, 24);
}

}  // namespace
}  // namespace lamina::testing
