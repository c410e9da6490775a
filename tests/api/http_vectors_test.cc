// Embeddings, scores and rankings. The fake engine embeds a prompt as how many tokens it has, its
// first and last token, and -1.
#include <cmath>
#include <cstring>

#include "api/vector_answer.h"
#include "tests/support/http_fixture.h"

namespace lamina::testing {
namespace http_vectors_test {

using nlohmann::json;
using ::testing::HasSubstr;

std::vector<float> Unit(std::vector<float> values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value) * static_cast<double>(value);
  for (float& value : values)
    value = static_cast<float>(static_cast<double>(value) / std::sqrt(sum));
  return values;
}

double CosineOf(const std::vector<float>& a, const std::vector<float>& b) {
  const std::vector<float> x = Unit(a), y = Unit(b);
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i)
    sum += static_cast<double>(x[i]) * static_cast<double>(y[i]);
  return sum;
}

std::vector<uint8_t> FromBase64(const std::string& text) {
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::vector<uint8_t> bytes;
  uint32_t bits = 0;
  int num_bits = 0;
  for (const char c : text) {
    if (c == '=') break;
    bits = bits << 6 | static_cast<uint32_t>(digits.find(c));
    if ((num_bits += 6) < 8) continue;
    num_bits -= 8;
    bytes.push_back(static_cast<uint8_t>(bits >> num_bits));
  }
  return bytes;
}

class HttpVectors : public HttpTest {
 protected:
  void SetUp() override { StartServer(AlwaysAnswer({})); }

  // What an error says; it is about `field`.
  std::string Refusal(const std::string& path, const json& body, const std::string& field) {
    const ClientResponse response = Post(path, body);
    EXPECT_EQ(response.status, 400) << response.body;
    const json error = response.json()["error"];
    EXPECT_EQ(error["param"].is_null() ? "" : error["param"].get<std::string>(), field) << error;
    return error.value("message", "");
  }
};

class HttpOtherVectors : public HttpTest {
 protected:
  void SetUp() override {
    no_vectors_reason_ = "its vectors are means";
    StartServer(AlwaysAnswer({}));
  }
};

TEST_F(HttpOtherVectors, AreRefusedWithTheReason) {
  for (const auto& [path, body] :
       {std::pair("/v1/embeddings", json{{"input", "Once"}}),
        std::pair("/score", json{{"text_1", "Once"}, {"text_2", "upon"}}),
        std::pair("/rerank", json{{"query", "Once"}, {"documents", {"upon"}}}),
        std::pair("/api/embed", json{{"model", "tiny"}, {"input", "Once"}})}) {
    const ClientResponse response = Post(path, body);
    EXPECT_EQ(response.status, 400) << path;
    EXPECT_THAT(response.body, HasSubstr("its vectors are means")) << path;
  }
}

// "Once" is 1, 488 and "upon" 1, 489.
TEST_F(HttpVectors, TextsAndTokensBecomeVectorsOfLengthOne) {
  const json one =
      Post("/v1/embeddings", {{"model", "tiny"}, {"input", "Once"}, {"user", "u"}}).json();
  EXPECT_EQ(one["object"], "list");
  EXPECT_EQ(one["model"], "tiny");
  ASSERT_EQ(one["data"].size(), 1u);
  EXPECT_EQ(one["data"][0]["object"], "embedding");
  EXPECT_EQ(one["data"][0]["index"], 0);
  EXPECT_EQ(one["data"][0]["embedding"].get<std::vector<float>>(), Unit({2, 1, 488, -1}));
  EXPECT_EQ(one["usage"]["prompt_tokens"], 2);
  EXPECT_EQ(one["usage"]["total_tokens"], 2);
  const json tokens = Post("/v1/embeddings", {{"input", {1, 488}}}).json();
  EXPECT_EQ(tokens["data"], one["data"]);
  const json texts = Post("/v1/embeddings", {{"input", {"Once", "upon"}}}).json();
  const json lists = Post("/v1/embeddings", {{"input", {{1, 488}, {1, 489}}}}).json();
  EXPECT_EQ(texts["data"], lists["data"]);
  EXPECT_EQ(lists["data"][1]["index"], 1);
  EXPECT_EQ(lists["data"][1]["embedding"].get<std::vector<float>>(), Unit({2, 1, 489, -1}));
  EXPECT_EQ(lists["usage"]["prompt_tokens"], 4);
  const GenerateRequest asked = engine_->requests().at(0);
  EXPECT_TRUE(asked.sampling.embeds);
  EXPECT_EQ(asked.n, 1);
  EXPECT_EQ(asked.max_new_tokens, 1);
  const json bare =
      Post("/v1/embeddings", {{"input", "Once"}, {"add_special_tokens", false}}).json();
  EXPECT_EQ(bare["data"][0]["embedding"].get<std::vector<float>>(), Unit({1, 488, 488, -1}));
}

TEST_F(HttpVectors, HaveTheFormThatIsAskedFor) {
  const json coded =
      Post("/v1/embeddings", {{"input", {7, 9}}, {"encoding_format", "base64"}}).json();
  const std::vector<uint8_t> bytes = FromBase64(coded["data"][0]["embedding"]);
  std::vector<float> values(4);
  ASSERT_EQ(bytes.size(), sizeof(float) * values.size());
  std::memcpy(values.data(), bytes.data(), bytes.size());
  EXPECT_EQ(values, Unit({2, 7, 9, -1}));
  const auto values_of = [&](json fields) {
    fields["input"] = {7, 9};
    return Post("/v1/embeddings", fields).json()["data"][0]["embedding"].get<std::vector<float>>();
  };
  EXPECT_EQ(values_of({{"dimensions", 2}}), Unit({2, 7}));
  EXPECT_EQ(values_of({{"dimensions", 4}}), values);
  EXPECT_EQ(values_of({{"normalize", false}}), (std::vector<float>{2, 7, 9, -1}));
  EXPECT_EQ(values_of({{"use_activation", false}}), (std::vector<float>{2, 7, 9, -1}));
  EXPECT_EQ(values_of({{"normalize", false}, {"dimensions", 3}}), (std::vector<float>{2, 7, 9}));
  EXPECT_EQ(values_of({{"embed_dtype", "float32"}, {"endianness", "little"}}), values);
}

TEST_F(HttpVectors, LongTextsAreRefusedOrCut) {
  std::vector<TokenId> longest(1023), longer(1024);
  for (size_t i = 0; i < longer.size(); ++i) longer[i] = static_cast<TokenId>(i % 1000);
  std::copy_n(longer.begin(), longest.size(), longest.begin());
  EXPECT_EQ(Post("/v1/embeddings", {{"input", longest}}).status, 200);
  EXPECT_THAT(Refusal("/v1/embeddings", {{"input", {{5}, longer}}}, ""),
              HasSubstr("text 1 has 1024 tokens; at most 1023 are possible"));
  const auto last_of = [&](json fields) {
    fields["normalize"] = false;
    return Post("/v1/embeddings", fields).json()["data"][0]["embedding"];
  };
  EXPECT_EQ(last_of({{"input", longer}, {"truncate_prompt_tokens", -1}}),
            (json{1023.0, 0.0, 22.0, -1.0}));
  EXPECT_EQ(last_of({{"input", longer}, {"truncate_prompt_tokens", 3}}),
            (json{3.0, 0.0, 2.0, -1.0}));
  EXPECT_EQ(
      last_of({{"input", longer}, {"truncate_prompt_tokens", 3}, {"truncation_side", "left"}}),
      (json{3.0, 21.0, 23.0, -1.0}));
  const std::string text(20000, 'x');
  EXPECT_THAT(Refusal("/v1/embeddings", {{"input", {"a", text}}}, "input"), HasSubstr("text 1"));
  EXPECT_EQ(Post("/v1/embeddings", {{"input", text}, {"truncate_prompt_tokens", -1}}).status, 200)
      << "what is cut may be longer than the context";
}

// The first one; "</s>" would stay too.
TEST_F(HttpVectors, SpecialTokensStayWhenATextIsCut) {
  const auto values_of = [&](json fields) {
    fields.update({{"input", "upon Once upon"}, {"normalize", false}});
    return Post("/v1/embeddings", fields).json()["data"][0]["embedding"];
  };
  EXPECT_EQ(values_of({}), (json{4.0, 1.0, 489.0, -1.0}));
  EXPECT_EQ(values_of({{"truncate_prompt_tokens", 3}}), (json{3.0, 1.0, 488.0, -1.0}));
  EXPECT_EQ(values_of({{"truncate_prompt_tokens", 3}, {"truncation_side", "left"}}),
            (json{3.0, 1.0, 489.0, -1.0}));
  EXPECT_EQ(values_of({{"truncate_prompt_tokens", 1}, {"truncation_side", "left"}}),
            (json{1.0, 489.0, 489.0, -1.0}))
      << "there is room for nothing else";
}

TEST_F(HttpVectors, WhatCannotBeDoneIsRefusedByName) {
  const std::pair<json, const char*> refused[] = {
      {{{"model", "tiny"}}, "input"},
      {{{"input", ""}, {"add_special_tokens", false}}, ""},
      {{{"input", json::array()}}, "input"},
      {{{"input", {json::array()}}}, "input"},
      {{{"input", {{1, 1024}}}}, "input"},
      {{{"input", {1, -1}}}, "input"},
      {{{"input", {1, 2.5}}}, "input"},
      {{{"input", {"a", nullptr}}}, "input"},
      {{{"input", 5}}, "input"},
      {{{"input", std::vector<std::string>(8193, "a")}}, "input"},
      {{{"input", "a"}, {"encoding_format", "bytes"}}, "encoding_format"},
      {{{"input", "a"}, {"dimensions", 0}}, "dimensions"},
      {{{"input", "a"}, {"dimensions", 5}}, "dimensions"},
      {{{"input", "a"}, {"embed_dtype", "float16"}}, "embed_dtype"},
      {{{"input", "a"}, {"endianness", "big"}}, "endianness"},
      {{{"input", "a"}, {"pooling", "mean"}}, "pooling"},
      {{{"input", "a"}, {"messages", {{{"role", "user"}}}}}, "messages"},
      {{{"input", "a"}, {"cache_salt", "x"}}, "cache_salt"},
      {{{"input", "a"}, {"truncate_prompt_tokens", 0}}, "truncate_prompt_tokens"},
      {{{"input", "a"}, {"padding", "max_length"}}, "padding"},
  };
  for (const auto& [body, field] : refused)
    EXPECT_NE(Refusal("/v1/embeddings", body, field), "") << body.dump().substr(0, 200);
  EXPECT_EQ(Post("/v1/embeddings", {{"model", "other"}, {"input", "a"}}).status, 404);
  EXPECT_TRUE(engine_->requests().empty());
}

// Of thousands of texts the engine has a few at a time, and others are served between them.
TEST_F(HttpVectors, ManyTextsAreGivenToTheEngineAFewAtATime) {
  engine_->PauseAfter(0);
  json input = json::array();
  for (int i = 0; i < 3000; ++i) input.push_back({i % 1000, i / 1000});
  ClientConnection client(port());
  client.SendRequest("POST", "/v1/embeddings", json{{"input", input}, {"normalize", false}}.dump());
  while (engine_->num_running() < 64) std::this_thread::yield();
  EXPECT_EQ(engine_->num_running(), 64u) << "as many as ServedModel::max_num_seqs";
  engine_->Resume();
  const json answer = client.Receive().json();
  ASSERT_EQ(answer["data"].size(), 3000u);
  for (int i = 0; i < 3000; ++i) {
    const json expected = {2.0, static_cast<double>(i % 1000), static_cast<double>(i / 1000), -1.0};
    ASSERT_EQ(answer["data"][static_cast<size_t>(i)]["embedding"], expected) << i;
  }
  EXPECT_EQ(answer["usage"]["prompt_tokens"], 6000);
}

TEST_F(HttpVectors, AClientThatVanishesLeavesNothingInTheEngine) {
  engine_->PauseAfter(0);
  {
    ClientConnection client(port());
    client.SendRequest("POST", "/v1/embeddings",
                       json{{"input", std::vector<std::string>(500, "Once")}}.dump());
    while (engine_->num_running() < 64) std::this_thread::yield();
  }
  EXPECT_TRUE(engine_->WaitForAborts(64, Soon()));
  EXPECT_TRUE(engine_->WaitUntilIdle(Soon()));
  EXPECT_EQ(engine_->requests().size(), 64u) << "none was submitted any more";
}

TEST_F(HttpVectors, AnEngineThatIsFullIsWaitedForWhileItWorksForTheRequest) {
  engine_->RefuseSubmits(TryAgain(), 3);
  EXPECT_EQ(Post("/v1/embeddings", {{"input", {"a", "b", "c"}}}).status, 503);
  EXPECT_EQ(engine_->requests().size(), 2u);
  EXPECT_TRUE(engine_->WaitUntilIdle(Soon()));
  engine_->RefuseSubmits(OkStatus());
  EXPECT_EQ(Post("/v1/embeddings", {{"input", {"a", "b", "c"}}}).status, 200);
  engine_->FailAfter(0, InternalError("broken"));
  const ClientResponse failed = Post("/v1/embeddings", {{"input", {"a", "b", "c"}}});
  EXPECT_EQ(failed.status, 500);
  EXPECT_THAT(failed.body, HasSubstr("broken"));
}

TEST_F(HttpVectors, OfAnotherWidthThanTheModelsAreAnError) {
  engine_->PauseAfter(0);
  ClientConnection client(port());
  client.SendRequest("POST", "/v1/embeddings", json{{"input", "a"}}.dump());
  while (engine_->num_running() < 1) std::this_thread::yield();
  engine_->Stop(RequestId{1}, 0);
  const ClientResponse response = client.Receive();
  EXPECT_EQ(response.status, 500) << response.body;
  EXPECT_THAT(response.body, HasSubstr("a vector of 0 values"));
}

TEST_F(HttpVectors, ScoresAreCosines) {
  const auto score = [](const json& body, size_t i) {
    return body["data"][i]["score"].get<double>();
  };
  const std::vector<float> once = {2, 1, 488, -1}, upon = {2, 1, 489, -1};
  const json one = Post("/v1/score", {{"text_1", "Once"}, {"text_2", {"upon", "Once"}}}).json();
  EXPECT_EQ(one["object"], "list");
  EXPECT_EQ(one["data"][0]["object"], "score");
  EXPECT_NEAR(score(one, 0), CosineOf(once, upon), 1e-6);
  EXPECT_NEAR(score(one, 1), 1, 1e-6);
  EXPECT_EQ(one["usage"]["prompt_tokens"], 6);
  const json pairs =
      Post("/score", {{"queries", {"Once", "upon"}}, {"documents", {"Once", "Once"}}}).json();
  ASSERT_EQ(pairs["data"].size(), 2u);
  EXPECT_NEAR(score(pairs, 0), 1, 1e-6);
  EXPECT_NEAR(score(pairs, 1), CosineOf(once, upon), 1e-6);
  EXPECT_THAT(Refusal("/score", {{"text_1", {"a", "b"}}, {"text_2", {"a", "b", "c"}}}, "text_1"),
              HasSubstr("'text_1' has 2 texts and 'text_2' 3"));
  Refusal("/score", {{"text_1", "a"}}, "text_2");
  Refusal("/score", {{"text_1", "a"}, {"text_2", json::array()}}, "text_2");
  Refusal("/score", {{"text_1", "a"}, {"text_2", {1, 2}}}, "text_2");
}

TEST_F(HttpVectors, DocumentsAreRankedByTheirCosines) {
  const json documents = {"upon a time there was", {{"text", "Once"}}, "upon"};
  const json all = Post("/v1/rerank", {{"query", "Once"}, {"documents", documents}}).json();
  ASSERT_EQ(all["results"].size(), 3u);
  EXPECT_EQ(all["results"][0]["index"], 1);
  EXPECT_EQ(all["results"][0]["document"]["text"], "Once");
  EXPECT_EQ(all["results"][1]["index"], 2);
  EXPECT_NEAR(all["results"][1]["relevance_score"].get<double>(),
              CosineOf({2, 1, 488, -1}, {2, 1, 489, -1}), 1e-6);
  EXPECT_EQ(all["results"][2]["index"], 0);
  EXPECT_EQ(all["usage"]["total_tokens"], all["usage"]["prompt_tokens"]);
  for (const char* path : {"/rerank", "/v2/rerank"}) {
    const json best = Post(path, {{"query", "Once"},
                                  {"documents", documents},
                                  {"top_n", 1},
                                  {"return_documents", false}})
                          .json();
    ASSERT_EQ(best["results"].size(), 1u);
    EXPECT_EQ(best["results"][0]["index"], 1);
    EXPECT_FALSE(best["results"][0].contains("document"));
  }
  Refusal("/rerank", {{"documents", documents}}, "query");
  Refusal("/rerank", {{"query", {"a"}}, {"documents", documents}}, "query");
  Refusal("/rerank", {{"query", "a"}, {"documents", json::array()}}, "documents");
  Refusal("/rerank", {{"query", "a"}, {"documents", {{{"title", "x"}}}}}, "documents");
  Refusal("/rerank", {{"query", "a"}, {"documents", documents}, {"top_n", -1}}, "top_n");
  Refusal("/rerank", {{"query", "a"}, {"documents", documents}, {"max_tokens_per_doc", 5}},
          "max_tokens_per_doc");
}

TEST_F(HttpVectors, OllamasClientsHaveTheirPaths) {
  const json body =
      Post("/api/embed", {{"model", "tiny:latest"}, {"input", {"Once", "upon"}}}).json();
  EXPECT_EQ(body["model"], "tiny");
  ASSERT_EQ(body["embeddings"].size(), 2u);
  EXPECT_EQ(body["embeddings"][1].get<std::vector<float>>(), Unit({2, 1, 489, -1}));
  EXPECT_EQ(body["prompt_eval_count"], 4);
  const json cut =
      Post("/api/embed", {{"model", "tiny"}, {"input", "Once"}, {"dimensions", 2}}).json();
  EXPECT_EQ(cut["embeddings"][0].get<std::vector<float>>(), Unit({2, 1}));
  const json plain = Post("/api/embeddings", {{"model", "tiny"}, {"prompt", "Once"}}).json();
  EXPECT_EQ(plain["embedding"], (json{2.0, 1.0, 488.0, -1.0}));
  EXPECT_EQ(Post("/api/embed", {{"model", "tiny"}}).json()["embeddings"], json::array());
  EXPECT_EQ(Post("/api/embeddings", {{"model", "tiny"}}).json()["embedding"], json::array());
  const std::string text(20000, 'x');
  EXPECT_EQ(Post("/api/embed", {{"model", "tiny"}, {"input", text}}).status, 200);
  EXPECT_EQ(Post("/api/embed", {{"model", "tiny"}, {"input", text}, {"truncate", false}}).status,
            400);
  const ClientResponse unknown = Post("/api/embed", {{"model", "tiny"}, {"input", "a"}, {"x", 1}});
  EXPECT_EQ(unknown.status, 400);
  EXPECT_THAT(unknown.json()["error"].get<std::string>(), HasSubstr("'x'"));
  EXPECT_EQ(Post("/api/embed", {{"input", "a"}}).status, 400);
}

TEST(Base64, IsThatOfItsStandard) {
  const auto coded = [](const std::string& text) {
    return ToBase64(std::as_bytes(std::span(text)));
  };
  // RFC 4648, section 10.
  EXPECT_EQ(coded(""), "");
  EXPECT_EQ(coded("f"), "Zg==");
  EXPECT_EQ(coded("fo"), "Zm8=");
  EXPECT_EQ(coded("foo"), "Zm9v");
  EXPECT_EQ(coded("foob"), "Zm9vYg==");
  EXPECT_EQ(coded("fooba"), "Zm9vYmE=");
  EXPECT_EQ(coded("foobar"), "Zm9vYmFy");
}

TEST(Vectors, OfLengthZeroStaySo) {
  VectorForm form;
  form.width = 3;
  std::vector<float> zeros(3);
  Finish(form, zeros);
  EXPECT_EQ(zeros, std::vector<float>(3));
}

}  // namespace http_vectors_test
}  // namespace lamina::testing
