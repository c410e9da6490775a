#include "api/generation.h"

#include <algorithm>

#include "api/beam_generation.h"
#include "api/sampled_generation.h"
#include "api/vector_generation.h"

namespace lamina {

namespace {

ResponseOptions FormOf(const GenerationSpec& spec) {
  ResponseOptions form;
  form.kind = spec.kind;
  form.model = spec.model;
  form.request_id = spec.options.request_id;
  form.token_ids = spec.options.return_token_ids;
  form.tokens_as_ids = spec.options.return_tokens_as_token_ids;
  form.choices_per_prompt = spec.options.n;
  if (spec.options.echo_logprobs) form.echo_logprobs = spec.options.sampling.num_logprobs;
  form.prompt_logprobs = spec.options.prompt_logprobs;
  if (form.token_ids) {
    for (const GenerationSpec::Prompt& prompt : spec.prompts)
      form.prompt_token_ids.push_back(prompt.tokens);
  }
  return form;
}

}  // namespace

Generation::Generation(GenerationSpec spec, const Server& server,
                       std::shared_ptr<Exchange> exchange)
    : spec_(std::move(spec)),
      tokenizer_(server.tokenizer),
      engine_(server.engine),
      held_(server.memory),
      exchange_(std::move(exchange)),
      format_(FormOf(spec_), tokenizer_) {
  if (spec_.form) spec_.form->NameRequest(spec_.options.request_id);
  for (const GenerationSpec::Prompt& prompt : spec_.prompts)
    usage_.prompt_tokens += std::ssize(prompt.tokens);
}

std::unique_ptr<Generation> Generation::Create(GenerationSpec spec, const Server& server,
                                               std::shared_ptr<Exchange> exchange) {
  if (spec.vectors)
    return std::make_unique<VectorGeneration>(std::move(spec), server, std::move(exchange));
  if (spec.options.beam_search)
    return std::make_unique<BeamGeneration>(std::move(spec), server, std::move(exchange));
  return std::make_unique<SampledGeneration>(std::move(spec), server, std::move(exchange));
}

void Generation::Fail(const Status& status) {
  failed_ = true;
  Abort();
  RespondError(ApiError::From(status));
}

void Generation::AddPieces(AnswerPieces pieces, ChoiceOutput& output) const {
  if (spec_.include_reasoning) output.reasoning += pieces.reasoning;
  output.text += pieces.text;
  for (AnswerPieces::Call& call : pieces.calls) {
    output.calls_bytes += call.name.size() + call.arguments.size() + sizeof(ChoiceOutput::Call);
    if (call.name.empty() && !output.calls.empty() && output.calls.back().index == call.index) {
      output.calls.back().arguments += call.arguments;
      continue;
    }
    const std::string id = call.name.empty() ? "" : NewCallId(spec_.format->tools);
    output.calls.push_back({call.index, id, std::move(call.name), std::move(call.arguments)});
  }
}

void Generation::Respond(std::vector<ChoiceOutput> outputs) {
  if (spec_.form) return RespondInForm(outputs.at(0));
  struct Answer {
    AnswerWriter writer;
    AnswerMemory::Share held;
  };
  // Shared because std::function wants to be copied.
  const std::shared_ptr<Answer> answer(
      new Answer{AnswerWriter(format_, std::move(outputs), usage_), std::move(held_)});
  exchange_->RespondInPieces([answer](std::string& piece) { return answer->writer.Write(piece); });
}

void Generation::RespondInForm(const ChoiceOutput& output) {
  // Shared because std::function wants to be copied.
  const auto held = std::make_shared<AnswerMemory::Share>(std::move(held_));
  exchange_->RespondInPieces(
      [held, json = spec_.form->Whole(output, usage_), at = size_t{0}](std::string& piece) mutable {
        constexpr size_t kPieceBytes = size_t{64} << 10;
        piece.append(json, at, kPieceBytes);
        at += kPieceBytes;
        return at >= json.size();
      });
}

Result<int64_t> MaxNewTokens(const GenerationSpec& spec, const GenerationSpec::Prompt& prompt,
                             int64_t max_model_len) {
  const auto length = std::ssize(prompt.tokens);
  if (length == 0) return InvalidArgument("the prompt is empty");
  if (length >= max_model_len) {
    return InvalidArgument("the prompt has " + std::to_string(length) +
                           " tokens, but the model's context is " + std::to_string(max_model_len) +
                           " tokens for prompt and answer together; at most " +
                           std::to_string(max_model_len - 1) + " are possible for a prompt");
  }
  const int64_t room = max_model_len - length;
  const int64_t asked_for = spec.options.max_tokens.value_or(0);
  if (asked_for > room) {
    return InvalidArgument(
        "max_tokens " + std::to_string(asked_for) + " is too large: the model's context is " +
        std::to_string(max_model_len) + " tokens and the prompt has " + std::to_string(length) +
        "; at most " + std::to_string(room) + " are possible");
  }
  return std::min(spec.options.max_tokens.value_or(spec.default_max_tokens), room);
}

namespace {

// Of each token of a prompt in a choice.
int64_t ValuesOfPromptToken(const GenerationOptions& options) {
  const int64_t echoed = options.echo_logprobs ? 1 + options.sampling.num_logprobs : 0;
  return echoed + (options.prompt_logprobs >= 0 ? 1 + options.prompt_logprobs : 0);
}

Status TooManyOfPrompts(int64_t values, int64_t most) {
  return InvalidArgument("the log-probabilities of the prompts, and the answers, come to " +
                         std::to_string(values) + " values; at most " + std::to_string(most) +
                         " are possible: ask for fewer or shorter prompts, choices ('n') or "
                         "log-probabilities");
}

}  // namespace

Status CheckAnswerSize(const GenerationSpec& spec, int64_t max_model_len, int64_t max_values) {
  if (spec.vectors) return CheckVectors(spec, max_model_len, max_values);
  const GenerationOptions& options = spec.options;
  const int64_t logprobs = std::max(0, options.sampling.num_logprobs);
  int64_t tokens = 0;  // of all choices: at most 1,024 of one context each
  int64_t of_prompts = 0;
  for (const GenerationSpec::Prompt& prompt : spec.prompts) {
    LAMINA_ASSIGN_OR_RETURN(const int64_t new_tokens, MaxNewTokens(spec, prompt, max_model_len));
    tokens += new_tokens * options.best_of;
    of_prompts += std::ssize(prompt.tokens) * ValuesOfPromptToken(options) * options.n;
  }
  if (tokens <= max_values / (1 + logprobs)) {
    if (options.stream && of_prompts > kMaxStreamedPromptValues)
      return TooManyOfPrompts(of_prompts, kMaxStreamedPromptValues)
          .WithContext("'echo' with 'logprobs' in a stream");
    const int64_t values = of_prompts + tokens * (1 + logprobs);
    return of_prompts == 0 || values <= max_values ? OkStatus()
                                                   : TooManyOfPrompts(values, max_values);
  }
  const std::string each =
      logprobs == 0 ? "" : " with " + std::to_string(logprobs) + " log-probabilities for each";
  return InvalidArgument("the answer may have " + std::to_string(tokens) +
                         " tokens in all its choices" + each + "; at most " +
                         std::to_string(max_values / (1 + logprobs)) + " are possible" + each +
                         ": ask for fewer tokens ('max_tokens'), choices ('n', 'best_of', prompts) "
                         "or log-probabilities");
}

}  // namespace lamina
