#include "frontend/openai/generation.h"

#include <algorithm>

#include "frontend/openai/beam_generation.h"
#include "frontend/openai/sampled_generation.h"

namespace lamina {

Generation::Generation(GenerationSpec spec, const Tokenizer& tokenizer, Engine& engine, std::shared_ptr<Exchange> exchange)
    : spec_(std::move(spec)), tokenizer_(tokenizer), engine_(engine), exchange_(std::move(exchange)), format_(spec_.kind, spec_.model) {
  for (const GenerationSpec::Prompt& prompt : spec_.prompts) usage_.prompt_tokens += std::ssize(prompt.tokens);
}

std::unique_ptr<Generation> Generation::Create(GenerationSpec spec, const Tokenizer& tokenizer, Engine& engine,
                                               std::shared_ptr<Exchange> exchange) {
  if (spec.options.beam_search) return std::make_unique<BeamGeneration>(std::move(spec), tokenizer, engine, std::move(exchange));
  return std::make_unique<SampledGeneration>(std::move(spec), tokenizer, engine, std::move(exchange));
}

Result<int64_t> MaxNewTokens(const GenerationSpec& spec, const GenerationSpec::Prompt& prompt, int64_t max_model_len) {
  const auto length = std::ssize(prompt.tokens);
  if (length == 0) return InvalidArgument("the prompt is empty");
  if (length >= max_model_len) {
    return InvalidArgument("the prompt has " + std::to_string(length) + " tokens, but the model's context is " +
                           std::to_string(max_model_len) + " tokens for prompt and answer together; at most " +
                           std::to_string(max_model_len - 1) + " are possible for a prompt");
  }
  const int64_t room = max_model_len - length;
  const int64_t asked_for = spec.options.max_tokens.value_or(0);
  if (asked_for > room) {
    return InvalidArgument("max_tokens " + std::to_string(asked_for) + " is too large: the model's context is " +
                           std::to_string(max_model_len) + " tokens and the prompt has " + std::to_string(length) + "; at most " +
                           std::to_string(room) + " are possible");
  }
  return std::min(spec.options.max_tokens.value_or(spec.default_max_tokens), room);
}

}  // namespace lamina
