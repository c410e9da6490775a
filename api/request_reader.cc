#include "api/request_reader.h"

#include <algorithm>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "api/forced_call.h"
#include "api/protocols/ollama_request.h"
#include "api/responses.h"
#include "api/template_input.h"
#include "api/vector_answer.h"
#include "api/vector_requests.h"
#include "text/detokenizer.h"
#include "text/utf8.h"

namespace lamina {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

// A template may make one of a small body.
constexpr size_t kLongTextBytes = size_t{256} << 10;

// How many special tokens stand in front of a text and behind it.
struct Ends {
  int64_t before = 0, behind = 0;
};

Ends EndsOf(const Tokenizer& tokenizer) {
  const auto nothing = tokenizer.Encode("", /*add_special_tokens=*/true);
  if (!nothing.ok() || nothing->empty()) return {};
  const int64_t before = tokenizer.bos() == nothing->front() ? 1 : 0;
  return {before, std::ssize(*nothing) - before};
}

// As the request asks for. `around` stays if there is room for more.
void Truncate(const GenerationOptions& options, int64_t max_model_len, const Ends& around,
              std::vector<TokenId>& tokens) {
  if (!options.truncate_prompt_tokens) return;
  const int64_t room = std::max<int64_t>(1, max_model_len - options.max_tokens.value_or(1));
  const int64_t keep = *options.truncate_prompt_tokens > 0 ? *options.truncate_prompt_tokens : room;
  const int64_t surplus = std::ssize(tokens) - keep;
  if (surplus <= 0) return;
  const bool has_room = keep > around.before + around.behind;
  const auto first = options.keep_first_tokens
                         ? tokens.end() - (has_room ? around.behind : 0) - surplus
                         : tokens.begin() + (has_room ? around.before : 0);
  tokens.erase(first, first + surplus);
}

std::vector<int64_t> TextOffsets(const Tokenizer& tokenizer, std::span<const TokenId> tokens,
                                 bool skip_special_tokens) {
  DetokenizerOptions options;
  options.skip_special_tokens = skip_special_tokens;
  options.offsets = true;
  Detokenizer detokenizer(tokenizer, options, {});
  std::vector<int64_t> offsets;
  const auto take = [&] {
    const std::vector<int64_t> certain = detokenizer.TakeOffsets();
    offsets.insert(offsets.end(), certain.begin(), certain.end());
  };
  for (const TokenId token : tokens) {
    detokenizer.Push(token);
    take();
  }
  detokenizer.Finish();
  take();
  return offsets;
}

std::vector<TokenId> MarkerTokens(const ServedModel& model) {
  std::set<std::string> markers;
  if (model.tool_format) {
    for (std::string& marker : ToolMarkers(*model.tool_format)) markers.insert(std::move(marker));
  }
  if (model.reasoning) markers.insert({"<think>", "</think>"});
  std::vector<TokenId> tokens;
  if (markers.empty()) return tokens;
  for (TokenId token = 0; token < model.tokenizer->vocab_size(); ++token) {
    if (markers.contains(model.tokenizer->IdToPiece(token))) tokens.push_back(token);
  }
  return tokens;
}

bool EndsWithThink(std::string_view prompt) {
  while (!prompt.empty() && (prompt.back() == '\n' || prompt.back() == ' '))
    prompt.remove_suffix(1);
  return prompt.ends_with("<think>");
}

bool IsConstrained(const ChatRequest& request) {
  return request.forced != ForcedCall::kNo || !request.options.sampling.grammar.empty();
}

// gpt-oss' template has another name for what OpenAI's clients call reasoning_content, and takes it
// of messages with calls and without content.
void NameReasoningForChannels(ChatInput& input) {
  for (ChatMessage& message : input.messages) {
    const auto reasoning = message.rest.find("reasoning_content");
    if (reasoning == message.rest.end() || !reasoning->is_string() ||
        !message.content.value_or("").empty() || !message.rest.contains("tool_calls") ||
        message.rest.contains("thinking"))
      continue;
    message.rest["thinking"] = *reasoning;
  }
}

// Templates that cannot work with a message whose content is none get an empty text in its place,
// as other servers give to all of them.
Result<std::string> RenderWithContent(const ChatTemplate& chat_template, const ChatInput& input) {
  auto text = chat_template.Render(input);
  const auto has_none = [](const ChatMessage& message) { return !message.content; };
  if (text.ok() || std::ranges::none_of(input.messages, has_none)) return text;
  ChatInput with_content = input;
  for (ChatMessage& message : with_content.messages) message.content = message.content.value_or("");
  auto again = chat_template.Render(with_content);
  return again.ok() ? again : text;
}

}  // namespace

RequestReader::RequestReader(const ServedModel& model)
    : model_(model),
      rules_{model.config.vocab_size, model.config.generation},
      marker_tokens_(MarkerTokens(model)) {}

ReadRequest RequestReader::Completion(const std::string& body, int64_t max_model_len) const {
  ReadRequest out;
  if (const auto error = ReadCompletion(body, max_model_len, out))
    out.outcome = ErrorResponse(*error);
  return out;
}

ReadRequest RequestReader::Chat(const std::string& body, int64_t max_model_len) const {
  ReadRequest out;
  if (const auto error = ReadChat(body, max_model_len, out)) out.outcome = ErrorResponse(*error);
  return out;
}

ReadRequest RequestReader::Vectors(VectorForm::Kind kind, const std::string& body,
                                   int64_t max_model_len) const {
  ReadRequest out;
  if (const auto error = ReadVectors(kind, body, max_model_len, out))
    out.outcome = ErrorResponse(*error);
  return out;
}

ReadRequest RequestReader::Tokenize(const std::string& body, int64_t max_model_len) const {
  ReadRequest out;
  if (const auto error = ReadTokenize(body, max_model_len, out))
    out.outcome = ErrorResponse(*error);
  return out;
}

ReadRequest RequestReader::Detokenize(const std::string& body, int64_t max_model_len) const {
  ReadRequest out;
  if (const auto error = ReadDetokenize(body, max_model_len, out))
    out.outcome = ErrorResponse(*error);
  return out;
}

std::optional<ApiError> RequestReader::CheckModel(const std::string& model) const {
  if (model.empty() || model == model_.name) return std::nullopt;
  return ApiError{404, "the model '" + model + "' is not served here; '" + model_.name + "' is",
                  "model"};
}

// It is the template that tells the model.
std::optional<ApiError> RequestReader::CheckReasoningEffort(const ChatInput& input) const {
  if (!input.variables.contains("reasoning_effort") || model_.chat_template == nullptr ||
      model_.chat_template->Names("reasoning_effort") ||
      model_.chat_template->Names("enable_thinking"))
    return std::nullopt;
  return ApiError{400,
                  "'reasoning_effort' is not supported: the chat template of this model knows "
                  "neither it nor 'enable_thinking'",
                  "reasoning_effort"};
}

// Neither tools nor calls of the history may get lost in a template that does not look at them.
std::optional<ApiError> RequestReader::CheckTools(const ChatInput& input, ForcedCall forced) const {
  if (model_.chat_template == nullptr) return std::nullopt;
  for (const ChatMessage& message : input.messages) {
    if (message.rest.contains("tool_calls") && !model_.chat_template->Names("tool_calls"))
      return ApiError{400, "the chat template of this model knows no 'tool_calls' of messages",
                      "messages"};
  }
  if (input.tools.is_null()) return std::nullopt;
  if (!model_.chat_template->Names("tools"))
    return ApiError{400, "'tools' is not supported: the chat template of this model knows no tools",
                    "tools"};
  if (model_.tool_format || forced != ForcedCall::kNo) return std::nullopt;
  return ApiError{
      400,
      "'tools' is not supported: it is not known how this model writes calls; start the "
      "server with --tool-call-parser",
      "tools"};
}

std::optional<AnswerFormat> RequestReader::FormatOf(const ChatRequest& request,
                                                    std::string_view prompt) const {
  AnswerFormat format;
  format.reasoning = model_.reasoning;
  format.begins_reasoning = model_.reasoning && EndsWithThink(prompt);
  // Where texts are messages in channels they are so without tools, too; but a constrained answer
  // is the text of one message.
  if (!request.input.tools.is_null() || has_channels()) format.tools = model_.tool_format;
  if (has_channels() && IsConstrained(request) && request.forced == ForcedCall::kNo)
    return std::nullopt;
  format.tool_names = request.tool_names;
  format.parallel = request.parallel_tool_calls;
  format.forced = request.forced;
  format.forced_name = request.forced_name;
  // A constrained answer has no room for reasoning.
  if (format.forced != ForcedCall::kNo) format.reasoning = format.begins_reasoning = false;
  const bool is_text = !format.reasoning && !format.tools && format.forced == ForcedCall::kNo;
  if (is_text) return std::nullopt;
  return format;
}

std::optional<ApiError> RequestReader::FinishOptions(const std::string& body,
                                                     GenerationOptions& options) const {
  if (auto error = EncodeBadWords(options)) return error;
  if (!options.constraint) return std::nullopt;
  Result<std::string> grammar = CompileRequested(*options.constraint, body);
  if (!grammar.ok()) return ApiError{400, grammar.status().message(), options.constraint->field};
  options.sampling.grammar = *std::move(grammar);
  return std::nullopt;
}

// With a space in front and without, where that makes other tokens, as vLLM does.
std::optional<ApiError> RequestReader::EncodeBadWords(GenerationOptions& options) const {
  std::vector<TokenList>& words = options.sampling.bad_words;
  for (const std::string& word : options.bad_words) {
    for (const char* before : {"", " "}) {
      auto tokens = Tokens(before + word, /*add_special_tokens=*/false, INT64_MAX);
      if (!tokens.ok()) return ApiError{400, tokens.status().message(), "bad_words"};
      const bool is_known = std::ranges::all_of(
          *tokens, [&](TokenId token) { return token < model_.config.vocab_size; });
      TokenList list{*std::move(tokens)};
      if (list.tokens.empty() || !is_known || std::ranges::find(words, list) != words.end())
        continue;
      words.push_back(std::move(list));
    }
  }
  return std::nullopt;
}

Status RequestReader::CheckLength(const std::string& text, int64_t max_model_len) const {
  if (model_.tokenizer->MinTokens(text) <= max_model_len) return OkStatus();
  return InvalidArgument("the text has " + std::to_string(text.size()) +
                         " bytes, which cannot fit into the model's context of " +
                         std::to_string(max_model_len) + " tokens: its tokens never spell so many");
}

// Long ones one at a time.
Result<std::vector<TokenId>> RequestReader::Tokens(const std::string& text, bool add_special_tokens,
                                                   int64_t max_model_len) const {
  LAMINA_RETURN_IF_ERROR(CheckLength(text, max_model_len));
  std::optional<MutexLock> lock;
  if (text.size() > kLongTextBytes) lock.emplace(encoding_long_);
  return model_.tokenizer->Encode(text, add_special_tokens);
}

// For the model.
Result<std::vector<TokenId>> RequestReader::Encode(const std::string& text, bool add_special_tokens,
                                                   int64_t max_model_len) const {
  LAMINA_ASSIGN_OR_RETURN(std::vector<TokenId> tokens,
                          Tokens(text, add_special_tokens, max_model_len));
  LAMINA_RETURN_IF_ERROR(CheckVocabulary(tokens));
  return tokens;
}

// Tokens may have been added to a tokenizer and not to its model.
Status RequestReader::CheckVocabulary(std::span<const TokenId> tokens) const {
  for (const TokenId token : tokens) {
    if (token < model_.config.vocab_size) continue;
    return InvalidArgument("the text has the token " + std::to_string(token) + ", \"" +
                           Shortened(model_.tokenizer->IdToPiece(token), 200) +
                           "\", but the model's vocabulary has " +
                           std::to_string(model_.config.vocab_size));
  }
  return OkStatus();
}

std::optional<ApiError> RequestReader::JoinInfill(const CompletionRequest& request,
                                                  int64_t max_model_len,
                                                  std::vector<TokenId>& tokens) const {
  if (Status fits = CheckLength(request.suffix, max_model_len); !fits.ok())
    return ApiError{400, fits.message(), "suffix"};
  std::optional<MutexLock> lock;
  if (request.suffix.size() > kLongTextBytes) lock.emplace(encoding_long_);
  const auto behind = EncodeContinuation(*model_.tokenizer, request.suffix);
  if (!behind.ok()) return ApiError{400, behind.status().message(), "suffix"};
  tokens = model_.infill->Join(tokens, *behind);
  // With the token that stands in front of any text.
  const auto nothing = model_.tokenizer->Encode("", request.add_special_tokens);
  const std::optional<TokenId> bos = model_.tokenizer->bos();
  if (bos && nothing.ok() && !nothing->empty() && nothing->front() == *bos)
    tokens.insert(tokens.begin(), *bos);
  if (Status known = CheckVocabulary(tokens); !known.ok())
    return ApiError{400, known.message(), "suffix"};
  return std::nullopt;
}

bool RequestReader::StartsWithBos(const std::string& text) const {
  const std::optional<TokenId> bos = model_.tokenizer->bos();
  return bos && text.starts_with(model_.tokenizer->TokenBytes(*bos));
}

Result<std::string> RequestReader::RenderChat(const ChatInput& input) const {
  if (model_.chat_template == nullptr)
    return InvalidArgument(model_.no_chat_reason + "; use /v1/completions");
  auto render = std::make_shared<std::packaged_task<Result<std::string>()>>(
      [&] { return RenderWithContent(*model_.chat_template, input); });
  auto rendered = render->get_future();
  renderer_.Post([render = std::move(render)] { (*render)(); });
  try {
    auto text = rendered.get();
    if (!text.ok()) return InvalidArgument("chat template: " + text.status().message());
    return text;
  } catch (const std::future_error&) {
    // The task was dropped: the pool is stopping.
    return TryAgain("the server is shutting down");
  }
}

std::optional<ApiError> RequestReader::ReadCompletion(const std::string& body,
                                                      int64_t max_model_len,
                                                      ReadRequest& out) const {
  json fields;
  if (auto error = ParseBody(body, fields)) return error;
  CompletionRequest request;
  if (auto error = ParseCompletion(fields, rules_, request, out.unknown_fields)) return error;
  if (auto error = CheckModel(request.options.model)) return error;
  if (auto error = FinishOptions(body, request.options)) return error;
  const bool infills = !request.suffix.empty();
  if (infills && !model_.infill)
    return ApiError{400,
                    "'suffix' is not supported: this model's tokenizer has no tokens for text that "
                    "is to be filled in between two others",
                    "suffix"};
  GenerationSpec spec;
  spec.model = model_.name;
  for (Prompt& prompt : request.prompts) {
    GenerationSpec::Prompt& read = spec.prompts.emplace_back();
    if (const std::string* text = std::get_if<std::string>(&prompt)) {
      auto tokens = Encode(*text, request.add_special_tokens && !infills, max_model_len);
      if (!tokens.ok()) return ApiError{400, tokens.status().message(), "prompt"};
      read.tokens = *std::move(tokens);
      if (request.echo) read.echo = *text;
    } else {
      read.tokens = std::move(std::get<std::vector<TokenId>>(prompt));
      if (request.echo)
        read.echo = model_.tokenizer->Decode(read.tokens, request.options.skip_special_tokens);
    }
    if (infills) {
      if (auto error = JoinInfill(request, max_model_len, read.tokens)) return error;
    }
    const size_t length = read.tokens.size();
    Truncate(request.options, max_model_len, {}, read.tokens);
    if (request.echo && read.tokens.size() < length)
      read.echo = model_.tokenizer->Decode(read.tokens, request.options.skip_special_tokens);
    if (request.options.echo_logprobs)
      read.text_offsets =
          TextOffsets(*model_.tokenizer, read.tokens, request.options.skip_special_tokens);
  }
  spec.options = std::move(request.options);
  if (infills && !spec.options.ignore_eos) {
    std::vector<TokenId>& stops = spec.options.stop_token_ids;
    for (const TokenId end : model_.infill->ends) {
      if (end < model_.config.vocab_size) stops.push_back(end);
    }
  }
  out.outcome = std::move(spec);
  return std::nullopt;
}

std::optional<ApiError> RequestReader::ReadChat(const std::string& body, int64_t max_model_len,
                                                ReadRequest& out) const {
  json fields;
  if (auto error = ParseBody(body, fields)) return error;
  ChatRequest request;
  if (auto error = ParseChat(fields, rules_, request, out.unknown_fields)) return error;
  if (auto error = CheckModel(request.options.model)) return error;
  if (auto error = CheckReasoningEffort(request.input)) return error;
  if (auto error = CheckTools(request.input, request.forced)) return error;
  if (auto error = PrepareForTemplate(body, request.input)) return error;
  if (auto error = ForceCall(request)) return error;
  if (auto error = FinishOptions(body, request.options)) return error;
  if (has_channels()) NameReasoningForChannels(request.input);
  Result<std::string> text = RenderChat(request.input);
  if (!text.ok()) return ApiError{400, text.status().message(), "messages"};
  // What is constrained from its beginning cannot begin with a header.
  if (has_channels() && IsConstrained(request) && text->ends_with("<|start|>assistant"))
    *text += "<|channel|>final<|message|>";
  auto tokens =
      Encode(text.value(), request.add_special_tokens.value_or(!StartsWithBos(text.value())),
             max_model_len);
  if (!tokens.ok()) return ApiError{400, tokens.status().message(), "messages"};
  Truncate(request.options, max_model_len, {}, *tokens);
  GenerationSpec spec;
  spec.kind = ApiKind::kChat;
  spec.model = model_.name;
  spec.prompts.push_back({*std::move(tokens), ""});
  spec.default_max_tokens = INT64_MAX;  // whatever fits
  spec.format = FormatOf(request, text.value());
  if (spec.format) spec.marker_tokens = marker_tokens_;
  spec.include_reasoning = request.include_reasoning;
  spec.options = std::move(request.options);
  out.outcome = std::move(spec);
  return std::nullopt;
}

std::optional<ApiError> RequestReader::ReadVectors(VectorForm::Kind kind, const std::string& body,
                                                   int64_t max_model_len, ReadRequest& out) const {
  json fields;
  if (auto error = ParseBody(body, fields)) return error;
  VectorRequest request;
  const VectorRules rules{model_.config.vocab_size, model_.config.state_size()};
  if (auto error = ParseVectors(fields, kind, rules, request, out.unknown_fields)) return error;
  const std::string& name = request.options.model;
  const bool is_ollama =
      kind == VectorForm::Kind::kOllama || kind == VectorForm::Kind::kOllamaPlain;
  if (auto error = CheckModel(is_ollama ? OllamaModelName(name, model_) : name)) return error;
  if (!model_.no_vectors_reason.empty())
    return ApiError::From(InvalidArgument(model_.no_vectors_reason));
  request.form.width = model_.config.state_size();
  request.form.max_at_once = std::max(model_.max_num_seqs, 1);
  if (request.texts.empty()) {  // the model is to be loaded, and is
    std::string answer;
    VectorAnswer(request.form, model_.name, "", {}, {}).Write(answer);
    out.outcome = OutboundResponse{200, "application/json", std::move(answer), {}};
    return std::nullopt;
  }
  GenerationSpec spec;
  spec.model = model_.name;
  // What is cut anyway may be longer than the context.
  const int64_t longest = request.options.truncate_prompt_tokens ? INT64_MAX : max_model_len;
  for (Prompt& prompt : request.texts) {
    GenerationSpec::Prompt& read = spec.prompts.emplace_back();
    if (const std::string* text = std::get_if<std::string>(&prompt)) {
      auto tokens = Encode(*text, request.add_special_tokens, longest);
      if (!tokens.ok())
        return ApiError{
            400,
            "text " + std::to_string(spec.prompts.size() - 1) + ": " + tokens.status().message(),
            request.field};
      read.tokens = *std::move(tokens);
      const Ends around = request.add_special_tokens ? EndsOf(*model_.tokenizer) : Ends();
      Truncate(request.options, max_model_len, around, read.tokens);
    } else {
      read.tokens = std::move(std::get<std::vector<TokenId>>(prompt));
      Truncate(request.options, max_model_len, {}, read.tokens);
    }
  }
  spec.options = std::move(request.options);
  spec.vectors = std::move(request.form);
  out.outcome = std::move(spec);
  return std::nullopt;
}

std::optional<ApiError> RequestReader::ReadTokenize(const std::string& body, int64_t max_model_len,
                                                    ReadRequest& out) const {
  json fields;
  if (auto error = ParseBody(body, fields)) return error;
  TokenizeRequest request;
  if (auto error = ParseTokenize(fields, request)) return error;
  if (auto error = CheckModel(request.model)) return error;
  std::string text;
  ChatInput* chat = std::get_if<ChatInput>(&request.input);
  const char* field = chat != nullptr ? "messages" : "prompt";
  if (chat != nullptr) {
    if (auto error = CheckTools(*chat, ForcedCall::kNo)) return error;
    if (auto error = PrepareForTemplate(body, *chat)) return error;
    const Result<std::string> rendered = RenderChat(*chat);
    if (!rendered.ok()) return ApiError{400, rendered.status().message(), field};
    text = rendered.value();
  } else {
    text = std::get<std::string>(request.input);
  }
  const bool add_special_tokens =
      request.add_special_tokens.value_or(chat == nullptr || !StartsWithBos(text));
  const Result<std::vector<TokenId>> encoded = Tokens(text, add_special_tokens, max_model_len);
  if (!encoded.ok()) return ApiError{400, encoded.status().message(), field};
  const std::vector<TokenId>& tokens = *encoded;
  std::string answer = "{\"count\":" + std::to_string(tokens.size()) +
                       ",\"max_model_len\":" + std::to_string(max_model_len) + ",\"tokens\":[";
  for (size_t i = 0; i < tokens.size(); ++i)
    answer += (i == 0 ? "" : ",") + std::to_string(tokens[i]);
  out.outcome = OutboundResponse{200, "application/json", answer + "]}", {}};
  return std::nullopt;
}

std::optional<ApiError> RequestReader::ReadDetokenize(const std::string& body,
                                                      int64_t max_model_len,
                                                      ReadRequest& out) const {
  json fields;
  if (auto error = ParseBody(body, fields)) return error;
  DetokenizeRequest request;
  if (auto error = ParseDetokenize(fields, rules_, request)) return error;
  if (auto error = CheckModel(request.model)) return error;
  if (std::ssize(request.tokens) > max_model_len) {
    return ApiError{400,
                    "'tokens' has " + std::to_string(request.tokens.size()) +
                        " entries, but the model's context is " + std::to_string(max_model_len) +
                        " tokens",
                    "tokens"};
  }
  const ordered_json answer = {
      {"prompt", model_.tokenizer->Decode(request.tokens, /*skip_special=*/false)}};
  out.outcome = OutboundResponse{200, "application/json", DumpJson(answer), {}};
  return std::nullopt;
}

}  // namespace lamina
