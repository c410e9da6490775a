// Every path of the API through real sockets.
#include <limits>

#include "tests/support/http_fixture.h"

namespace lamina::testing {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

class HttpApi : public HttpTest {};

json ErrorOf(const ClientResponse& response) {
  const json body = response.json();
  EXPECT_TRUE(body.contains("error")) << response.body;
  const json error = body.value("error", json::object());
  EXPECT_EQ(error.value("code", 0), response.status);
  EXPECT_TRUE(error.contains("message") && error.contains("type") && error.contains("param"))
      << response.body;
  return error;
}

TEST_F(HttpApi, CompletionOfEveryGoldenPrompt) {
  StartServer();
  for (const GoldenPrompt& golden : GoldenPrompts()) {
    const ClientResponse response = Post(
        "/v1/completions",
        {{"model", "tiny"}, {"prompt", golden.prompt}, {"max_tokens", 96}, {"temperature", 0}});
    ASSERT_EQ(response.status, 200) << response.body;
    const json body = response.json();
    EXPECT_EQ(body["choices"][0]["text"], golden.text);
    EXPECT_EQ(body["choices"][0]["finish_reason"], golden.finish_reason);
    EXPECT_EQ(body["usage"]["prompt_tokens"], golden.prompt_ids.size());
    EXPECT_EQ(body["usage"]["completion_tokens"], golden.continuation_ids.size());
    EXPECT_EQ(body["usage"]["total_tokens"],
              golden.prompt_ids.size() + golden.continuation_ids.size());
  }
}

TEST_F(HttpApi, CompletionHasTheShapeClientsExpect) {
  StartServer(AlwaysAnswer({488, 489, 2}));
  const json body = Post("/v1/completions", {{"prompt", "x"}}).json();
  EXPECT_THAT(body["id"].get<std::string>(), StartsWith("cmpl-"));
  EXPECT_EQ(body["object"], "text_completion");
  EXPECT_EQ(body["model"], "tiny");
  EXPECT_GT(body["created"].get<int64_t>(), 1'600'000'000);
  ASSERT_EQ(body["choices"].size(), 1u);
  const json& choice = body["choices"][0];
  EXPECT_EQ(choice["index"], 0);
  EXPECT_EQ(choice["text"], " Once upon");
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_TRUE(choice["logprobs"].is_null());
  EXPECT_TRUE(choice["stop_reason"].is_null());
  EXPECT_EQ(body["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
}

TEST_F(HttpApi, SamplingReachesTheEngine) {
  StartServer();
  Post(
      "/v1/completions",
      json::parse(
          R"({"prompt": "x", "temperature": 0.25, "top_p": 0.5, "top_k": -1, "min_p": 0.125, "seed": 42, "max_tokens": 5, "min_tokens": 2, "ignore_eos": true,
      "stop_token_ids": [7], "logit_bias": {"3": 1.5}, "n": 2})"));
  const GenerateRequest request = engine_->requests().at(0);
  EXPECT_EQ(request.prompt, tokenizer().Encode("x", true).value());
  EXPECT_EQ(request.n, 2);
  EXPECT_EQ(request.max_new_tokens, 5);
  EXPECT_TRUE(request.ignore_eos);
  EXPECT_THAT(request.stop_tokens, ElementsAre(7));
  EXPECT_FLOAT_EQ(request.sampling.temperature, 0.25f);
  EXPECT_EQ(request.sampling.top_k, 0);
  EXPECT_EQ(request.sampling.seed, 42u);
  EXPECT_EQ(request.sampling.min_tokens, 2);
  EXPECT_EQ(request.sampling.num_logprobs, -1);
  EXPECT_EQ(request.sampling.logit_bias.at(0).first, 3);
}

TEST_F(HttpApi, RequestsWithoutASeedGetDifferentOnes) {
  StartServer();
  Post("/v1/completions", {{"prompt", "x"}});
  Post("/v1/completions", {{"prompt", "x"}});
  EXPECT_NE(engine_->requests().at(0).sampling.seed, engine_->requests().at(1).sampling.seed);
}

TEST_F(HttpApi, EachPromptOfARequestHasAnIndexOfItsOwnForItsSeeds) {
  StartServer();
  Post("/v1/completions", {{"prompt", {"x", "x", "y"}}, {"seed", 42}});
  const std::vector<GenerateRequest> requests = engine_->requests();
  ASSERT_EQ(requests.size(), 3u);
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(requests[i].prompt_index, i);
    EXPECT_EQ(requests[i].sampling.seed, 42u);
  }
}

TEST_F(HttpApi, MaxTokensDefaultAndContext) {
  max_model_len_ = 50;
  StartServer();
  Post("/v1/completions", {{"prompt", "Once upon a time"}});
  Post("/v1/chat/completions",
       {{"messages", {{{"role", "user"}, {"content", "Once upon a time"}}}}});
  Post("/v1/completions", {{"prompt", "Once upon a time"}, {"max_tokens", 45}});
  EXPECT_EQ(engine_->requests().at(0).max_new_tokens, 16);
  EXPECT_EQ(engine_->requests().at(1).max_new_tokens, 45);  // whatever fits
  EXPECT_EQ(engine_->requests().at(2).max_new_tokens, 45);
  const ClientResponse refused =
      Post("/v1/completions", {{"prompt", "Once upon a time"}, {"max_tokens", 46}});
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(refused.body, ::testing::HasSubstr("max_tokens 46 is too large"));
}

TEST_F(HttpApi, ManyPromptsAndChoicesComeInOrder) {
  StartServer([](const GenerateRequest& request, int index) {
    return std::vector<TokenId>{request.prompt.back(), 488 + index, 2};
  });
  const json body =
      Post("/v1/completions", {{"prompt", {{1, 488}, {1, 489}, {1, 490}}}, {"n", 2}}).json();
  ASSERT_EQ(body["choices"].size(), 6u);
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(body["choices"][static_cast<size_t>(i)]["index"], i);
    const std::string text =
        tokenizer().TokenBytes(488 + i / 2) + tokenizer().TokenBytes(488 + i % 2);
    EXPECT_EQ(body["choices"][static_cast<size_t>(i)]["text"], text);
  }
  EXPECT_EQ(body["usage"]["prompt_tokens"], 6);
  EXPECT_EQ(body["usage"]["completion_tokens"], 18);
}

TEST_F(HttpApi, StopStringEndsTheTextAndTheSequence) {
  // ", in a garden, there lived a shy rabbit called Rosa. From ...".
  const GoldenPrompt golden = GoldenPrompts().at(0);
  StartServer();
  const json body =
      Post("/v1/completions",
           {{"prompt", golden.prompt}, {"max_tokens", 96}, {"stop", {"zzz", "rabbit"}}})
          .json();
  EXPECT_EQ(body["choices"][0]["text"], golden.text.substr(0, golden.text.find("rabbit")));
  EXPECT_EQ(body["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(body["choices"][0]["stop_reason"], "rabbit");
  EXPECT_LT(body["usage"]["completion_tokens"].get<int>(), 30);
  EXPECT_TRUE(engine_->WaitUntilIdle(Soon()));
}

TEST_F(HttpApi, StopStringsReachTheEngineWhileItRuns) {
  StartServer(AlwaysAnswer(GoldenPrompts().at(0).continuation_ids));
  engine_->PauseAfter(30);
  const json body = Post("/v1/completions", {{"prompt", "x"},
                                             {"max_tokens", 96},
                                             {"stop", "rabbit"},
                                             {"include_stop_str_in_output", true}})
                        .json();
  EXPECT_THAT(body["choices"][0]["text"].get<std::string>(), ::testing::EndsWith("rabbit"));
  EXPECT_TRUE(engine_->WaitForStops(1, Soon()));
}

TEST_F(HttpApi, StopTokensAreNotInTheText) {
  StartServer(AlwaysAnswer({488, 489, 490}));
  const json body = Post("/v1/completions", {{"prompt", "x"}, {"stop_token_ids", {489}}}).json();
  EXPECT_EQ(body["choices"][0]["text"], " Once");
  EXPECT_EQ(body["choices"][0]["stop_reason"], 489);
  EXPECT_EQ(body["usage"]["completion_tokens"], 2);
  const json with =
      Post("/v1/completions",
           {{"prompt", "x"}, {"stop_token_ids", {489}}, {"include_stop_str_in_output", true}})
          .json();
  EXPECT_EQ(with["choices"][0]["text"], " Once upon");
}

TEST_F(HttpApi, SpecialTokensAreSkippedOrShown) {
  StartServer(AlwaysAnswer({488, 2, 489}));
  const json skipped = Post("/v1/completions", {{"prompt", "x"}, {"ignore_eos", true}}).json();
  EXPECT_EQ(skipped["choices"][0]["text"], " Once upon");
  const json shown = Post("/v1/completions",
                          {{"prompt", "x"}, {"ignore_eos", true}, {"skip_special_tokens", false}})
                         .json();
  EXPECT_EQ(shown["choices"][0]["text"], " Once</s> upon");
}

TEST_F(HttpApi, EchoPutsThePromptInFront) {
  StartServer(AlwaysAnswer({488, 2}));
  EXPECT_EQ(
      Post("/v1/completions", {{"prompt", "Hello"}, {"echo", true}}).json()["choices"][0]["text"],
      "Hello Once");
  EXPECT_EQ(
      Post("/v1/completions", {{"prompt", {1, 489}}, {"echo", true}}).json()["choices"][0]["text"],
      "upon Once");
}

TEST_F(HttpApi, CompletionLogprobs) {
  StartServer(AlwaysAnswer({488, 229, 155, 134, 2}));  // " Once" and the three bytes of a snowman
  const json body = Post("/v1/completions", {{"prompt", "x"}, {"logprobs", 2}}).json();
  EXPECT_EQ(body["choices"][0]["text"], " Once\xE2\x98\x83");
  const json& logprobs = body["choices"][0]["logprobs"];
  EXPECT_EQ(logprobs["tokens"],
            (json{" Once", "bytes:\\xe2", "bytes:\\x98", "bytes:\\x83", "</s>"}));
  EXPECT_EQ(logprobs["token_logprobs"], (json{-0.25, -0.5, -0.75, -1.0, -1.25}));
  EXPECT_EQ(logprobs["text_offset"], (json{0, 5, 5, 5, 6}));
  EXPECT_EQ(logprobs["top_logprobs"][0], (json{{" Once", -0.25}, {" upon", -1.25}}));
}

// Tokens that are no whole character count as what the text has in their place.
TEST_F(HttpApi, TextOffsetsAreThoseOfTheText) {
  StartServer(AlwaysAnswer({229, 155, 488, 229, 2}));  // two bytes of a snowman, " Once", one byte
  json body = {{"prompt", "x"}, {"logprobs", 0}};
  const json choice = Post("/v1/completions", body).json()["choices"][0];
  EXPECT_EQ(choice["text"], "\xEF\xBF\xBD\xEF\xBF\xBD Once\xEF\xBF\xBD");
  EXPECT_EQ(choice["logprobs"]["text_offset"], (json{0, 1, 2, 7, 8}));
  body["stream"] = true;
  json offsets = json::array();
  for (const json& event : Stream("/v1/completions", body)) {
    for (const json& offset : event["choices"][0]["logprobs"]["text_offset"])
      offsets.push_back(offset);
  }
  EXPECT_EQ(offsets, choice["logprobs"]["text_offset"]);
}

// The fake engine's log-probabilities fall along an answer: the shortest is the most likely by
// token.
TEST_F(HttpApi, BestOfReturnsTheMostLikelyByToken) {
  const std::vector<size_t> lengths = {4, 2, 5, 3};
  StartServer([&](const GenerateRequest& request, int index) {
    std::vector<TokenId> tokens(lengths[static_cast<size_t>(index)], request.prompt.back());
    tokens.back() = 2;
    return tokens;
  });
  const json body =
      Post("/v1/completions", {{"prompt", {{1, 488}, {1, 489}}}, {"n", 2}, {"best_of", 4}}).json();
  std::vector<std::string> texts;
  for (size_t i = 0; i < body["choices"].size(); ++i) {
    EXPECT_EQ(body["choices"][i]["index"], i);
    EXPECT_TRUE(body["choices"][i]["logprobs"].is_null());
    texts.push_back(body["choices"][i]["text"]);
  }
  EXPECT_THAT(texts, ElementsAre(" Once", " Once Once", " upon", " upon upon"));
  EXPECT_EQ(body["usage"]["completion_tokens"], 2 * (4 + 2 + 5 + 3)) << "all that were generated";
  EXPECT_EQ(engine_->requests().at(0).n, 4);
  const json shown =
      Post("/v1/completions", {{"prompt", {1, 488}}, {"best_of", 4}, {"logprobs", 1}}).json();
  EXPECT_EQ(shown["choices"].size(), 1u);
  EXPECT_EQ(shown["choices"][0]["logprobs"]["token_logprobs"], (json{-0.25, -0.5}));
}

TEST_F(HttpApi, ChatCompletion) {
  StartServer();
  const GoldenPrompt golden = GoldenPrompts().at(0);
  const json content = json::array({{{"type", "text"}, {"text", golden.prompt}}});
  const json body =
      Post("/v1/chat/completions", {{"model", "tiny"},
                                    {"messages", {{{"role", "user"}, {"content", content}}}},
                                    {"max_completion_tokens", 96}})
          .json();
  EXPECT_THAT(body["id"].get<std::string>(), StartsWith("chatcmpl-"));
  EXPECT_EQ(body["object"], "chat.completion");
  EXPECT_EQ(body["choices"][0]["message"]["role"], "assistant");
  EXPECT_EQ(body["choices"][0]["message"]["content"], golden.text);
  // Exactly one beginning-of-sequence token.
  EXPECT_EQ(engine_->requests().at(0).prompt, golden.prompt_ids);
}

TEST_F(HttpApi, ChatLogprobs) {
  StartServer(AlwaysAnswer({488, 2}));
  const json body =
      Post("/v1/chat/completions", {{"messages", {{{"role", "user"}, {"content", "x"}}}},
                                    {"logprobs", true},
                                    {"top_logprobs", 1}})
          .json();
  const json& content = body["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(content.size(), 2u);
  EXPECT_EQ(content[0]["token"], " Once");
  EXPECT_EQ(content[0]["logprob"], -0.25);
  EXPECT_EQ(content[0]["bytes"], (json{32, 79, 110, 99, 101}));
  EXPECT_EQ(content[0]["top_logprobs"].size(), 1u);
  EXPECT_EQ(content[0]["top_logprobs"][0]["token"], " Once");
}

TEST_F(HttpApi, ModelsWithoutTemplateRefuseChats) {
  with_chat_template_ = false;
  StartServer();
  const ClientResponse response =
      Post("/v1/chat/completions", {{"messages", {{{"role", "user"}, {"content", "x"}}}}});
  EXPECT_EQ(response.status, 400);
  EXPECT_THAT(ErrorOf(response)["message"].get<std::string>(), HasSubstr("no chat template"));
}

TEST_F(HttpApi, Models) {
  StartServer();
  const json body = Get("/v1/models").json();
  EXPECT_EQ(body["object"], "list");
  EXPECT_EQ(body["data"][0]["id"], "tiny");
  EXPECT_EQ(body["data"][0]["root"], "tiny");
  EXPECT_EQ(body["data"][0]["max_model_len"], 1024);
  EXPECT_TRUE(body["data"][0]["parent"].is_null());
}

TEST_F(HttpApi, TokenizeAndDetokenize) {
  StartServer();
  const json tokens = Post("/tokenize", {{"model", "tiny"}, {"prompt", "Once upon a time"}}).json();
  EXPECT_EQ(tokens["tokens"], (json{1, 488, 489, 261, 396}));
  EXPECT_EQ(tokens["count"], 5);
  EXPECT_EQ(tokens["max_model_len"], 1024);
  EXPECT_EQ(Post("/tokenize", {{"prompt", "Once"}, {"add_special_tokens", false}}).json()["tokens"],
            (json{488}));
  EXPECT_EQ(
      Post("/tokenize", {{"messages", {{{"role", "user"}, {"content", "Once"}}}}}).json()["tokens"],
      (json{1, 488}));
  EXPECT_EQ(
      Post("/detokenize", {{"model", "tiny"}, {"tokens", {488, 489, 261, 396}}}).json()["prompt"],
      "Once upon a time");
  EXPECT_EQ(Post("/detokenize", {{"tokens", {-1}}}).status, 400);
}

TEST_F(HttpApi, HealthFollowsTheEngine) {
  StartServer();
  const ClientResponse healthy = Get("/health");
  EXPECT_EQ(healthy.status, 200);
  EXPECT_EQ(healthy.body, "");
  EngineStatus down;
  down.detail = "no memory node is left; waiting for nodes to come back";
  engine_->SetStatus(down);
  EXPECT_EQ(Get("/health").status, 503);
  EXPECT_EQ(Post("/v1/completions", {{"prompt", "x"}, {"max_tokens", 1}}).status, 200)
      << "a request waits";
  down.given_up = true;
  down.detail = "memory node m0 is lost";
  engine_->SetStatus(down);
  EXPECT_EQ(Get("/health").status, 503);
  const ClientResponse refused = Post("/v1/completions", {{"prompt", "x"}});
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.headers.at("retry-after"), "1");
  EXPECT_EQ(ErrorOf(refused)["message"], "memory node m0 is lost");
}

TEST_F(HttpApi, WhileLoadingOnlyTextIsRefused) {
  StartServer();
  server_->SetEngine(nullptr);
  EXPECT_EQ(Get("/health").status, 503);
  EXPECT_EQ(Get("/ping").status, 200);
  EXPECT_EQ(Get("/v1/models").status, 200);
  EXPECT_EQ(Get("/metrics").status, 200);
  EXPECT_EQ(Post("/tokenize", {{"prompt", "x"}}).status, 200);
  EXPECT_THAT(Get("/cluster/status").json()["detail"].get<std::string>(), HasSubstr("loading"));
  const ClientResponse refused = Post("/v1/completions", {{"prompt", "x"}});
  EXPECT_EQ(refused.status, 503);
  EXPECT_THAT(ErrorOf(refused)["message"].get<std::string>(), HasSubstr("loading"));
  server_->SetEngine(engine_.get());
  EXPECT_EQ(Post("/v1/completions", {{"prompt", "x"}}).status, 200);
}

TEST_F(HttpApi, VersionPingAndMetrics) {
  StartServer();
  EXPECT_EQ(Get("/version").json()["version"], "0.1.0");
  EXPECT_EQ(Get("/ping").status, 200);
  const ClientResponse metrics = Get("/metrics");
  EXPECT_THAT(metrics.headers.at("content-type"), StartsWith("text/plain; version=0.0.4"));
  EXPECT_THAT(metrics.body, HasSubstr("vllm:num_requests_running{"));
}

TEST_F(HttpApi, ClusterStatus) {
  StartServer();
  EngineStatus status;
  status.serving = true;
  status.nodes.push_back({NodeId{1}, "m0", NodeRole::kMemory, "10.0.0.7:7001", NodeState::kLost,
                          "no heartbeat", "0..1", "layers 2..3", 77, "tcp", "verbs: no device",
                          1000, 10, 2, 9, 1, 5, 700});
  status.nodes[0].paths = {{"c0", "tcp", "", "verbs: no device"}};
  status.num_rebuilding = 5;
  status.scheduler.num_waiting = 3;
  status.scheduler.num_parked = 2;
  status.scheduler.num_preemptions = 4;
  status.scheduler.nodes.push_back({NodeId{1}, 1000, 10, 2});
  engine_->SetStatus(status);
  const json body = Get("/cluster/status").json();
  EXPECT_EQ(body["serving"], true);
  EXPECT_EQ(
      body["nodes"][0],
      json::parse(
          R"({"id": 1, "name": "m0", "role": "memory", "address": "10.0.0.7:7001", "state": "lost", "detail": "no heartbeat", "kv_heads": "0..1", "holds": "layers 2..3", "weight_bytes": 77, "transport": "tcp", "transport_refused": "verbs: no device",
      "capacity_tokens": 1000, "used_tokens": 10, "num_sequences": 2, "stored_tokens": 9, "stored_sequences": 1, "stale_messages": 5, "attention_us": 700, "paths": [{"from": "c0", "fabric": "tcp", "through": "", "refused": "verbs: no device"}]})"));
  EXPECT_EQ(body["scheduler"]["num_waiting"], 3);
  EXPECT_EQ(body["scheduler"]["num_parked"], 2);
  EXPECT_EQ(body["scheduler"]["num_rebuilding"], 5);
  EXPECT_EQ(body["scheduler"]["nodes"][0]["capacity_tokens"], 1000);
}

TEST_F(HttpApi, ClusterStatusSaysWhetherRequestsAreAnsweredWaitOrFail) {
  StartServer();
  struct Case {
    bool serving, stands_still, given_up;
    const char* state;
  };
  for (const Case& one : {Case{true, false, false, "serving"},
                          {true, true, false, "reconnecting"},
                          {false, false, false, "outage"},
                          {false, false, true, "given up"}}) {
    EngineStatus status;
    status.serving = one.serving;
    status.stands_still = one.stands_still;
    status.given_up = one.given_up;
    engine_->SetStatus(status);
    const json body = Get("/cluster/status").json();
    EXPECT_EQ(body["state"], one.state);
    EXPECT_EQ(body["serving"], one.state == std::string("serving"));
  }
}

TEST_F(HttpApi, HealthSaysSoWhileAcceptedRequestsWaitForNodes) {
  StartServer();
  EngineStatus status;
  status.serving = status.stands_still = true;
  status.detail = "nodes are being connected anew for 7 s";
  engine_->SetStatus(status);
  EXPECT_EQ(Get("/health").status, 503);
  EXPECT_EQ(Get("/cluster/status").json()["serving"], false);
  EXPECT_EQ(Get("/cluster/status").json()["detail"], status.detail);
  EXPECT_EQ(Post("/v1/completions", {{"prompt", "x"}, {"max_tokens", 1}}).status, 200)
      << "a request waits";
}

TEST_F(HttpApi, ApiKey) {
  options_.service.api_key = "sesame";
  StartServer();
  const std::string body = R"({"prompt": "x"})";
  EXPECT_EQ(Request("POST", "/v1/completions", body).status, 401);
  EXPECT_EQ(Request("POST", "/v1/completions", body, "Authorization: Bearer sesam\r\n").status,
            401);
  EXPECT_EQ(
      Request("POST", "/v1/completions", body, "Authorization: Bearer sesamesesame\r\n").status,
      401);
  EXPECT_EQ(Request("POST", "/v1/completions", body, "Authorization: sesame\r\n").status, 401);
  EXPECT_EQ(Request("POST", "/v1/completions", body, "Authorization: Bearer sesame\r\n").status,
            200);
  for (const char* scheme : {"bearer", "BEARER"})
    EXPECT_EQ(Request("POST", "/v1/completions", body,
                      std::string("Authorization: ") + scheme + " sesame\r\n")
                  .status,
              200)
        << scheme;
  EXPECT_EQ(Get("/v1/models").status, 401);
  EXPECT_EQ(Get("/cluster/status").status, 401);
  EXPECT_EQ(Get("/health").status, 200);
  EXPECT_EQ(Get("/metrics").status, 200);
}

TEST_F(HttpApi, RequestIdIsEchoed) {
  StartServer();
  EXPECT_EQ(Request("GET", "/version", "", "X-Request-Id: abc-123\r\n").headers.at("x-request-id"),
            "abc-123");
  EXPECT_EQ(Request("POST", "/v1/completions", R"({"prompt": "x", "stream": true})",
                    "X-Request-Id: s1\r\n")
                .headers.at("x-request-id"),
            "s1");
  // Without one, or with one that is none, it is drawn.
  const ClientResponse drawn =
      Request("GET", "/version", "", "X-Request-Id: " + std::string(300, 'a') + "\r\n");
  EXPECT_EQ(drawn.headers.at("x-request-id").size(), 32u);
  EXPECT_NE(Get("/version").headers.at("x-request-id"), drawn.headers.at("x-request-id"));
}

TEST_F(HttpApi, WrongPathsMethodsAndModels) {
  StartServer();
  EXPECT_EQ(Get("/nowhere").status, 404);
  EXPECT_EQ(ErrorOf(Get("/nowhere"))["type"], "NotFoundError");
  const ClientResponse wrong_method = Get("/v1/completions");
  EXPECT_EQ(wrong_method.status, 405);
  EXPECT_EQ(wrong_method.headers.at("allow"), "POST");
  EXPECT_EQ(Post("/v1/models", {{"a", 1}}).status, 405);
  const ClientResponse wrong_model = Post("/v1/completions", {{"model", "gpt-5"}, {"prompt", "x"}});
  EXPECT_EQ(wrong_model.status, 404);
  EXPECT_EQ(ErrorOf(wrong_model)["param"], "model");
  EXPECT_EQ(Get("/health?verbose=1").status, 200);
}

TEST_F(HttpApi, HeadIsGetWithoutBody) {
  StartServer();
  ClientConnection connection(port());
  connection.Send("HEAD /version HTTP/1.1\r\nHost: t\r\n\r\nGET /ping HTTP/1.1\r\nHost: t\r\n\r\n");
  ASSERT_TRUE(connection.ReceiveUntil("\r\n\r\n"));
  EXPECT_TRUE(connection.ReceiveUntil("\r\n\r\nHTTP/1.1 200 OK"));
}

TEST_F(HttpApi, OverloadAndLostNodesAre503) {
  StartServer();
  engine_->RefuseSubmits(TryAgain());
  const ClientResponse overload = Post("/v1/completions", {{"prompt", "x"}});
  EXPECT_EQ(overload.status, 503);
  EXPECT_EQ(overload.headers.at("retry-after"), "1");
  EXPECT_THAT(ErrorOf(overload)["message"].get<std::string>(), HasSubstr("try again"));
  engine_->RefuseSubmits(PeerLost("no memory node is left"));
  EXPECT_EQ(Post("/v1/completions", {{"prompt", "x"}, {"stream", true}}).status, 503);
  engine_->RefuseSubmits(InvalidArgument("token 5 is bad"));
  EXPECT_EQ(Post("/v1/completions", {{"prompt", "x"}}).status, 400);
}

TEST_F(HttpApi, FullQueuesRefuseBeforeLookingAtThePrompt) {
  StartServer();
  EngineStatus full;
  full.serving = true;
  full.scheduler.num_waiting = 2000;
  engine_->SetStatus(full);
  const ClientResponse response = Request("POST", "/v1/completions", "this is not even JSON");
  EXPECT_EQ(response.status, 503);
  EXPECT_EQ(response.headers.at("retry-after"), "1");
}

TEST_F(HttpApi, ManyPromptsAreAcceptedWholeOrNotAtAll) {
  StartServer();
  engine_->PauseAfter(0);
  engine_->RefuseSubmits(TryAgain(), /*countdown=*/3);
  EXPECT_EQ(Post("/v1/completions", {{"prompt", {"a", "b", "c"}}, {"n", 2}}).status, 503);
  EXPECT_TRUE(engine_->WaitForAborts(4, Soon()));
}

TEST_F(HttpApi, FailuresOfTheEngineAreTold) {
  StartServer();
  engine_->FailAfter(2, PeerLost("memory node m1 is lost"));
  const ClientResponse lost = Post("/v1/completions", {{"prompt", "Once upon a time"}});
  EXPECT_EQ(lost.status, 503);
  EXPECT_EQ(ErrorOf(lost)["message"], "memory node m1 is lost");
  engine_->FailAfter(0, Corrupt("checksum of slot 7"));
  EXPECT_EQ(Post("/v1/completions", {{"prompt", "Once upon a time"}}).status, 500);
  const ClientResponse early =
      Post("/v1/completions", {{"prompt", "Once upon a time"}, {"stream", true}});
  EXPECT_EQ(early.status, 500);  // nothing was sent yet: a real status
}

TEST_F(HttpApi, TooLongPromptsAreToldInNumbers) {
  max_model_len_ = 20;
  StartServer();
  const ClientResponse response = Post("/v1/completions", {{"prompt", std::vector<int>(25, 488)}});
  EXPECT_EQ(response.status, 400);
  EXPECT_THAT(ErrorOf(response)["message"].get<std::string>(), HasSubstr("25 tokens"));
  EXPECT_THAT(ErrorOf(response)["message"].get<std::string>(), HasSubstr("context is 20"));
  EXPECT_EQ(Post("/v1/completions", {{"prompt", std::vector<int>(20, 488)}}).status, 400);
  EXPECT_EQ(Post("/v1/completions", {{"prompt", std::vector<int>(19, 488)}}).status, 200);
  const ClientResponse huge = Post("/v1/completions", {{"prompt", std::string(1'000'000, 'a')}});
  EXPECT_EQ(huge.status, 400);
  EXPECT_THAT(ErrorOf(huge)["message"].get<std::string>(), HasSubstr("1000000 bytes"));
}

TEST_F(HttpApi, BadBodiesAre400) {
  StartServer();
  for (const std::string path :
       {"/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"}) {
    EXPECT_EQ(Request("POST", path, "{\"prompt\": \"\xFF\xFE\"}").status, 400);
    EXPECT_EQ(Request("POST", path, "{\"prompt\": ").status, 400);
    EXPECT_EQ(Request("POST", path, "").status, 400);
    EXPECT_EQ(Request("POST", path,
                      R"({"prompt": "x", "messages": [{"role": "user", "content": )"
                      R"("x"}], "tokens": []})" +
                          std::string("\0more", 5))
                  .status,
              400);
    EXPECT_EQ(Request("POST", path, "[]").status, 400);
    EXPECT_EQ(Request("POST", path, std::string(1'000'000, '[')).status, 400);
  }
  const ClientResponse response =
      Post("/v1/completions", {{"prompt", "x"}, {"temperature", "hot"}});
  EXPECT_EQ(response.status, 400);
  EXPECT_EQ(ErrorOf(response)["type"], "BadRequestError");
  EXPECT_EQ(ErrorOf(response)["param"], "temperature");
  EXPECT_THAT(engine_->requests(), IsEmpty());
}

TEST_F(HttpApi, TokensAreToldByNumberIfAskedFor) {
  StartServer(AlwaysAnswer({488, 489, 2}));
  const json whole = Post("/v1/completions", {{"prompt", {{1, 490}, {1, 491}}},
                                              {"n", 2},
                                              {"logprobs", 1},
                                              {"return_token_ids", true},
                                              {"return_tokens_as_token_ids", true}})
                         .json();
  ASSERT_EQ(whole["choices"].size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    const json& choice = whole["choices"][i];
    EXPECT_EQ(choice["token_ids"], (json{488, 489, 2}));
    EXPECT_EQ(choice["prompt_token_ids"], (json{1, 490 + i / 2}));
    EXPECT_EQ(choice["logprobs"]["tokens"], (json{"token_id:488", "token_id:489", "token_id:2"}));
    EXPECT_TRUE(choice["logprobs"]["top_logprobs"][0].contains("token_id:488"));
  }
  const json chat = {{"messages", {{{"role", "user"}, {"content", "x"}}}},
                     {"return_token_ids", true},
                     {"logprobs", true},
                     {"return_tokens_as_token_ids", true}};
  const json answer = Post("/v1/chat/completions", chat).json();
  EXPECT_EQ(answer["prompt_token_ids"], json(engine_->requests().back().prompt));
  EXPECT_EQ(answer["choices"][0]["token_ids"], (json{488, 489, 2}));
  EXPECT_EQ(answer["choices"][0]["logprobs"]["content"][1]["token"], "token_id:489");
}

TEST_F(HttpApi, StreamsTellTheirTokensByNumberPieceByPiece) {
  StartServer(AlwaysAnswer({488, 229, 155, 134, 2}));  // a snowman has three of them
  json request = {{"prompt", {1, 490}}, {"stream", true}, {"return_token_ids", true}};
  json tokens = json::array();
  int num_prompts = 0;
  for (const json& event : Stream("/v1/completions", request)) {
    const json& choice = event["choices"][0];
    num_prompts += choice.contains("prompt_token_ids");
    for (const json& token : choice["token_ids"]) tokens.push_back(token);
  }
  EXPECT_EQ(tokens, (json{488, 229, 155, 134, 2}));
  EXPECT_EQ(num_prompts, 1);
  request.erase("prompt");
  request["messages"] = {{{"role", "user"}, {"content", "x"}}};
  const std::vector<json> events = Stream("/v1/chat/completions", request);
  EXPECT_EQ(events.front()["prompt_token_ids"], json(engine_->requests().back().prompt));
  EXPECT_FALSE(events.back().contains("prompt_token_ids"));
}

TEST_F(HttpApi, PromptsAreCutIfAskedFor) {
  max_model_len_ = 50;
  StartServer();
  const std::vector<TokenId> prompt = {1, 488, 489, 490, 491};
  const auto cut = [&](json fields) {
    fields["prompt"] = prompt;
    EXPECT_EQ(Post("/v1/completions", fields).status, 200);
    return engine_->requests().back().prompt;
  };
  EXPECT_THAT(cut({{"truncate_prompt_tokens", 2}}), ElementsAre(490, 491));
  EXPECT_THAT(cut({{"truncate_prompt_tokens", 2}, {"truncation_side", "right"}}),
              ElementsAre(1, 488));
  EXPECT_EQ(cut({{"truncate_prompt_tokens", 9}}), prompt);
  EXPECT_THAT(cut({{"truncate_prompt_tokens", -1}, {"max_tokens", 47}}),
              ElementsAre(489, 490, 491));
}

TEST_F(HttpApi, ARequestIsCalledWhatItsClientCallsIt) {
  StartServer(AlwaysAnswer({488, 2}));
  EXPECT_EQ(Post("/v1/completions", {{"prompt", "x"}, {"request_id", "a-7"}}).json()["id"],
            "cmpl-a-7");
}

TEST_F(HttpApi, TheIdOfARequestStandsInItsAnswer) {
  StartServer(AlwaysAnswer({488, 2}));
  const std::string body = R"({"prompt": "x"})";
  EXPECT_EQ(Request("POST", "/v1/completions", body, "X-Request-Id: r7\r\n").json()["id"],
            "cmpl-r7");
  const ClientResponse drawn = Request("POST", "/v1/completions", body);
  EXPECT_EQ(drawn.json()["id"], "cmpl-" + drawn.headers.at("x-request-id"));
}

TEST_F(HttpApi, OneModel) {
  StartServer();
  EXPECT_EQ(Get("/v1/models/tiny").json(), Get("/v1/models").json()["data"][0]);
  EXPECT_EQ(Get("/v1/models/t%69ny").status, 200);
  const ClientResponse unknown = Get("/v1/models/a/b%2");
  EXPECT_EQ(unknown.status, 404);
  EXPECT_THAT(ErrorOf(unknown)["message"].get<std::string>(), HasSubstr("'a/b%2' is not served"));
  EXPECT_EQ(Get("/v1/models/").status, 404);
  EXPECT_EQ(Request("POST", "/v1/models/tiny", "{}").status, 405);
}

TEST_F(HttpApi, PagesOfAllowedOriginsMayUseIt) {
  options_.allowed_origins = {"https://a.example"};
  options_.service.api_key = "secret";
  StartServer(AlwaysAnswer({488, 2}));
  const auto asked = [&](const std::string& origin) {
    return Request("OPTIONS", "/v1/chat/completions", "",
                   "Origin: " + origin +
                       "\r\nAccess-Control-Request-Method: POST\r\n"
                       "Access-Control-Request-Headers: authorization,content-type\r\n");
  };
  const ClientResponse allowed = asked("https://a.example");
  EXPECT_EQ(allowed.status, 200);
  EXPECT_EQ(allowed.headers.at("access-control-allow-origin"), "https://a.example");
  EXPECT_EQ(allowed.headers.at("access-control-allow-headers"), "authorization,content-type");
  const ClientResponse other = asked("https://b.example");
  EXPECT_NE(other.status, 200);
  EXPECT_FALSE(other.headers.contains("access-control-allow-origin"));
  for (const bool stream : {false, true}) {
    const ClientResponse answer =
        Request("POST", "/v1/completions", json{{"prompt", "x"}, {"stream", stream}}.dump(),
                "Origin: https://a.example\r\nAuthorization: Bearer secret\r\n");
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.headers.at("access-control-allow-origin"), "https://a.example");
    EXPECT_EQ(answer.headers.at("vary"), "Origin");
  }
  EXPECT_FALSE(Get("/version").headers.contains("access-control-allow-origin"));
}

TEST_F(HttpApi, ReasoningEffortIsForTemplatesThatNameIt) {
  const json request = {{"messages", {{{"role", "user"}, {"content", "x"}}}},
                        {"reasoning_effort", "low"}};
  StartServer(AlwaysAnswer({488, 2}));
  const ClientResponse refused = Post("/v1/chat/completions", request);
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(ErrorOf(refused)["param"], "reasoning_effort");
  server_.reset();
  chat_template_ =
      std::move(*ChatTemplate::Parse("{{ reasoning_effort }}{{ enable_thinking }}", {}));
  StartServer(AlwaysAnswer({488, 2}));
  EXPECT_EQ(Post("/v1/chat/completions", request).status, 200);
  EXPECT_EQ(engine_->requests().back().prompt, tokenizer().Encode("lowTrue", true).value());
}

}  // namespace
}  // namespace lamina::testing
