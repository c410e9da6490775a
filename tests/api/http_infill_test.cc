// `suffix`: text between two others. 'a' to 'z' are tokens 0 to 25.
#include "tests/support/http_fixture.h"
#include "tests/support/letters_tokenizer.h"

namespace lamina::testing {
namespace http_infill_test {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class HttpInfill : public HttpTest {
 protected:
  // The model's answer is "xy", and then what it ends with.
  void Serve(const std::vector<std::string>& special, std::vector<TokenId> answer) {
    letters_ = LettersTokenizer(special);
    tokenizer_ = letters_.get();
    StartServer(AlwaysAnswer(std::move(answer)));
  }
  std::vector<TokenId> LastPrompt() { return engine_->requests().back().prompt; }

  std::unique_ptr<Tokenizer> letters_;
};

TEST_F(HttpInfill, IsAskedForByTheModelsTokens) {
  Serve({"<s>", "▁<PRE>", "▁<MID>", "▁<SUF>", "▁<EOT>"}, {23, 24, 30, 23});
  const json body =
      Post("/v1/completions", {{"prompt", "ab"}, {"suffix", "cd"}, {"max_tokens", 9}}).json();
  EXPECT_THAT(LastPrompt(), ElementsAre(26, 27, 0, 1, 29, 2, 3, 28));
  EXPECT_EQ(body["choices"][0]["text"], "xy");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "stop") << "at <EOT>";
  EXPECT_EQ(body["usage"]["prompt_tokens"], 8);
  Post("/v1/completions", {{"prompt", {1, 0}}, {"suffix", "c"}, {"add_special_tokens", false}});
  EXPECT_THAT(LastPrompt(), ElementsAre(27, 1, 0, 29, 2, 28));
  Post("/v1/completions", {{"prompt", {"", "b"}}, {"suffix", "c"}});
  EXPECT_THAT(engine_->requests().end()[-2].prompt, ElementsAre(26, 27, 29, 2, 28));
  EXPECT_THAT(LastPrompt(), ElementsAre(26, 27, 1, 29, 2, 28));
  Post("/v1/completions", {{"prompt", "ab"}, {"suffix", ""}});
  EXPECT_THAT(LastPrompt(), ElementsAre(26, 0, 1)) << "the same as none";
  EXPECT_TRUE(engine_->requests().back().stop_tokens.empty());
  // What is written in the texts is encoded as in any prompt.
  Post("/v1/completions", {{"prompt", "a▁<SUF>"}, {"suffix", "c"}});
  EXPECT_THAT(LastPrompt(), ElementsAre(26, 27, 0, 29, 29, 2, 28));
}

TEST_F(HttpInfill, OllamasClientsHaveItToo) {
  Serve({"<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>"}, {23, 24});
  const json body = Post("/api/generate",
                         {{"model", "tiny"}, {"prompt", "ab"}, {"suffix", "cd"}, {"stream", false}})
                        .json();
  EXPECT_THAT(LastPrompt(), ElementsAre(26, 0, 1, 28, 2, 3, 27));
  EXPECT_EQ(body["response"], "xy");
  Post("/api/generate", {{"model", "tiny"}, {"prompt", ""}, {"suffix", "cd"}, {"stream", false}});
  EXPECT_THAT(LastPrompt(), ElementsAre(26, 28, 2, 3, 27));
}

TEST_F(HttpInfill, IsRefusedWhereTheTokenizerHasNoTokensForIt) {
  Serve({"<s>", "<|fim_prefix|>"}, {23});
  const ClientResponse response = Post("/v1/completions", {{"prompt", "ab"}, {"suffix", "cd"}});
  EXPECT_EQ(response.status, 400);
  EXPECT_EQ(response.json()["error"]["param"], "suffix");
  EXPECT_THAT(response.body, HasSubstr("this model's tokenizer has no tokens"));
  EXPECT_TRUE(engine_->requests().empty());
}

TEST_F(HttpInfill, TextsThatAreTooLongAreRefused) {
  Serve({"<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>"}, {23});
  const std::string half(511, 'a');  // 1,025 tokens with those of the model
  for (const auto& [prompt, suffix] : {std::pair(half, half), {"a", std::string(5000, 'b')}}) {
    const ClientResponse response =
        Post("/v1/completions", {{"prompt", prompt}, {"suffix", suffix}});
    EXPECT_EQ(response.status, 400) << response.body;
  }
  EXPECT_EQ(Post("/v1/completions", {{"prompt", half}, {"suffix", half.substr(2)}}).status, 200);
  for (const json& more : {json{{"echo", true}}, json{{"prompt_logprobs", 0}},
                           json{{"truncate_prompt_tokens", 5}}, json{{"suffix", 5}}}) {
    json body = {{"prompt", "a"}, {"suffix", "b"}};
    body.update(more);
    EXPECT_EQ(Post("/v1/completions", body).status, 400) << more;
  }
}

}  // namespace http_infill_test
}  // namespace lamina::testing
