// Beam search over the API of a served cluster: the answers of Hugging Face transformers
// (tests/api/beam_search_golden.py).
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/support/golden_prompts.h"
#include "tests/support/paths.h"
#include "tests/support/server_process.h"
#include "tests/support/serving.h"

namespace lamina::testing {
namespace {

using nlohmann::json;
using std::chrono::seconds;

class BeamSearchServed : public ::testing::Test {
 protected:
  void Serve(const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {TinyStoriesDir(), "--kv-dtype", "float32"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    Result<std::unique_ptr<ServerProcess>> started = ServerProcess::Start(arguments);
    ASSERT_TRUE(started.ok()) << started.status();
    server_ = std::move(*started);
  }

  json Post(const std::string& path, const json& body) {
    const Result<HttpResponse> response = server_->client().PostJson(path, body.dump());
    EXPECT_TRUE(response.ok()) << response.status();
    if (!response.ok()) return {};
    EXPECT_EQ(response->status, 200) << response->body;
    return json::parse(response->body);
  }

  std::string TextOf(const std::vector<TokenId>& tokens) {
    return Post("/detokenize", {{"tokens", tokens}})["prompt"];
  }

  void ExpectGolden() {
    std::ifstream file(SourcePath("/tests/api/beam_search_golden.json"));
    const json cases = json::parse(file)["cases"];
    ASSERT_EQ(cases.size(), 27u);
    for (const json& golden : cases) {
      const auto prompt = golden["prompt_ids"].get<std::vector<TokenId>>();
      const std::string prompt_text = TextOf(prompt);
      const json answer = Post("/v1/completions", {{"prompt", prompt},
                                                   {"use_beam_search", true},
                                                   {"n", golden["width"]},
                                                   {"length_penalty", golden["length_penalty"]},
                                                   {"early_stopping", golden["early_stopping"]},
                                                   {"max_tokens", golden["max_new_tokens"]}});
      ASSERT_EQ(answer["choices"].size(), golden["answers"].size());
      for (size_t i = 0; i < golden["answers"].size(); ++i) {
        auto tokens = golden["answers"][i]["tokens"].get<std::vector<TokenId>>();
        const bool ended = tokens.back() == kEnd;
        if (ended) tokens.pop_back();
        tokens.insert(tokens.begin(), prompt.begin(), prompt.end());
        EXPECT_EQ(prompt_text + answer["choices"][i]["text"].get<std::string>(), TextOf(tokens))
            << "answer " << i << " of " << golden["width"] << ", length_penalty "
            << golden["length_penalty"];
        EXPECT_EQ(answer["choices"][i]["finish_reason"], ended ? "stop" : "length");
      }
    }
    EXPECT_EQ(server_->AwaitIdle(Deadline::After(seconds(10))), "");
  }

  // Sends a signal to the node's daemon as soon as `num_tokens` more have been started with and
  // something runs.
  void SendInTheMiddle(const std::string& node, int signal, double num_tokens) const {
    const double before = server_->Status()["scheduler"]["num_started_tokens"].get<double>();
    const auto in_the_middle = [&] {
      const json scheduler = server_->Status()["scheduler"];
      return scheduler["num_started_tokens"].get<double>() >= before + num_tokens &&
             scheduler["num_running"].get<int>() > 0;
    };
    EXPECT_TRUE(AwaitTrue(in_the_middle, Deadline::After(seconds(60))));
    const std::optional<pid_t> daemon = server_->DaemonOf(node);
    ASSERT_TRUE(daemon) << node;
    EXPECT_EQ(kill(*daemon, signal), 0);
  }

  bool AwaitState(const std::string& name, const std::string& state) const {
    return AwaitTrue(
        [&] {
          const json status = server_->Status();
          for (const json& node : status["nodes"]) {
            if (node["name"] == name) return node["state"] == state;
          }
          return false;
        },
        Deadline::After(seconds(60)));
  }

  static constexpr TokenId kEnd = 2;
  std::unique_ptr<ServerProcess> server_;
};

TEST_F(BeamSearchServed, AnswersAsTransformersDoes) {
  Serve({"--memory-nodes", "2"});
  ExpectGolden();
  const json scheduler = server_->Status()["scheduler"];
  EXPECT_GT(scheduler["num_shared_tokens"].get<double>(),
            0.9 * scheduler["num_started_tokens"].get<double>())
      << "a beam computes one token in a step";
}

TEST_F(BeamSearchServed, AlsoWithoutAPrefixCache) {
  Serve({"--memory-nodes", "1", "--no-enable-prefix-caching"});
  ExpectGolden();
  EXPECT_EQ(server_->Status()["scheduler"]["num_shared_tokens"], 0);
}

// `lamina serve` starts the daemon again.
TEST_F(BeamSearchServed, AnswersTheSameWhenNodesAreKilledInTheMiddle) {
  Serve({"--memory-nodes", "2"});
  for (const std::string node : {"m0", "c0"}) {
    SCOPED_TRACE(node);
    std::jthread killer([&] { SendInTheMiddle(node, SIGKILL, 2000); });
    ExpectGolden();
    killer.join();
    EXPECT_TRUE(AwaitState(node, "ready"));
    EXPECT_NE(server_->output().find("node " + node + " was killed by signal 9"), std::string::npos)
        << server_->output();
  }
}

TEST_F(BeamSearchServed, AnswersTheSameWhenNodesDoNotRunForThreeSeconds) {
  Serve({"--memory-nodes", "2"});
  for (const std::string node : {"m0", "c0"}) {
    SCOPED_TRACE(node);
    std::jthread stopper([&] {
      SendInTheMiddle(node, SIGSTOP, 2000);
      const Deadline end = Deadline::After(seconds(3));
      AwaitTrue([&] { return end.Passed(); }, Deadline::After(seconds(5)));
      EXPECT_EQ(kill(server_->DaemonOf(node).value(), SIGCONT), 0);
    });
    ExpectGolden();
  }
}

}  // namespace
}  // namespace lamina::testing
