// llama.cpp's completions and infill.
#include "api/protocols/llama_request.h"
#include "tests/support/http_fixture.h"
#include "tests/support/letters_tokenizer.h"
#include "tests/support/protocol_fixture.h"

namespace lamina::testing {
namespace llama_test {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Llama : public ProtocolTest {
 protected:
  // The data of a stream, each of which is JSON; the last one alone stops.
  static std::vector<json> Events(const ClientResponse& response) {
    EXPECT_EQ(response.status, 200) << response.body;
    EXPECT_TRUE(response.complete);
    EXPECT_THAT(response.headers.at("content-type"), HasSubstr("text/event-stream"));
    std::vector<json> events;
    for (size_t at = 0; at < response.body.size();) {
      const size_t end = response.body.find("\n\n", at);
      const std::string event = response.body.substr(at, end - at);
      at = end == std::string::npos ? response.body.size() : end + 2;
      if (event.starts_with(':')) continue;
      EXPECT_TRUE(event.starts_with("data: ")) << event;
      events.push_back(json::parse(event.substr(6), nullptr, false));
    }
    for (size_t i = 0; i < events.size(); ++i) EXPECT_EQ(events[i]["stop"], i + 1 == events.size());
    return events;
  }
};

TEST_F(Llama, TextGoesOnFromAPrompt) {
  Serve("Hello there.");
  const json whole = Post("/completion", {{"prompt", "x y"}}).json();
  EXPECT_EQ(whole["content"], " Hello there.");
  EXPECT_EQ(whole["stop"], true);
  EXPECT_EQ(whole["stop_type"], "eos");
  EXPECT_EQ(whole["model"], "tiny");
  EXPECT_EQ(whole["tokens_evaluated"], engine_->requests().back().prompt.size());
  EXPECT_EQ(whole["tokens_predicted"], whole["timings"]["predicted_n"]);
  EXPECT_THAT(Prompt(), HasSubstr("x y"));
  EXPECT_GT(engine_->requests().back().max_new_tokens, 900) << "as many as fit";
  const std::vector<json> events = Events(Post("/completion", {{"prompt", "x"}, {"stream", true}}));
  std::string text;
  for (const json& event : events) text += event["content"];
  EXPECT_EQ(text, " Hello there.");
  EXPECT_EQ(events.back()["content"], "");
  EXPECT_EQ(events.back()["stop_type"], "eos");
  EXPECT_GT(events.back()["tokens_predicted"], 0);
  Post("/completion", {{"prompt", {1, 5, 7}}});
  EXPECT_THAT(engine_->requests().back().prompt, ElementsAre(1, 5, 7));
}

TEST_F(Llama, OptionsAreAsAskedFor) {
  Serve("One two three four five six seven eight.");
  const json body = {
      {"prompt", "x"},        {"n_predict", 4},        {"temperature", 0.25},
      {"top_k", 7},           {"top_p", 0.5},          {"min_p", 0.1},
      {"seed", 42},           {"repeat_penalty", 1.5}, {"presence_penalty", 0.5},
      {"cache_prompt", true}, {"id_slot", 3},          {"logit_bias", {{5, 1.5}, {6, false}}}};
  const json answer = Post("/completion", body).json();
  EXPECT_EQ(answer["stop_type"], "limit") << answer;
  EXPECT_EQ(answer["tokens_predicted"], 4);
  const SamplingParams sampling = engine_->requests().back().sampling;
  EXPECT_EQ(sampling.temperature, 0.25f);
  EXPECT_EQ(sampling.top_k, 7);
  EXPECT_EQ(sampling.top_p, 0.5f);
  EXPECT_EQ(sampling.min_p, 0.1f);
  EXPECT_EQ(sampling.seed, 42u);
  EXPECT_EQ(sampling.repetition_penalty, 1.5f);
  EXPECT_EQ(sampling.presence_penalty, 0.5f);
  ASSERT_EQ(sampling.logit_bias.size(), 2u);
  EXPECT_EQ(sampling.logit_bias[0], std::pair(TokenId{5}, 1.5f));
  EXPECT_EQ(sampling.logit_bias[1], std::pair(TokenId{6}, -100.0f));
  const json stopped = Post("/completion", {{"prompt", "x"}, {"stop", {" five"}}}).json();
  EXPECT_EQ(stopped["content"], " One two three four");
  EXPECT_EQ(stopped["stop_type"], "word");
  EXPECT_EQ(stopped["stopping_word"], " five");
}

TEST_F(Llama, SamplersThatAreNotListedAreNotApplied) {
  Serve("ok");
  json body = {{"prompt", "x"},
               {"temperature", 0.25},
               {"top_k", 7},
               {"top_p", 0.5},
               {"min_p", 0.1},
               {"presence_penalty", 0.5},
               {"samplers", {"top_k", "infill"}}};
  EXPECT_EQ(Post("/completion", body).status, 200);
  SamplingParams sampling = engine_->requests().back().sampling;
  EXPECT_EQ(sampling.top_k, 7);
  EXPECT_EQ(sampling.temperature, 1);
  EXPECT_EQ(sampling.top_p, 1);
  EXPECT_EQ(sampling.min_p, 0);
  EXPECT_EQ(sampling.presence_penalty, 0);
  body["samplers"] = {"penalties", "temperature"};
  EXPECT_EQ(Post("/completion", body).status, 200);
  sampling = engine_->requests().back().sampling;
  EXPECT_EQ(sampling.temperature, 0.25f);
  EXPECT_EQ(sampling.presence_penalty, 0.5f);
}

TEST_F(Llama, AnswersMayBeConstrained) {
  Serve("{}");
  for (const json& more :
       {json{{"grammar", "root ::= \"{}\""}}, json{{"json_schema", {{"type", "object"}}}}}) {
    json body = {{"prompt", "x"}};
    body.update(more);
    ASSERT_EQ(Post("/completion", body).status, 200) << more;
    EXPECT_FALSE(engine_->requests().back().sampling.grammar.empty());
  }
}

TEST_F(Llama, NothingIsComputedForNoTokens) {
  Serve("ok");
  const json answer = Post("/completion", {{"prompt", "x"}, {"n_predict", 0}}).json();
  EXPECT_EQ(answer["content"], "");
  EXPECT_EQ(answer["stop"], true);
  EXPECT_TRUE(engine_->requests().empty());
}

TEST_F(Llama, WhatIsNotDoneIsRefused) {
  Serve("ok");
  const std::pair<const char*, json> refused[] = {{"prompt", {"several", "texts"}},
                                                  {"prompt", {1, "mixed"}},
                                                  {"prompt", json::object()},
                                                  {"n_probs", 5},
                                                  {"mirostat", 2},
                                                  {"xtc_probability", 0.5},
                                                  {"dry_multiplier", 0.8},
                                                  {"repeat_last_n", 64},
                                                  {"return_tokens", true},
                                                  {"logit_bias", {{"word", 1}}},
                                                  {"logit_bias", 5},
                                                  {"samplers", "top_k"},
                                                  {"json_schema", "text"},
                                                  {"input_suffix", "b"},
                                                  {"unheard_of", 1},
                                                  {"n_predict", "many"},
                                                  {"temperature", -1},
                                                  {"model", "another"}};
  for (const auto& [field, value] : refused) {
    json body = {{"prompt", "x"}};
    body[field] = value;
    const ClientResponse response = Post("/completion", body);
    EXPECT_GE(response.status, 400) << field << response.body;
    EXPECT_THAT(response.body, HasSubstr(field));
  }
  EXPECT_EQ(Post("/completion", json::object()).status, 400);
  EXPECT_TRUE(engine_->requests().empty());
}

class LlamaInfill : public HttpTest {
 protected:
  void Serve(const std::vector<std::string>& special) {
    letters_ = LettersTokenizer(special);
    tokenizer_ = letters_.get();
    StartServer(AlwaysAnswer({23, 24}));
  }
  std::unique_ptr<Tokenizer> letters_;
};

TEST_F(LlamaInfill, WritesBetweenPrefixAndSuffix) {
  Serve({"<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>"});
  json body = {{"input_prefix", "ab"}, {"prompt", "c"}, {"input_suffix", "de"}, {"n_predict", 2}};
  EXPECT_EQ(Post("/infill", body).json()["content"], "xy");
  EXPECT_THAT(engine_->requests().back().prompt, ElementsAre(26, 0, 1, 2, 28, 3, 4, 27));
  body["input_suffix"] = "";
  EXPECT_EQ(Post("/infill", body).status, 200);
  EXPECT_THAT(engine_->requests().back().prompt, ElementsAre(0, 1, 2)) << "nothing is behind it";
  for (const json& extra : {json("text"), json{"text"}, json{{{"text", 5}}},
                            json{{{"text", "a"}, {"filename", 5}}}, json{nullptr}}) {
    body["input_extra"] = extra;
    EXPECT_EQ(Post("/infill", body).status, 400) << extra;
  }
}

TEST_F(LlamaInfill, OtherFilesStandBeforeThePrefix) {
  ServedModel model;
  model.name = "m";
  model.infill = InfillFormat{};
  const json body = {{"input_prefix", "ab"},
                     {"input_suffix", "c"},
                     {"input_extra", {{{"text", "one"}, {"filename", "a.cc"}}, {{"text", "two"}}}}};
  nlohmann::ordered_json ordered(body);
  Translation out;
  EXPECT_FALSE(TranslateLlamaInfill({body, ordered}, model, out));
  EXPECT_EQ(out.body["prompt"], "\n\n--- a.cc ---\n\none\n\n--- snippet ---\n\ntwoab");
  EXPECT_EQ(out.body["suffix"], "c");
}

TEST_F(LlamaInfill, NeedsTokensForIt) {
  Serve({"<s>"});
  const ClientResponse response = Post("/infill", {{"input_prefix", "a"}, {"input_suffix", "b"}});
  EXPECT_EQ(response.status, 400);
  EXPECT_EQ(response.json()["error"]["param"], "input_suffix");
}

}  // namespace llama_test
}  // namespace lamina::testing
