// How likely prompts are: `prompt_logprobs`, and `echo` with `logprobs`. The fake engine says -p /
// 8 of the prompt's token p.
#include "tests/support/http_fixture.h"

namespace lamina::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class HttpScores : public HttpTest {
 protected:
  // What an error says.
  std::string Refusal(const json& body, const std::string& path = "/v1/completions") {
    const ClientResponse response = Post(path, body);
    EXPECT_EQ(response.status, 400) << response.body;
    return response.json()["error"].value("message", "");
  }
};

// " Once" is 488, " upon" 489, "ing" a piece of its own.
TEST_F(HttpScores, EchoHasTheLayoutThatClientsOfCompletionsKnow) {
  StartServer(AlwaysAnswer({489, 488, 2}));
  const json body =
      Post("/v1/completions",
           {{"prompt", {1, 488, 489, 488}}, {"max_tokens", 2}, {"echo", true}, {"logprobs", 1}})
          .json();
  const json& choice = body["choices"][0];
  EXPECT_EQ(choice["text"], "Once upon Once upon Once");
  const json& logprobs = choice["logprobs"];
  EXPECT_EQ(logprobs["tokens"], (json{"<s>", " Once", " upon", " Once", " upon", " Once"}));
  EXPECT_EQ(logprobs["token_logprobs"], (json{nullptr, -0.125, -0.25, -0.375, -0.25, -0.5}));
  EXPECT_EQ(logprobs["text_offset"], (json{0, 0, 4, 9, 14, 19}));
  ASSERT_EQ(logprobs["top_logprobs"].size(), 6u);
  EXPECT_TRUE(logprobs["top_logprobs"][0].is_null());
  for (size_t i = 1; i < 6; ++i) {
    const json& top = logprobs["top_logprobs"][i];
    EXPECT_EQ(top.at(logprobs["tokens"][i].get<std::string>()), logprobs["token_logprobs"][i])
        << "the token itself is always among them";
  }
  EXPECT_EQ(logprobs["top_logprobs"][2].size(), 2u);
  EXPECT_EQ(body["usage"]["prompt_tokens"], 4);
  EXPECT_EQ(body["usage"]["completion_tokens"], 2);
  EXPECT_EQ(engine_->requests().at(0).sampling.num_prompt_logprobs, 1);
  EXPECT_FALSE(choice.contains("prompt_logprobs"));
}

// As lm-evaluation-harness asks: token lists, several at a time, and nothing to be generated.
TEST_F(HttpScores, WithoutNewTokensThePromptIsTheAnswer) {
  StartServer(AlwaysAnswer({2}));
  for (const int max_tokens : {0, 1}) {
    SCOPED_TRACE(max_tokens);
    const json body = Post("/v1/completions", {{"prompt", {{1, 488, 489}, {1, 489}, {488}}},
                                               {"max_tokens", max_tokens},
                                               {"echo", true},
                                               {"logprobs", 0},
                                               {"temperature", 0}})
                          .json();
    ASSERT_EQ(body["choices"].size(), 3u);
    const std::vector<std::string> texts = {"Once upon", "upon", "Once"};
    for (size_t i = 0; i < 3; ++i) {
      const json& choice = body["choices"][i];
      EXPECT_EQ(choice["index"], i);
      EXPECT_EQ(choice["text"], texts[i]);
      EXPECT_EQ(choice["finish_reason"], max_tokens == 0 ? "length" : "stop");
      const size_t tokens = std::vector<size_t>{3, 2, 1}[i] + static_cast<size_t>(max_tokens);
      for (const char* list : {"tokens", "token_logprobs", "top_logprobs", "text_offset"})
        EXPECT_EQ(choice["logprobs"][list].size(), tokens) << list;
      EXPECT_TRUE(choice["logprobs"]["token_logprobs"][0].is_null());
    }
    EXPECT_EQ(body["choices"][0]["logprobs"]["top_logprobs"][2], (json{{" upon", -0.25}}));
    EXPECT_EQ(body["usage"]["completion_tokens"], 3 * max_tokens);
    EXPECT_EQ(engine_->requests().back().max_new_tokens, 1);
  }
}

TEST_F(HttpScores, APromptThatIsCutIsEchoedAsItIsComputed) {
  StartServer(AlwaysAnswer({2}));
  const json choice = Post("/v1/completions", {{"prompt", "Once upon Once"},
                                               {"truncate_prompt_tokens", 2},
                                               {"max_tokens", 0},
                                               {"echo", true},
                                               {"logprobs", 0}})
                          .json()["choices"][0];
  EXPECT_EQ(choice["text"], "upon Once");
  EXPECT_EQ(choice["logprobs"]["tokens"], (json{" upon", " Once"}));
  EXPECT_EQ(choice["logprobs"]["text_offset"], (json{0, 4}));
}

TEST_F(HttpScores, WithoutNewTokensAndLogprobsTheTextIsEchoed) {
  StartServer(AlwaysAnswer({488, 489}));
  const json body =
      Post("/v1/completions", {{"prompt", "Hello"}, {"max_tokens", 0}, {"echo", true}}).json();
  EXPECT_EQ(body["choices"][0]["text"], "Hello");
  EXPECT_TRUE(body["choices"][0]["logprobs"].is_null());
  EXPECT_EQ(body["usage"]["completion_tokens"], 0);
  EXPECT_EQ(engine_->requests().back().sampling.num_prompt_logprobs, -1);
}

TEST_F(HttpScores, PromptLogprobsAreVllms) {
  StartServer(AlwaysAnswer({489, 2}));
  const json body =
      Post("/v1/completions",
           {{"prompt", {1, 488, 501, 229, 488}}, {"prompt_logprobs", 2}, {"max_tokens", 4}})
          .json();
  const json& choice = body["choices"][0];
  EXPECT_EQ(choice["text"], " upon");
  EXPECT_TRUE(choice["logprobs"].is_null());
  const json& list = choice["prompt_logprobs"];
  ASSERT_EQ(list.size(), 5u) << body;
  EXPECT_TRUE(list[0].is_null());
  EXPECT_EQ(list[1]["488"], (json{{"logprob", -0.125}, {"rank", 1}, {"decoded_token", " Once"}}));
  EXPECT_EQ(list[1]["500"]["rank"], 1);
  EXPECT_EQ(list[1]["501"]["logprob"], -0.25);
  EXPECT_EQ(list[1].size(), 3u);
  EXPECT_EQ(list[2].size(), 2u) << "the token is one of the two";
  EXPECT_EQ(list[2]["501"]["rank"], 2);
  EXPECT_EQ(list[3]["229"]["decoded_token"], "\xEF\xBF\xBD") << "a part of a character";
}

TEST_F(HttpScores, EveryChoiceOfAPromptTellsOfIt) {
  StartServer(AlwaysAnswer({489, 2}));
  const json body = Post("/v1/completions", {{"prompt", {{1, 488, 489}, {1, 489}}},
                                             {"n", 2},
                                             {"prompt_logprobs", 0},
                                             {"echo", true},
                                             {"logprobs", 1}})
                        .json();
  ASSERT_EQ(body["choices"].size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    const json& choice = body["choices"][i];
    const size_t length = i < 2 ? 3 : 2;
    ASSERT_EQ(choice["prompt_logprobs"].size(), length);
    EXPECT_EQ(choice["prompt_logprobs"][1].size(), 1u);
    EXPECT_EQ(choice["logprobs"]["tokens"].size(), length + 2);
    EXPECT_EQ(choice["logprobs"]["top_logprobs"][1].size(), 2u);
  }
  EXPECT_EQ(engine_->requests().at(0).sampling.num_prompt_logprobs, 1) << "enough for both";
}

// Beside the choices, as vLLM has them there.
TEST_F(HttpScores, OfAChatTheyStandBesideTheChoices) {
  StartServer(AlwaysAnswer({489, 2}));
  const json body =
      Post("/v1/chat/completions", {{"messages", {{{"role", "user"}, {"content", "Hi"}}}},
                                    {"prompt_logprobs", 1},
                                    {"logprobs", true},
                                    {"n", 2}})
          .json();
  ASSERT_EQ(body["choices"].size(), 2u) << body;
  EXPECT_EQ(body["prompt_logprobs"].size(), body["usage"]["prompt_tokens"]);
  EXPECT_TRUE(body["prompt_logprobs"][0].is_null());
  EXPECT_EQ(body["prompt_logprobs"][1].size(), 2u);
  EXPECT_FALSE(body["choices"][0].contains("prompt_logprobs"));
  EXPECT_EQ(body["choices"][0]["logprobs"]["content"].size(), 2u);
}

// An answer of megabytes, which is written in pieces.
TEST_F(HttpScores, LongPromptsAreWrittenPieceByPiece) {
  StartServer(AlwaysAnswer({2}));
  std::vector<TokenId> prompt(1000, 488);
  const ClientResponse response = Post("/v1/completions", {{"prompt", prompt},
                                                           {"max_tokens", 1},
                                                           {"n", 2},
                                                           {"prompt_logprobs", 20},
                                                           {"echo", true},
                                                           {"logprobs", 20}});
  EXPECT_GT(response.chunks.size(), 10u);
  const json body = response.json();
  ASSERT_EQ(body["choices"].size(), 2u);
  for (const json& choice : body["choices"]) {
    ASSERT_EQ(choice["prompt_logprobs"].size(), 1000u);
    EXPECT_EQ(choice["prompt_logprobs"][999].size(), 21u);
    EXPECT_EQ(choice["prompt_logprobs"][999]["488"]["logprob"], -0.125 * 999);
    EXPECT_EQ(choice["logprobs"]["text_offset"][999], 4 + 998 * 5);
  }
}

TEST_F(HttpScores, AStreamEchoesItsPromptInTheFirstChunk) {
  StartServer(AlwaysAnswer({489, 488, 2}));
  json body = {{"prompt", {1, 488, 489}}, {"echo", true}, {"logprobs", 1}, {"n", 2}};
  const json whole = Post("/v1/completions", body).json();
  body["stream"] = true;
  std::vector<std::string> texts(2);
  std::vector<json> merged(2);
  for (const json& event : Stream("/v1/completions", body)) {
    const json& choice = event["choices"][0];
    const auto index = choice["index"].get<size_t>();
    if (texts[index].empty()) {
      EXPECT_THAT(choice["text"].get<std::string>(), ::testing::StartsWith("Once upon"));
    }
    texts[index] += choice["text"].get<std::string>();
    for (const auto& [name, list] : choice["logprobs"].items()) {
      for (const json& value : list) merged[index][name].push_back(value);
    }
  }
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(texts[i], whole["choices"][i]["text"]);
    EXPECT_EQ(merged[i], whole["choices"][i]["logprobs"]);
  }
  body["max_tokens"] = 0;
  std::vector<json> last(2);
  texts.assign(2, "");
  for (const json& event : Stream("/v1/completions", body)) {
    const json& choice = event["choices"][0];
    const auto index = choice["index"].get<size_t>();
    texts[index] += choice["text"].get<std::string>();
    if (!choice["logprobs"].is_null()) {
      EXPECT_EQ(choice["logprobs"]["tokens"].size(), 3u);
    }
    last[index] = choice["finish_reason"];
  }
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(texts[i], "Once upon");
    EXPECT_EQ(last[i], "length");
  }
}

TEST_F(HttpScores, WhatIsTooMuchIsRefused) {
  options_.service.max_answer_values = 2000;
  StartServer(AlwaysAnswer({2}));
  json body = {{"prompt", std::vector<TokenId>(900, 488)}, {"max_tokens", 1}};
  body["prompt_logprobs"] = 1;
  EXPECT_EQ(Post("/v1/completions", body).status, 200);
  body["n"] = 2;
  EXPECT_THAT(Refusal(body), HasSubstr("come to 3602 values; at most 2000"));
  body["n"] = 1;
  body["prompt_logprobs"] = 2;
  EXPECT_THAT(Refusal(body), HasSubstr("come to 2701 values"));
  body.erase("prompt_logprobs");
  body["echo"] = true;
  body["logprobs"] = 20;
  body["stream"] = true;
  EXPECT_THAT(Refusal(body), HasSubstr("at most 16384"));
}

TEST_F(HttpScores, WhatTheyHoldIsCounted) {
  options_.service.max_answer_bytes = 1000;
  StartServer(AlwaysAnswer({2}));
  const ClientResponse response =
      Post("/v1/completions",
           {{"prompt", std::vector<TokenId>(100, 488)}, {"max_tokens", 1}, {"prompt_logprobs", 5}});
  EXPECT_EQ(response.status, 503) << response.body;
  EXPECT_TRUE(engine_->WaitUntilIdle(Soon()));
}

TEST_F(HttpScores, WhatCannotBeIsRefused) {
  StartServer(AlwaysAnswer({2}));
  EXPECT_THAT(Refusal({{"prompt", "x"}, {"max_tokens", 0}}), HasSubstr("at least 1"));
  EXPECT_THAT(Refusal({{"prompt", "x"}, {"prompt_logprobs", 21}}), HasSubstr("between 0 and 20"));
  EXPECT_THAT(Refusal({{"prompt", "x"}, {"prompt_logprobs", -1}}), HasSubstr("between 0 and 20"));
  EXPECT_THAT(Refusal({{"prompt", "x"}, {"prompt_logprobs", 1}, {"stream", true}}),
              HasSubstr("'prompt_logprobs' is not supported with 'stream'"));
  EXPECT_THAT(
      Refusal({{"prompt", "x"}, {"prompt_logprobs", 1}, {"n", 2}, {"use_beam_search", true}}),
      HasSubstr("'prompt_logprobs' is not supported with 'use_beam_search'"));
  const json messages = {{{"role", "user"}, {"content", "Hi"}}};
  EXPECT_THAT(Refusal({{"messages", messages}, {"max_tokens", 0}, {"prompt_logprobs", 1}},
                      "/v1/chat/completions"),
              HasSubstr("'max_tokens' must be at least 1"));
}

}  // namespace
}  // namespace lamina::testing
