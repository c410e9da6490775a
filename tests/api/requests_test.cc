#include "api/requests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/token_mask.h"

namespace lamina {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const RequestRules kRules{1024, {}};

struct ParsedCompletion {
  CompletionRequest request;
  std::optional<ApiError> error;
  std::vector<std::string> unknown;
};

ParsedCompletion Completion(const json& body, const RequestRules& rules = kRules) {
  ParsedCompletion parsed;
  parsed.error = ParseCompletion(body, rules, parsed.request, parsed.unknown);
  return parsed;
}

struct ParsedChat {
  ChatRequest request;
  std::optional<ApiError> error;
  std::vector<std::string> unknown;
};

ParsedChat Chat(const json& body) {
  ParsedChat parsed;
  parsed.error = ParseChat(body, kRules, parsed.request, parsed.unknown);
  return parsed;
}

json WithPrompt(json fields) {
  if (!fields.contains("prompt")) fields["prompt"] = "x";
  return fields;
}

TEST(ParseBody, BadBodiesGetOneSentence) {
  json out;
  EXPECT_THAT(ParseBody("", out)->message, HasSubstr("empty"));
  for (const std::string body :
       {"{", "nope", "{\"a\": \"\xFF\"}", "{\"a\": \"\\ud800\"}", "{\"a\": 1e999}", "{} {}"}) {
    const auto error = ParseBody(body, out);
    ASSERT_TRUE(error) << body;
    EXPECT_EQ(error->http_status, 400);
    EXPECT_THAT(error->message, HasSubstr("not valid JSON in UTF-8"));
  }
  EXPECT_THAT(ParseBody("[1]", out)->message, HasSubstr("must be a JSON object, not a list"));
  EXPECT_FALSE(ParseBody(R"({"a": "[[["})", out));
}

TEST(ParseBody, DeepNestingIsRefusedBeforeParsing) {
  json out;
  const std::string deep(4'000'000, '[');
  EXPECT_THAT(ParseBody("{\"a\": " + deep, out)->message, HasSubstr("nested"));
  EXPECT_FALSE(ParseBody("{\"a\": " + std::string(99, '[') + std::string(99, ']') + "}", out));
}

TEST(ParseCompletion, Defaults) {
  const auto parsed = Completion({{"prompt", "Once"}});
  ASSERT_FALSE(parsed.error);
  const GenerationOptions& options = parsed.request.options;
  EXPECT_EQ(options.n, 1);
  EXPECT_FALSE(options.max_tokens);
  EXPECT_FALSE(options.stream);
  EXPECT_FALSE(options.has_seed);
  EXPECT_FLOAT_EQ(options.sampling.temperature, 1);
  EXPECT_FLOAT_EQ(options.sampling.top_p, 1);
  EXPECT_EQ(options.sampling.top_k, 0);
  EXPECT_FLOAT_EQ(options.sampling.min_p, 0);
  EXPECT_FLOAT_EQ(options.sampling.repetition_penalty, 1);
  EXPECT_EQ(options.sampling.num_logprobs, -1);
  EXPECT_TRUE(options.skip_special_tokens);
}

TEST(ParseCompletion, TheModelsDefaultsReplaceTheApis) {
  RequestRules rules = kRules;
  rules.defaults.temperature = 0.6f;
  rules.defaults.top_k = 50;
  EXPECT_FLOAT_EQ(Completion({{"prompt", "x"}}, rules).request.options.sampling.temperature, 0.6f);
  EXPECT_EQ(Completion({{"prompt", "x"}}, rules).request.options.sampling.top_k, 50);
  EXPECT_FLOAT_EQ(
      Completion({{"prompt", "x"}, {"temperature", 0}}, rules).request.options.sampling.temperature,
      0);
}

TEST(ParseCompletion, EveryFieldIsRead) {
  const auto parsed = Completion(json::parse(
      R"({"model": "m", "prompt": "x", "n": 2, "stream": true, "stream_options": {"include_usage": true, "continuous_usage_stats": true},
      "max_tokens": 7, "min_tokens": 3, "ignore_eos": true, "stop": ["a", "b"], "stop_token_ids": [5, 6], "include_stop_str_in_output": true, "skip_special_tokens": false,
      "seed": -1, "temperature": 0.5, "top_p": 0.9, "top_k": 40, "min_p": 0.1, "frequency_penalty": 0.2, "presence_penalty": -0.3, "repetition_penalty": 1.1,
      "logit_bias": {"7": -100, "8": 2.5}, "logprobs": 4, "best_of": 2,
      "user": "me", "echo": false, "suffix": null, "use_beam_search": false,
      "priority": -3, "slo": {"ttft_ms": 500, "tpot_ms": 50}})"));
  ASSERT_FALSE(parsed.error) << parsed.error->message;
  const GenerationOptions& options = parsed.request.options;
  EXPECT_EQ(options.model, "m");
  EXPECT_EQ(options.n, 2);
  EXPECT_TRUE(options.stream && options.include_usage && options.continuous_usage &&
              options.ignore_eos && options.include_stop_in_output && options.has_seed);
  EXPECT_FALSE(options.skip_special_tokens);
  EXPECT_EQ(options.max_tokens, 7);
  EXPECT_EQ(options.min_tokens, 3);
  EXPECT_THAT(options.stop, ElementsAre("a", "b"));
  EXPECT_THAT(options.stop_token_ids, ElementsAre(5, 6));
  EXPECT_EQ(options.sampling.seed, UINT64_MAX);
  EXPECT_FLOAT_EQ(options.sampling.top_p, 0.9f);
  EXPECT_EQ(options.sampling.top_k, 40);
  EXPECT_FLOAT_EQ(options.sampling.min_p, 0.1f);
  EXPECT_FLOAT_EQ(options.sampling.frequency_penalty, 0.2f);
  EXPECT_FLOAT_EQ(options.sampling.presence_penalty, -0.3f);
  EXPECT_FLOAT_EQ(options.sampling.repetition_penalty, 1.1f);
  EXPECT_EQ(options.sampling.num_logprobs, 4);
  ASSERT_EQ(options.sampling.logit_bias.size(), 2u);
  EXPECT_EQ(options.sampling.logit_bias[1].first, 8);
  EXPECT_FLOAT_EQ(options.sampling.logit_bias[1].second, 2.5f);
  EXPECT_EQ(options.priority, -3);
  EXPECT_EQ(options.slo, (Slo{std::chrono::milliseconds(500), std::chrono::milliseconds(50)}));
  EXPECT_TRUE(parsed.unknown.empty());
}

TEST(ParseCompletion, ObjectivesAreOneOrTwoTimes) {
  const auto error_of = [](const json& slo) {
    const auto parsed = Completion({{"prompt", "x"}, {"slo", slo}});
    return parsed.error ? parsed.error->param + ": " + parsed.error->message : "";
  };
  EXPECT_EQ(error_of({{"tpot_ms", 50}}), "");
  EXPECT_EQ(error_of(nullptr), "");
  EXPECT_THAT(error_of(json::object()), HasSubstr("slo: 'slo' needs 'ttft_ms' or 'tpot_ms'"));
  EXPECT_THAT(error_of(5), HasSubstr("must be an object, not an integer"));
  EXPECT_THAT(error_of({{"ttft_ms", 0}}), HasSubstr("slo.ttft_ms: "));
  EXPECT_THAT(error_of({{"ttft_ms", 600001}}), HasSubstr("slo.ttft_ms: "));
  EXPECT_THAT(error_of({{"ttft", 5}}), HasSubstr("and no 'ttft'"));
}

TEST(ParseCompletion, PromptForms) {
  EXPECT_EQ(std::get<std::string>(Completion({{"prompt", "a"}}).request.prompts.at(0)), "a");
  EXPECT_EQ(Completion({{"prompt", {"a", "b"}}}).request.prompts.size(), 2u);
  EXPECT_THAT(
      std::get<std::vector<TokenId>>(Completion({{"prompt", {1, 2}}}).request.prompts.at(0)),
      ElementsAre(1, 2));
  const auto lists = Completion({{"prompt", {{1, 2}, {3}}}});
  EXPECT_THAT(std::get<std::vector<TokenId>>(lists.request.prompts.at(1)), ElementsAre(3));
}

TEST(ParseCompletion, WhatIsAskedOfThePrompt) {
  const auto options = [](const json& fields) {
    const auto parsed = Completion(WithPrompt(fields));
    EXPECT_FALSE(parsed.error) << parsed.error->message;
    return parsed.request.options;
  };
  GenerationOptions of = options({{"echo", true}, {"logprobs", 2}, {"max_tokens", 0}});
  EXPECT_TRUE(of.echo_logprobs && of.only_prompt);
  EXPECT_EQ(of.max_tokens, 1) << "the nodes choose one";
  EXPECT_EQ(of.sampling.num_prompt_logprobs, 2);
  EXPECT_EQ(of.prompt_logprobs, -1);
  of = options({{"echo", true}, {"logprobs", 2}, {"prompt_logprobs", 5}});
  EXPECT_EQ(of.sampling.num_prompt_logprobs, 5) << "the most of both";
  EXPECT_EQ(of.sampling.num_logprobs, 2);
  EXPECT_FALSE(of.only_prompt);
  of = options({{"prompt_logprobs", 0}});
  EXPECT_FALSE(of.echo_logprobs);
  EXPECT_EQ(of.sampling.num_prompt_logprobs, 0);
  of = options({{"echo", true}});
  EXPECT_EQ(of.sampling.num_prompt_logprobs, -1);
  EXPECT_EQ(options({{"prompt_logprobs", nullptr}}).sampling.num_prompt_logprobs, -1);
}

TEST(ParseCompletion, UnknownFieldsAreNamedAndIgnored) {
  const auto parsed = Completion({{"prompt", "x"}, {"zzz", 1}, {"foo", {{"a", 1}}}});
  EXPECT_FALSE(parsed.error);
  EXPECT_THAT(parsed.unknown, ElementsAre("foo", "zzz"));
}

// Fields, the param that the error must name, and a part of its message.
struct BadRequest {
  const char* fields;
  const char* param;
  const char* message;
};

class BadCompletion : public ::testing::TestWithParam<BadRequest> {};

TEST_P(BadCompletion, IsRefusedWithTheFieldsName) {
  const auto parsed = Completion(WithPrompt(json::parse(GetParam().fields)));
  ASSERT_TRUE(parsed.error) << GetParam().fields;
  EXPECT_EQ(parsed.error->http_status, 400);
  EXPECT_EQ(parsed.error->param, GetParam().param);
  EXPECT_THAT(parsed.error->message, HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Requests, BadCompletion,
    ::testing::Values(
        BadRequest{R"({"temperature": "hot"})", "temperature", "must be a number, not a string"},
        BadRequest{R"({"temperature": -0.1})", "temperature", "between 0.0 and 2.0"},
        BadRequest{R"({"temperature": 2.5})", "temperature", "not 2.5"},
        BadRequest{R"({"top_p": 0})", "top_p", "above 0"},
        BadRequest{R"({"top_p": 1.5})", "top_p", "between"},
        BadRequest{R"({"top_k": -2})", "top_k", "between -1"},
        BadRequest{R"({"top_k": 1.5})", "top_k", "must be an integer, not a number"},
        BadRequest{R"({"top_k": 99999999999})", "top_k", "between"},
        BadRequest{R"({"min_p": 2})", "min_p", "between"},
        BadRequest{R"({"n": 0})", "n", "between 1 and 128"},
        BadRequest{R"({"n": true})", "n", "must be an integer, not a boolean"},
        BadRequest{R"({"n": [1]})", "n", "not a list"},
        BadRequest{R"({"max_tokens": 0})", "max_tokens", "at least 1"},
        BadRequest{R"({"max_tokens": "7"})", "max_tokens", "must be an integer, not a string"},
        BadRequest{R"({"max_tokens": 99999999999999999999})", "max_tokens", "not a number"},
        BadRequest{R"({"max_tokens": 18446744073709551615})", "max_tokens", "at least 1"},
        BadRequest{R"({"min_tokens": 5, "max_tokens": 4})", "min_tokens", "larger"},
        BadRequest{R"({"min_tokens": -1})", "min_tokens", "between"},
        BadRequest{R"({"stream": 1})", "stream", "must be true or false, not an integer"},
        BadRequest{R"({"stream_options": 3})", "stream_options", "must be an object"},
        BadRequest{R"({"stream_options": {"include_usage": "y"}})", "stream_options.include_usage",
                   "true or false"},
        BadRequest{R"({"stop": 3})", "stop", "must be a string or a list"},
        BadRequest{R"({"stop": ["a", 3]})", "stop", "strings only"},
        BadRequest{R"({"stop": ""})", "stop", "empty"},
        BadRequest{R"({"stop_token_ids": "1"})", "stop_token_ids", "list of token ids"},
        BadRequest{R"({"stop_token_ids": [1024]})", "stop_token_ids",
                   "between 0 and 1023, not 1024"},
        BadRequest{R"({"seed": "x"})", "seed", "must be an integer"},
        BadRequest{R"({"seed": 1.5})", "seed", "must be an integer"},
        BadRequest{R"({"logit_bias": [1]})", "logit_bias", "must be an object"},
        BadRequest{R"({"logit_bias": {"x": 1}})", "logit_bias", "token ids between 0 and 1023"},
        BadRequest{R"({"logit_bias": {"1024": 1}})", "logit_bias", "token ids"},
        BadRequest{R"({"logit_bias": {"1": 101}})", "logit_bias", "between -100 and 100"},
        BadRequest{R"({"logit_bias": {"1": "x"}})", "logit_bias", "numbers"},
        BadRequest{R"({"frequency_penalty": 3})", "frequency_penalty", "between -2.0 and 2.0"},
        BadRequest{R"({"repetition_penalty": 0})", "repetition_penalty", "between"},
        BadRequest{R"({"logprobs": 21})", "logprobs", "between 0 and 20"},
        BadRequest{R"({"logprobs": true})", "logprobs", "must be an integer"},
        BadRequest{R"({"model": 7})", "model", "must be a string"},
        BadRequest{R"({"prompt": 7})", "prompt", "must be a string, a list"},
        BadRequest{R"({"prompt": []})", "prompt", "empty list"},
        BadRequest{R"({"prompt": null})", "prompt", "missing"},
        BadRequest{R"({"prompt": {"a": 1}})", "prompt", "must be a string"},
        BadRequest{R"({"prompt": ["a", 3]})", "prompt", "must be a string"},
        BadRequest{R"({"prompt": [1, "a"]})", "prompt", "not a string"},
        BadRequest{R"({"prompt": [1, -1]})", "prompt", "not -1"},
        BadRequest{R"({"prompt": [1.5]})", "prompt", "not 1.5"},
        BadRequest{R"({"prompt": [[]]})", "prompt", "not empty"},
        BadRequest{R"({"prompt": [[1], [[2]]]})", "prompt", ""},
        BadRequest{R"({"prompt": [[1, 1024]]})", "prompt", "between 0 and 1023"},
        BadRequest{R"({"n": 4, "best_of": 3})", "best_of", "less than 'n'"},
        BadRequest{R"({"best_of": 129})", "best_of", "between"},
        BadRequest{R"({"best_of": 2, "stream": true})", "stream", "at the end"},
        BadRequest{R"({"best_of": 0})", "best_of", "between"},
        BadRequest{R"({"use_beam_search": true})", "use_beam_search", "at least 2"},
        BadRequest{R"({"use_beam_search": true, "n": 65})", "best_of", "at most 64"},
        BadRequest{
            R"({"use_beam_search": true, "n": 2, "stop_token_ids": [1, 2, 3, 4, 5, 6, 7, 8, 9]})",
            "stop_token_ids", "at most 8"},
        BadRequest{R"({"use_beam_search": true, "n": 4, "stream": true})", "stream",
                   "not supported with"},
        BadRequest{R"({"use_beam_search": true, "n": 4, "logprobs": 1})", "logprobs",
                   "not supported with"},
        BadRequest{R"({"suffix": "end", "echo": true})", "echo", "not supported with 'suffix'"},
        BadRequest{R"({"suffix": ["end"]})", "suffix", "must be a string"},
        BadRequest{R"({"prompt_logprobs": 21})", "prompt_logprobs", "between 0 and 20"},
        BadRequest{R"({"prompt_logprobs": -1})", "prompt_logprobs", "between 0 and 20"},
        BadRequest{R"({"prompt_logprobs": true})", "prompt_logprobs", "must be an integer"},
        BadRequest{R"({"prompt_logprobs": 0, "stream": true})", "prompt_logprobs",
                   "not supported with 'stream'"},
        BadRequest{R"({"use_beam_search": true, "n": 2, "prompt_logprobs": 1})", "prompt_logprobs",
                   "not supported with 'use_beam_search'"},
        BadRequest{R"({"use_beam_search": true, "n": 2, "echo": true, "max_tokens": 0})",
                   "max_tokens", "at least 1 with 'use_beam_search'"},
        BadRequest{R"({"logprobs": 1, "max_tokens": 0})", "max_tokens", "unless 'echo'"},
        BadRequest{R"({"echo": true, "max_tokens": -1})", "max_tokens", "at least 1"},
        BadRequest{R"({"echo": "yes"})", "echo", "true or false"},
        BadRequest{R"({"truncate_prompt_tokens": 0})", "truncate_prompt_tokens", "not be 0"},
        BadRequest{R"({"truncate_prompt_tokens": -2})", "truncate_prompt_tokens", "between -1"},
        BadRequest{R"({"truncation_side": "top"})", "truncation_side", "\"left\" or \"right\""},
        BadRequest{R"({"request_id": "a b"})", "request_id", "without spaces"},
        BadRequest{R"({"request_id": 7})", "request_id", "must be a string"},
        BadRequest{R"({"guided_json": 3})", "guided_json", "must be a JSON schema"},
        BadRequest{R"({"guided_json": "{"})", "guided_json", "not valid JSON"},
        BadRequest{R"({"guided_regex": ["a+"]})", "guided_regex", "must be a string"},
        BadRequest{R"({"guided_choice": "a"})", "guided_choice", "must be a list of strings"},
        BadRequest{R"({"guided_choice": ["a", ""]})", "guided_choice", "must be a list of strings"},
        BadRequest{R"({"structured_outputs": {"regex": 3}})", "structured_outputs.regex",
                   "must be a string"},
        BadRequest{R"({"structured_outputs": {"colour": "a"}})", "structured_outputs.colour",
                   "has no 'colour'"},
        BadRequest{R"({"structured_outputs": {"regex": ""}})", "structured_outputs",
                   "needs one of"},
        BadRequest{R"({"structured_outputs": {"structural_tag": "x"}})",
                   "structured_outputs.structural_tag", "not supported"},
        BadRequest{R"({"grammar": "root ::= x", "regex": "a"})", "regex",
                   "'grammar' and 'regex' are two"},
        BadRequest{R"({"response_format": {"type": "json_schema"}})",
                   "response_format.json_schema.schema", "needs 'json_schema.schema'"},
        BadRequest{R"({"guided_choice": ["a"], "ignore_eos": true})", "ignore_eos",
                   "not supported with 'guided_choice'"},
        BadRequest{R"({"use_beam_search": true, "n": 2, "guided_choice": ["a"]})", "guided_choice",
                   "not supported with 'use_beam_search'"},
        BadRequest{R"({"use_beam_search": true, "n": 2, "structured_outputs": {"regex": "a"}})",
                   "structured_outputs.regex", "not supported with 'use_beam_search'"},
        BadRequest{R"({"use_beam_search": true, "n": 2, "allowed_token_ids": [1]})",
                   "allowed_token_ids", "not supported with 'use_beam_search'"},
        BadRequest{R"({"allowed_token_ids": [1024]})", "allowed_token_ids", "1024"},
        BadRequest{R"({"allowed_token_ids": []})", "allowed_token_ids", "empty"},
        BadRequest{R"({"bad_words": "x"})", "bad_words", "must be a list of strings"},
        BadRequest{R"({"bad_words": ["x", ""]})", "bad_words", "not empty"},
        BadRequest{R"({"logits_processors": ["x"]})", "logits_processors", "not supported"},
        BadRequest{R"({"prompt_embeds": "AAAA"})", "prompt_embeds", "not supported"},
        BadRequest{R"({"n_predict": 4})", "n_predict", "use 'max_tokens'"},
        BadRequest{R"({"repeat_penalty": 1.1})", "repeat_penalty", "use 'repetition_penalty'"},
        BadRequest{R"({"typical_p": 0.9})", "typical_p", "not supported"},
        BadRequest{R"({"tfs_z": 0.5})", "tfs_z", "not supported"},
        BadRequest{R"({"top_a": 0.1})", "top_a", "not supported"},
        BadRequest{R"({"top_n_sigma": 1})", "top_n_sigma", "not supported"},
        BadRequest{R"({"xtc_probability": 0.5})", "xtc_probability", "not supported"},
        BadRequest{R"({"dry_multiplier": 0.8})", "dry_multiplier", "not supported"},
        BadRequest{R"({"mirostat_mode": 2})", "mirostat_mode", "not supported"},
        BadRequest{R"({"samplers": ["top_k"]})", "samplers", "not supported"},
        BadRequest{R"({"num_beams": 4})", "num_beams", "not supported"},
        BadRequest{R"({"min_new_tokens": 4})", "min_new_tokens", "use 'min_tokens'"},
        BadRequest{R"({"max_new_tokens": 4})", "max_new_tokens", "use 'max_tokens'"},
        BadRequest{R"({"stop_sequences": ["a"]})", "stop_sequences", "use 'stop'"},
        BadRequest{R"({"detokenize": false})", "detokenize", "answers are text"},
        BadRequest{R"({"return_token_ids": 1})", "return_token_ids", "true or false"},
        BadRequest{R"({"cache_salt": "x"})", "cache_salt", "shared by all"},
        BadRequest{R"({"lora": [{"id": 0}]})", "lora", "no adapters"},
        BadRequest{R"({"top_logprobs": 3})", "top_logprobs", "here 'logprobs' is their number"},
        BadRequest{R"({"response_format": {"type": "xml"}})", "response_format.type",
                   "'text', 'json_object' and 'json_schema'"}));

// The names of several servers for the same constraints.
TEST(ParseCompletion, ConstraintsAreRead) {
  struct Named {
    const char* fields;
    const char* field;
    ConstraintKind kind;
  };
  for (const Named& one :
       {Named{R"({"response_format": {"type": "json_object"}})", "response_format",
              ConstraintKind::kJsonObject},
        Named{R"({"structured_outputs": {"json_object": true}})", "structured_outputs.json_object",
              ConstraintKind::kJsonObject},
        Named{R"({"structured_outputs": {"choice": ["a"]}})", "structured_outputs.choice",
              ConstraintKind::kChoice},
        Named{R"({"guided_choice": ["a"], "guided_decoding_backend": "x"})", "guided_choice",
              ConstraintKind::kChoice},
        Named{R"({"regex": "a"})", "regex", ConstraintKind::kRegex},
        Named{R"({"guided_regex": "a"})", "guided_regex", ConstraintKind::kRegex},
        Named{R"({"ebnf": "a"})", "ebnf", ConstraintKind::kGrammar},
        Named{R"({"grammar": "a"})", "grammar", ConstraintKind::kGrammar},
        Named{R"({"guided_json": "{}"})", "guided_json", ConstraintKind::kJsonSchema}}) {
    const auto parsed = Completion(WithPrompt(json::parse(one.fields)));
    ASSERT_FALSE(parsed.error) << one.fields << parsed.error->message;
    ASSERT_TRUE(parsed.request.options.constraint) << one.fields;
    EXPECT_EQ(parsed.request.options.constraint->field, one.field);
    EXPECT_EQ(parsed.request.options.constraint->constraint.kind, one.kind) << one.fields;
    EXPECT_TRUE(parsed.unknown.empty()) << one.fields;
  }
  const auto listed =
      Completion({{"prompt", "x"}, {"bad_words", {"a", "b"}}, {"allowed_token_ids", {3, 8, 3}}});
  ASSERT_FALSE(listed.error);
  EXPECT_THAT(listed.request.options.bad_words, ElementsAre("a", "b"));
  const std::string& bits = listed.request.options.sampling.allowed_tokens;
  ASSERT_EQ(bits.size(), TokenMaskBytes(1024));
  EXPECT_TRUE(HasToken(bits, 3) && HasToken(bits, 8));
  EXPECT_FALSE(HasToken(bits, 0) || HasToken(bits, 9));
}

// The body's text has the order of properties, which its fields do not.
TEST(CompileRequested, SchemasKeepTheOrderOfTheBody) {
  for (const std::string& body :
       {std::string(R"({"prompt": "x", "guided_json": {"properties": {"b": {}, "a": {}}}})"),
        std::string(R"({"prompt": "x", "response_format": {"type": "json_schema", "json_schema":
                        {"schema": {"properties": {"b": {}, "a": {}}}}}})"),
        std::string(
            R"({"prompt": "x", "json_schema": "{\"properties\": {\"b\": {}, \"a\": {}}}"})")}) {
    const auto parsed = Completion(json::parse(body));
    ASSERT_FALSE(parsed.error) << parsed.error->message;
    const Result<std::string> compiled = CompileRequested(*parsed.request.options.constraint, body);
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    const Result<Grammar> grammar = CompileConstraint(
        {.kind = ConstraintKind::kJsonSchema,
         .schema = nlohmann::ordered_json::parse(R"({"properties": {"b": {}, "a": {}}})")});
    EXPECT_EQ(*compiled, grammar->ToBytes()) << body;
  }
}

// As clients write that spell every default of another server.
TEST(ParseCompletion, SamplersOfOtherServersMayBeOff) {
  const auto parsed = Completion({{"prompt", "a"},
                                  {"typical_p", 1.0},
                                  {"tfs_z", 1},
                                  {"top_a", 0},
                                  {"top_n_sigma", -1.0},
                                  {"xtc_probability", 0.0},
                                  {"xtc_threshold", 0.1},
                                  {"dry_multiplier", 0.0},
                                  {"dry_base", 1.75},
                                  {"mirostat", 0},
                                  {"mirostat_tau", 5.0},
                                  {"dynatemp_range", 0.0},
                                  {"num_beams", 1},
                                  {"detokenize", true},
                                  {"return_token_ids", false},
                                  {"cache_salt", nullptr},
                                  {"lora", json::array()}});
  EXPECT_FALSE(parsed.error.has_value()) << parsed.error->message;
}

TEST(ParseCompletion, BeamSearch) {
  const auto parsed = Completion({{"prompt", "a"},
                                  {"use_beam_search", true},
                                  {"n", 2},
                                  {"best_of", 5},
                                  {"length_penalty", 0.5},
                                  {"early_stopping", true}});
  ASSERT_FALSE(parsed.error.has_value()) << parsed.error->message;
  const auto& beams = parsed.request.options.beam_search;
  ASSERT_TRUE(beams.has_value());
  EXPECT_EQ(parsed.request.options.n, 2);
  EXPECT_EQ(parsed.request.options.best_of, 5);
  EXPECT_EQ(beams->length_penalty, 0.5);
  EXPECT_TRUE(beams->early_stopping);
  const std::vector<std::string> prompts(33, "a");
  EXPECT_THAT(
      Completion({{"prompt", prompts}, {"use_beam_search", true}, {"n", 2}, {"best_of", 32}})
          .error->message,
      HasSubstr("at most 1024"));
  const auto sampled =
      Completion({{"prompt", "a"}, {"n", 2}, {"length_penalty", 0.5}}).request.options;
  EXPECT_FALSE(sampled.beam_search.has_value());
  EXPECT_EQ(sampled.best_of, 2);
}

TEST(ParseCompletion, LimitsOnLists) {
  EXPECT_THAT(Completion({{"prompt", std::vector<std::string>(1025, "a")}}).error->message,
              HasSubstr("at most 1024"));
  EXPECT_THAT(
      Completion({{"prompt", std::vector<std::string>(100, "a")}, {"n", 11}}).error->message,
      HasSubstr("at most 1024 choices"));
  EXPECT_THAT(
      Completion({{"prompt", "x"}, {"stop", std::vector<std::string>(33, "a")}}).error->message,
      HasSubstr("at most 32"));
  EXPECT_THAT(Completion({{"prompt", "x"}, {"stop", std::string(5000, 'a')}}).error->message,
              HasSubstr("at most 4096"));
  json bias = json::object();
  for (int i = 0; i < 1025; ++i) bias[std::to_string(i)] = 1;
  EXPECT_TRUE(Completion({{"prompt", "x"}, {"logit_bias", bias}}).error);
}

TEST(ParseChat, Messages) {
  const auto parsed = Chat(json::parse(
      R"({"messages": [{"role": "system", "content": "be brief"}, {"role": "user", "name": "Ann", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
      {"role": "assistant", "content": null}], "max_completion_tokens": 9, "logprobs": true, "top_logprobs": 2, "chat_template_kwargs": {"k": 1}, "add_generation_prompt": false})"));
  ASSERT_FALSE(parsed.error) << parsed.error->message;
  const ChatInput& input = parsed.request.input;
  ASSERT_EQ(input.messages.size(), 3u);
  EXPECT_EQ(input.messages[0].content, "be brief");
  EXPECT_EQ(input.messages[1].content, "a\nb");
  EXPECT_EQ(json(input.messages[1].rest), (json{{"name", "Ann"}}));
  EXPECT_EQ(input.messages[2].content, "");
  EXPECT_FALSE(input.add_generation_prompt);
  EXPECT_EQ(json(input.variables), (json{{"k", 1}}));
  EXPECT_EQ(parsed.request.options.max_tokens, 9);
  EXPECT_EQ(parsed.request.options.sampling.num_logprobs, 2);
}

TEST(ParseChat, LogprobsWithoutTop) {
  EXPECT_EQ(
      Chat(json::parse(R"({"messages": [{"role": "user", "content": "x"}], "logprobs": true})"))
          .request.options.sampling.num_logprobs,
      0);
  EXPECT_EQ(
      Chat(json::parse(R"({"messages": [{"role": "user", "content": "x"}], "logprobs": false})"))
          .request.options.sampling.num_logprobs,
      -1);
}

// Neutral values of fields that are refused otherwise change nothing, so they do no harm.
TEST(ParseCompletion, NeutralValuesOfUnsupportedFieldsAreAccepted) {
  for (
      const char* fields :
      {R"({"allowed_token_ids": null, "bad_words": [], "grammar": "", "truncate_prompt_tokens": null})",
       R"({"guided_json": null, "guided_choice": [], "guided_regex": "", "structured_outputs": {}, "suffix": null})",
       R"({"response_format": {"type": "text"}, "logits_processors": [], "json_schema": null, "mirostat": 0})"}) {
    const auto parsed = Completion(WithPrompt(json::parse(fields)));
    EXPECT_FALSE(parsed.error) << fields << ": " << parsed.error->message;
    EXPECT_TRUE(parsed.unknown.empty()) << fields;
  }
  const auto chat = Chat(json::parse(
      R"({"messages": [{"role": "user", "content": "x"}], "tools": [], "functions": null, "tool_choice": "auto", "function_call": "none"})"));
  EXPECT_FALSE(chat.error) << chat.error->message;
}

class BadChat : public ::testing::TestWithParam<BadRequest> {};

TEST_P(BadChat, IsRefusedWithTheFieldsName) {
  json body = json::parse(GetParam().fields);
  if (!body.contains("messages"))
    body["messages"] = json::parse(R"([{"role": "user", "content": "x"}])");
  const auto parsed = Chat(body);
  ASSERT_TRUE(parsed.error) << GetParam().fields;
  EXPECT_EQ(parsed.error->param, GetParam().param);
  EXPECT_THAT(parsed.error->message, HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Requests, BadChat,
    ::testing::Values(
        BadRequest{R"({"messages": null})", "messages", "missing"},
        BadRequest{R"({"messages": []})", "messages", "at least one"},
        BadRequest{R"({"messages": "hi"})", "messages", "must be a list"},
        BadRequest{R"({"messages": ["hi"]})", "messages", "messages[0] must be an object"},
        BadRequest{R"({"messages": [{"content": "x"}]})", "messages", "role"},
        BadRequest{R"({"messages": [{"role": 1, "content": "x"}]})", "messages", "role"},
        BadRequest{R"({"messages": [{"role": "user"}]})", "messages", "content is missing"},
        BadRequest{R"({"messages": [{"role": "user", "content": 3}]})", "messages",
                   "not an integer"},
        BadRequest{
            R"({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]})",
            "messages", "other kinds are not supported"},
        BadRequest{R"({"messages": [{"role": "user", "content": [3]}]})", "messages", "content[0]"},
        BadRequest{R"({"top_logprobs": 3})", "top_logprobs", "needs 'logprobs'"},
        BadRequest{R"({"logprobs": 3})", "logprobs", "true or false"},
        BadRequest{R"({"logprobs": true, "top_logprobs": 21})", "top_logprobs", "between 0 and 20"},
        BadRequest{R"({"tools": [{"type": "function"}]})", "tools", "tools[0] must be"},
        BadRequest{R"({"tools": [{"type": "custom", "custom": {}}]})", "tools", "not supported"},
        BadRequest{R"({"tools": [{"type": "function", "function": {"name": ""}}]})", "tools",
                   "tools[0].function.name"},
        BadRequest{R"({"tools": {}})", "tools", "must be a list"},
        BadRequest{R"({"tool_choice": {"type": "function", "function": {"name": "f"}}})",
                   "tool_choice", "which 'tools' have not"},
        BadRequest{R"({"tool_choice": {"type": "allowed_tools"}})", "tool_choice", "must be"},
        BadRequest{R"({"tool_choice": "required"})", "tool_choice", "no 'tools'"},
        BadRequest{R"({"functions": [{"name": "f"}]})", "functions", "not supported"},
        BadRequest{R"({"function_call": {"name": "f"}})", "function_call", "not supported"},
        BadRequest{R"({"documents": [{"text": "x"}]})", "documents", "not supported"},
        BadRequest{R"({"bad_words": [3]})", "bad_words", "must hold strings"},
        BadRequest{R"({"chat_template": "x"})", "chat_template", "not supported"},
        BadRequest{R"({"chat_template_kwargs": 3})", "chat_template_kwargs", "must be an object"},
        BadRequest{R"({"max_completion_tokens": -1})", "max_completion_tokens", "at least 1"}));

TEST(ParseTokenize, TextAndConversation) {
  TokenizeRequest text;
  EXPECT_FALSE(ParseTokenize({{"prompt", "x"}, {"add_special_tokens", false}}, text));
  EXPECT_EQ(std::get<std::string>(text.input), "x");
  EXPECT_EQ(text.add_special_tokens, false);
  TokenizeRequest chat;
  EXPECT_FALSE(ParseTokenize({{"messages", {{{"role", "user"}, {"content", "x"}}}}}, chat));
  EXPECT_EQ(std::get<ChatInput>(chat.input).messages.size(), 1u);
  EXPECT_EQ(ParseTokenize({{"model", "m"}}, text)->param, "prompt");
}

TEST(ParseDetokenize, Tokens) {
  DetokenizeRequest request;
  EXPECT_FALSE(ParseDetokenize({{"tokens", {1, 2}}}, kRules, request));
  EXPECT_THAT(request.tokens, ElementsAre(1, 2));
  EXPECT_EQ(ParseDetokenize({{"tokens", {1, 5000}}}, kRules, request)->param, "tokens");
  EXPECT_EQ(ParseDetokenize({{"x", 1}}, kRules, request)->param, "tokens");
}

}  // namespace
}  // namespace lamina
