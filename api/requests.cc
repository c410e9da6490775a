#include "api/requests.h"

#include <algorithm>
#include <charconv>

#include "api/chat_fields.h"
#include "api/field_reader.h"
#include "api/prompt_fields.h"
#include "api/refused_fields.h"
#include "base/token_mask.h"

namespace lamina {
namespace {

using nlohmann::json;

constexpr int kMaxNesting = 100;  // of a body; everything that walks JSON may recurse
// Lists, objects and strings of a body: parsed, each takes a hundred bytes or more. A conversation
// of 10,000 messages has 30,000 and 60,000.
constexpr int kMaxContainers = 1 << 17;
constexpr int kMaxStrings = 1 << 19;
constexpr int64_t kMaxBeams = 64;
constexpr int64_t kMaxBeamEnds = 8;  // for each one every beam has to be offered more tokens
constexpr int64_t kMaxChoicesOfPrompt = 128;
// Prompts x best_of of one request: as many sequences as the queue holds by default.
constexpr int64_t kMaxChoices = 1024;
constexpr size_t kMaxStopStrings = 32;
// All stop strings together: every token is checked against them.
constexpr size_t kMaxStopBytes = 4096;
constexpr size_t kMaxStopTokens = 1024;
// Each becomes up to two sequences of tokens.
constexpr size_t kMaxBadWordStrings = kMaxBadWords / 4;
constexpr size_t kMaxBadWordBytes = kMaxBadWordTokens / 2;
constexpr size_t kMaxLogitBias = 1024;
constexpr int64_t kMaxLogprobs = 20;
constexpr size_t kMaxUnknownFields = 16;

// What parsing a body would make. The body may be anything: this runs before it is parsed.
struct Contents {
  int nesting = 0;
  int num_containers = 0;
  int num_strings = 0;
};

Contents ContentsOf(std::string_view text) {
  Contents contents;
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
      ++contents.num_strings;
    } else if (c == '[' || c == '{') {
      contents.nesting = std::max(contents.nesting, ++depth);
      ++contents.num_containers;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return contents;
}

void ReadOptionalBool(FieldReader& reader, const std::string& name, std::optional<bool>& target) {
  bool value = false;
  const bool given = reader.Find(name) != nullptr;
  reader.Read(name, value);
  if (given) target = value;
}

void ReadStop(FieldReader& reader, std::vector<std::string>& stop) {
  const json* value = reader.Find("stop");
  if (value == nullptr) return;
  if (!value->is_string() && !value->is_array())
    return reader.Fail("stop",
                       "'stop' must be a string or a list of strings, not " + JsonTypeName(*value));
  const json list = value->is_string() ? json::array({*value}) : *value;
  if (list.size() > kMaxStopStrings)
    return reader.Fail(
        "stop", "'stop' has " + std::to_string(list.size()) + " entries; at most 32 are possible");
  size_t bytes = 0;
  for (const json& item : list) {
    if (!item.is_string())
      return reader.Fail("stop", "'stop' must hold strings only, not " + JsonTypeName(item));
    stop.push_back(item.get<std::string>());
    bytes += stop.back().size();
    if (stop.back().empty()) return reader.Fail("stop", "'stop' must not hold an empty string");
  }
  if (bytes > kMaxStopBytes)
    reader.Fail("stop", "the strings of 'stop' have " + std::to_string(bytes) +
                            " bytes together; at most 4096 are possible");
}

void ReadLogitBias(FieldReader& reader, int64_t vocab_size, SamplingParams& sampling) {
  const json* value = reader.Find("logit_bias");
  if (value == nullptr) return;
  if (!value->is_object())
    return reader.Fail("logit_bias", "'logit_bias' must be an object of token id and bias, not " +
                                         JsonTypeName(*value));
  if (value->size() > kMaxLogitBias)
    return reader.Fail("logit_bias", "'logit_bias' has more than 1024 entries");
  for (const auto& [key, bias] : value->items()) {
    int32_t token = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), token);
    if (error != std::errc() || end != key.data() + key.size() || token < 0 ||
        token >= vocab_size) {
      return reader.Fail("logit_bias", "the keys of 'logit_bias' must be token ids between 0 and " +
                                           std::to_string(vocab_size - 1));
    }
    if (!bias.is_number() || !(bias.get<double>() >= -100 && bias.get<double>() <= 100)) {
      return reader.Fail("logit_bias",
                         "the values of 'logit_bias' must be numbers between -100 and 100");
    }
    sampling.logit_bias.emplace_back(token, bias.get<float>());
  }
}

void ReadBadWords(FieldReader& reader, std::vector<std::string>& words) {
  const json* value = reader.Find("bad_words");
  if (value == nullptr) return;
  if (!value->is_array())
    return reader.Fail("bad_words",
                       "'bad_words' must be a list of strings, not " + JsonTypeName(*value));
  if (value->size() > kMaxBadWordStrings)
    return reader.Fail("bad_words", "'bad_words' has " + std::to_string(value->size()) +
                                        " entries; at most 256 are possible");
  size_t bytes = 0;
  for (const json& item : *value) {
    if (!item.is_string() || item.get_ref<const std::string&>().empty())
      return reader.Fail("bad_words", "'bad_words' must hold strings that are not empty");
    words.push_back(item.get<std::string>());
    bytes += words.back().size();
  }
  if (bytes > kMaxBadWordBytes)
    reader.Fail("bad_words", "the strings of 'bad_words' have " + std::to_string(bytes) +
                                 " bytes together; at most 4096 are possible");
}

void ReadAllowedTokens(FieldReader& reader, int64_t vocab_size, SamplingParams& sampling) {
  std::vector<TokenId> tokens;
  const json* value = reader.Find("allowed_token_ids");
  if (value == nullptr) return;
  reader.ReadTokens("allowed_token_ids", vocab_size, static_cast<size_t>(vocab_size), tokens);
  if (reader.error()) return;
  if (tokens.empty())
    return reader.Fail("allowed_token_ids", "'allowed_token_ids' must not be an empty list");
  TokenMask mask{std::string(TokenMaskBytes(vocab_size), '\0')};
  for (const TokenId token : tokens) AddToken(token, mask);
  sampling.allowed_tokens = std::move(mask.bits);
}

void ReadSampling(FieldReader& reader, const RequestRules& rules, GenerationOptions& out) {
  float temperature = rules.defaults.temperature.value_or(1.0f);
  float top_p = rules.defaults.top_p.value_or(1.0f);
  float min_p = rules.defaults.min_p.value_or(0.0f);
  float repetition = rules.defaults.repetition_penalty.value_or(1.0f);
  float frequency = 0;
  float presence = 0;
  int64_t top_k = rules.defaults.top_k.value_or(0);
  reader.ReadNumber("temperature", 0, 2, temperature);
  reader.ReadNumber("top_p", 0, 1, top_p);
  reader.ReadInteger("top_k", -1, INT32_MAX, top_k);
  reader.ReadNumber("min_p", 0, 1, min_p);
  reader.ReadNumber("frequency_penalty", -2, 2, frequency);
  reader.ReadNumber("presence_penalty", -2, 2, presence);
  reader.ReadNumber("repetition_penalty", 0.01, 100, repetition);
  if (top_p <= 0) reader.Fail("top_p", "'top_p' must be above 0");
  int64_t seed = 0;
  out.has_seed = reader.Find("seed") != nullptr;
  reader.ReadInteger("seed", INT64_MIN, INT64_MAX, seed);
  SamplingParams& sampling = out.sampling;
  sampling.temperature = temperature;
  sampling.top_p = top_p;
  sampling.top_k = static_cast<int32_t>(std::max<int64_t>(top_k, 0));
  sampling.min_p = min_p;
  sampling.repetition_penalty = repetition;
  sampling.frequency_penalty = frequency;
  sampling.presence_penalty = presence;
  sampling.seed = static_cast<uint64_t>(seed);
  sampling.num_logprobs = -1;
  ReadLogitBias(reader, rules.vocab_size, sampling);
}

// Samplers of other servers. What only tunes one of them (its threshold, its base) has no effect
// without it.
void RefuseSamplers(FieldReader& reader) {
  for (const char* name :
       {"mirostat", "mirostat_mode", "dry_multiplier", "xtc_probability", "dynatemp_range", "top_a",
        "samplers", "sampler_seq", "epsilon_cutoff", "eta_cutoff", "penalty_alpha"})
    reader.Refuse(name, "");
  for (const char* name : {"typical_p", "typ_p", "tfs_z", "tfs", "num_beams", "smoothing_curve"}) {
    if (const json* value = reader.Find(name); value != nullptr && *value != 1)
      reader.Refuse(name, "");
  }
  if (const json* value = reader.Find("top_n_sigma");
      value != nullptr && !(value->is_number() && value->get<double>() < 0))
    reader.Refuse("top_n_sigma", "");
}

// Fields of other servers that would change the answer: refused, so that nobody believes they had
// an effect.
void RefuseUnsupported(FieldReader& reader) {
  reader.Refuse("logits_processors", "use 'logit_bias', 'bad_words' or 'structured_outputs'");
  reader.Refuse("prompt_embeds", "prompts are text or token ids");
  reader.Refuse("n_predict", "use 'max_tokens'");
  if (const json* penalty = reader.Find("repeat_penalty"); penalty != nullptr && *penalty != 1)
    reader.Refuse("repeat_penalty", "use 'repetition_penalty'");
  RefuseSamplers(reader);
  reader.Refuse("min_new_tokens", "use 'min_tokens'");
  reader.Refuse("max_new_tokens", "use 'max_tokens'");
  reader.Refuse("stop_sequences", "use 'stop'");
  reader.Refuse("cache_salt", "the prefix cache is shared by all requests");
  for (const char* name : {"lora", "lora_adapter", "lora_request"})
    reader.Refuse(name, "the served model has no adapters");
  if (const json* detokenize = reader.Find("detokenize");
      detokenize != nullptr && *detokenize != true)
    reader.Fail("detokenize", "'detokenize' is not supported except true: answers are text");
  for (const char* name : {"user", "store", "metadata", "service_tier"}) reader.Ignore(name);
}

// Reads what it needs of the other options: they come first.
void ReadBeamSearch(FieldReader& reader, GenerationOptions& out) {
  bool use = false, early_stopping = false;
  float length_penalty = 1;
  reader.Read("use_beam_search", use);
  reader.ReadNumber("length_penalty", -100, 100, length_penalty);
  reader.Read("early_stopping", early_stopping);
  if (!use) return;
  if (out.best_of < 2)
    return reader.Fail(
        "use_beam_search",
        "'use_beam_search' needs an 'n' or 'best_of' of at least 2, the number of beams");
  if (std::ssize(out.stop_token_ids) > kMaxBeamEnds)
    return reader.Fail("stop_token_ids",
                       "'stop_token_ids' can have at most 8 tokens with 'use_beam_search'");
  if (out.best_of > kMaxBeams)
    return reader.Fail("best_of", "'use_beam_search' can have at most 64 beams, 'best_of' or 'n'");
  if (out.only_prompt)
    return reader.Fail("max_tokens", "'max_tokens' must be at least 1 with 'use_beam_search'");
  const SamplingParams& sampling = out.sampling;
  const std::pair<const char*, bool> without[] = {
      {"stream", out.stream},
      {"stop", !out.stop.empty()},
      {"min_tokens", out.min_tokens > 0},
      {"slo", out.slo.any()},
      {"logit_bias", !sampling.logit_bias.empty()},
      {"bad_words", !out.bad_words.empty()},
      {"allowed_token_ids", !sampling.allowed_tokens.empty()},
      {"frequency_penalty", sampling.frequency_penalty != 0},
      {"presence_penalty", sampling.presence_penalty != 0},
      {"repetition_penalty", sampling.repetition_penalty != 1},
      {"logprobs", sampling.num_logprobs >= 0},
      {"prompt_logprobs", out.prompt_logprobs >= 0},
  };
  for (const auto& [name, used] : without) {
    if (used && reader.Find(name) != nullptr)
      return reader.Fail(name,
                         std::string("'") + name + "' is not supported with 'use_beam_search'");
  }
  if (out.constraint)
    return reader.Fail(out.constraint->field,
                       "'" + out.constraint->field + "' is not supported with 'use_beam_search'");
  out.beam_search = {length_penalty, early_stopping};
}

void ReadStreamOptions(FieldReader& reader, GenerationOptions& out) {
  const json* value = reader.Find("stream_options");
  if (value == nullptr) return;
  if (!value->is_object())
    return reader.Fail("stream_options",
                       "'stream_options' must be an object, not " + JsonTypeName(*value));
  FieldReader inner(*value);
  inner.Read("include_usage", out.include_usage);
  inner.Read("continuous_usage_stats", out.continuous_usage);
  if (inner.error())
    return reader.Fail("stream_options." + inner.error()->param, inner.error()->message);
}

// None means that the prompt is all that the client wants to hear of.
void ReadMaxTokens(FieldReader& reader, bool may_be_none, GenerationOptions& out) {
  int64_t max_tokens = -1;
  const json* value = reader.Find("max_tokens");
  if (may_be_none && value != nullptr && *value == 0 && value->is_number_integer()) {
    out.max_tokens = 0;
    return;
  }
  reader.ReadInteger("max_tokens", 1, INT64_MAX, max_tokens);
  reader.ReadInteger("max_completion_tokens", 1, INT64_MAX, max_tokens);
  if (max_tokens > 0) out.max_tokens = max_tokens;
}

// vLLM's.
void ReadPromptLogprobs(FieldReader& reader, GenerationOptions& out) {
  int64_t number = -1;
  reader.ReadInteger("prompt_logprobs", 0, kMaxLogprobs, number);
  out.prompt_logprobs = static_cast<int32_t>(number);
  if (number >= 0 && out.stream)
    reader.Fail("prompt_logprobs",
                "'prompt_logprobs' is not supported with 'stream': only whole answers have them");
  out.sampling.num_prompt_logprobs =
      std::max(out.sampling.num_prompt_logprobs, out.prompt_logprobs);
}

// What a completion says of its prompt.
void ReadEcho(FieldReader& reader, CompletionRequest& out) {
  reader.Read("echo", out.echo);
  GenerationOptions& options = out.options;
  options.echo_logprobs = out.echo && options.sampling.num_logprobs >= 0;
  if (options.echo_logprobs) options.sampling.num_prompt_logprobs = options.sampling.num_logprobs;
  ReadPromptLogprobs(reader, options);
  if (options.max_tokens != 0) return;
  if (!out.echo && options.prompt_logprobs < 0)
    reader.Fail("max_tokens",
                "'max_tokens' must be at least 1 unless 'echo' or 'prompt_logprobs' asks for the "
                "prompt, not 0");
  // The nodes compute a prompt to choose a token.
  options.only_prompt = true;
  options.max_tokens = 1;
}

// The prompt is then made of both.
void ReadSuffix(FieldReader& reader, CompletionRequest& out) {
  reader.Read("suffix", out.suffix);
  if (out.suffix.empty()) return;
  const std::pair<const char*, bool> without[] = {
      {"echo", out.echo},
      {"prompt_logprobs", out.options.prompt_logprobs >= 0},
      {"truncate_prompt_tokens", out.options.truncate_prompt_tokens.has_value()},
  };
  for (const auto& [name, used] : without) {
    if (used) reader.Fail(name, std::string("'") + name + "' is not supported with 'suffix'");
  }
}

void ReadOptions(FieldReader& reader, const RequestRules& rules, bool may_have_no_tokens,
                 GenerationOptions& out) {
  reader.Read("model", out.model);
  int64_t n = 1;
  reader.ReadInteger("n", 1, kMaxChoicesOfPrompt, n);
  int64_t best_of = n;
  reader.ReadInteger("best_of", 1, kMaxChoicesOfPrompt, best_of);
  if (best_of < n)
    reader.Fail(
        "best_of",
        "'best_of' is how many answers the best 'n' are taken from, and cannot be less than 'n'");
  out.n = static_cast<int>(n);
  out.best_of = static_cast<int>(best_of);
  reader.Read("stream", out.stream);
  if (out.stream && best_of > n)
    reader.Fail(
        "stream",
        "'stream' is not supported with a 'best_of' above 'n': the best are known at the end");
  ReadStreamOptions(reader, out);
  ReadMaxTokens(reader, may_have_no_tokens, out);
  reader.ReadInteger("min_tokens", 0, INT32_MAX, out.min_tokens);
  if (out.max_tokens && out.min_tokens > *out.max_tokens)
    reader.Fail("min_tokens", "'min_tokens' is larger than 'max_tokens'");
  reader.Read("ignore_eos", out.ignore_eos);
  ReadStop(reader, out.stop);
  reader.ReadTokens("stop_token_ids", rules.vocab_size, kMaxStopTokens, out.stop_token_ids);
  reader.Read("include_stop_str_in_output", out.include_stop_in_output);
  reader.Read("skip_special_tokens", out.skip_special_tokens);
  ReadSampling(reader, rules, out);
  ReadUrgency(reader, out);
  ReadIdentity(reader, out);
  ReadTruncation(reader, "left", out);
  reader.Read("return_token_ids", out.return_token_ids);
  reader.Read("return_tokens_as_token_ids", out.return_tokens_as_token_ids);
  out.constraint = ReadConstraint(reader);
  if (out.constraint && out.ignore_eos)
    reader.Fail("ignore_eos", "'ignore_eos' is not supported with '" + out.constraint->field +
                                  "': a constrained text ends where it is complete");
  ReadBadWords(reader, out.bad_words);
  ReadAllowedTokens(reader, rules.vocab_size, out.sampling);
  RefuseUnsupported(reader);
  RefuseForeignFields(reader);
}

void ReadChatLogprobs(FieldReader& reader, SamplingParams& sampling) {
  bool logprobs = false;
  reader.Read("logprobs", logprobs);
  int64_t top_logprobs = 0;
  reader.ReadInteger("top_logprobs", 0, kMaxLogprobs, top_logprobs);
  if (top_logprobs > 0 && !logprobs)
    reader.Fail("top_logprobs", "'top_logprobs' needs 'logprobs': true");
  if (logprobs) sampling.num_logprobs = static_cast<int32_t>(top_logprobs);
}

}  // namespace

std::optional<ApiError> ParseBody(std::string_view body, json& out) {
  const Contents contents = ContentsOf(body);
  if (contents.nesting > kMaxNesting)
    return ApiError{
        400, "the request body is nested more than " + std::to_string(kMaxNesting) + " deep", ""};
  if (contents.num_containers > kMaxContainers || contents.num_strings > kMaxStrings) {
    return ApiError{400,
                    "the request body has more than " + std::to_string(kMaxContainers) +
                        " lists and objects or " + std::to_string(kMaxStrings) + " strings",
                    ""};
  }
  out = json::parse(body, nullptr, /*allow_exceptions=*/false);
  // The parser takes a NUL for the end of the text, and reads nothing behind it.
  if (out.is_discarded() || body.find('\0') != std::string_view::npos)
    return ApiError{400,
                    body.empty() ? "the request body is empty; JSON is expected"
                                 : "the request body is not valid JSON in UTF-8",
                    ""};
  if (!out.is_object())
    return ApiError{400, "the request body must be a JSON object, not " + JsonTypeName(out), ""};
  return std::nullopt;
}

std::optional<ApiError> ParseCompletion(const json& body, const RequestRules& rules,
                                        CompletionRequest& out,
                                        std::vector<std::string>& unknown_fields) {
  FieldReader reader(body);
  ReadOptions(reader, rules, /*may_have_no_tokens=*/true, out.options);
  ReadPrompts(reader, "prompt", rules.vocab_size, kMaxChoices, out.prompts);
  reader.Read("add_special_tokens", out.add_special_tokens);
  reader.Refuse("top_logprobs", "here 'logprobs' is their number");
  int64_t logprobs = -1;
  reader.ReadInteger("logprobs", 0, kMaxLogprobs, logprobs);
  out.options.sampling.num_logprobs = static_cast<int32_t>(logprobs);
  ReadEcho(reader, out);
  ReadSuffix(reader, out);
  ReadBeamSearch(reader, out.options);
  if (static_cast<int64_t>(out.prompts.size()) * out.options.best_of > kMaxChoices)
    reader.Fail("n", "a request can have at most 1024 choices (prompts times 'n', or 'best_of')");
  unknown_fields = reader.Unknown(kMaxUnknownFields);
  return reader.error();
}

std::optional<ApiError> ParseChat(const json& body, const RequestRules& rules, ChatRequest& out,
                                  std::vector<std::string>& unknown_fields) {
  FieldReader reader(body);
  ReadOptions(reader, rules, /*may_have_no_tokens=*/false, out.options);
  ReadChatInput(reader, out.input);
  ReadChatLogprobs(reader, out.options.sampling);
  ReadPromptLogprobs(reader, out.options);
  ReadBeamSearch(reader, out.options);
  out.tool_names = ReadTools(reader, out.input);
  ReadToolChoice(reader, out);
  RefuseFunctions(reader);
  reader.Read("parallel_tool_calls", out.parallel_tool_calls);
  reader.Read("include_reasoning", out.include_reasoning);
  RefuseForeignChatFields(reader);
  reader.Refuse("echo", "use /v1/completions");
  reader.Refuse("documents", "write them into the messages");
  ReadOptionalBool(reader, "add_special_tokens", out.add_special_tokens);
  unknown_fields = reader.Unknown(kMaxUnknownFields);
  return reader.error();
}

std::optional<ApiError> ParseTokenize(const json& body, TokenizeRequest& out) {
  FieldReader reader(body);
  reader.Read("model", out.model);
  if (reader.Find("messages") != nullptr) {
    ChatInput input;
    ReadChatInput(reader, input);
    ReadTools(reader, input);
    out.input = std::move(input);
  } else {
    std::string prompt;
    if (reader.Find("prompt") == nullptr) reader.Fail("prompt", "'prompt' is missing");
    reader.Read("prompt", prompt);
    out.input = std::move(prompt);
  }
  ReadOptionalBool(reader, "add_special_tokens", out.add_special_tokens);
  return reader.error();
}

std::optional<ApiError> ParseDetokenize(const json& body, const RequestRules& rules,
                                        DetokenizeRequest& out) {
  FieldReader reader(body);
  reader.Read("model", out.model);
  if (reader.Find("tokens") == nullptr) reader.Fail("tokens", "'tokens' is missing");
  reader.ReadTokens("tokens", rules.vocab_size, kMaxTokensOfField, out.tokens);
  return reader.error();
}

}  // namespace lamina
