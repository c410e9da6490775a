#include "api/sampled_generation.h"

#include <algorithm>
#include <utility>

#include "api/api_error.h"
#include "text/utf8.h"

namespace lamina {

SampledGeneration::SampledGeneration(GenerationSpec spec, const Server& server,
                                     std::shared_ptr<Exchange> exchange)
    : Generation(std::move(spec), server, std::move(exchange)) {
  const GenerationOptions& options = spec_.options;
  for (const GenerationSpec::Prompt& prompt : spec_.prompts) {
    if (options.sampling.num_prompt_logprobs >= 0) {
      scores_.push_back(std::make_shared<PromptScores>(prompt.tokens, prompt.text_offsets));
      held_.Change(scores_.back()->held_bytes(), 0);
    }
    for (int i = 0; i < options.best_of; ++i) {
      DetokenizerOptions text{
          options.stop,       options.include_stop_in_output,     options.skip_special_tokens,
          options.min_tokens, options.sampling.num_logprobs >= 0, spec_.marker_tokens};
      choices_.push_back({.detokenizer = Detokenizer(tokenizer_, std::move(text), prompt.tokens),
                          .parser = {},
                          .output = {},
                          .prompt = static_cast<size_t>(&prompt - spec_.prompts.data()),
                          .num_echoed = static_cast<int64_t>(CountCodePoints(prompt.echo))});
      if (spec_.format) choices_.back().parser = AnswerParser::Create(*spec_.format);
      choices_.back().output.index = static_cast<int>(choices_.size()) - 1;
      choices_.back().output.text = prompt.echo;
      if (!scores_.empty()) choices_.back().output.prompt = scores_.back();
      held_.Change(choices_.back().held_bytes(), 0);
    }
  }
  num_open_ = choices_.size();
}

Status SampledGeneration::Start(MakeSink make_sink) {
  for (size_t prompt = 0; prompt < spec_.prompts.size(); ++prompt) {
    if (Status status = SubmitPrompt(static_cast<int>(prompt), make_sink); !status.ok()) {
      Abort();
      return status;
    }
  }
  if (spec_.options.stream)
    exchange_->ExpectStream(spec_.form ? spec_.form->stream_kind() : StreamKind::kEvents);
  return OkStatus();
}

Status SampledGeneration::SubmitPrompt(int prompt, const MakeSink& make_sink) {
  GenerationSpec::Prompt& asked = spec_.prompts[static_cast<size_t>(prompt)];
  const GenerationOptions& options = spec_.options;
  GenerateRequest request;
  request.n = options.best_of;
  LAMINA_ASSIGN_OR_RETURN(request.max_new_tokens,
                          MaxNewTokens(spec_, asked, engine_.max_model_len()));
  request.ignore_eos = options.ignore_eos;
  request.stop_tokens = options.stop_token_ids;
  request.prompt_index = static_cast<uint64_t>(prompt);
  request.sampling = options.sampling;
  request.priority = options.priority;
  request.slo = options.slo;
  if (HasToChoose()) request.sampling.num_logprobs = std::max(0, options.sampling.num_logprobs);
  request.sampling.min_tokens =
      static_cast<int32_t>(std::min(options.min_tokens, request.max_new_tokens));
  request.prompt = std::move(asked.tokens);
  LAMINA_ASSIGN_OR_RETURN(const RequestId id,
                          engine_.Submit(std::move(request), make_sink(prompt)));
  requests_.push_back(id);
  return OkStatus();
}

bool SampledGeneration::OnEvent(int prompt, const TokenEvent& event) {
  const size_t index = static_cast<size_t>(prompt) * static_cast<size_t>(spec_.options.best_of) +
                       static_cast<size_t>(event.index);
  if (index >= choices_.size() || choices_[index].done) return num_open_ == 0;
  Choice& choice = choices_[index];
  if (event.finish == FinishReason::kError) {
    Fail(event.error.ok() ? InternalError("the request failed") : event.error);
    return true;
  }
  const auto held_bytes = [&] {
    return choice.held_bytes() + (spec_.form ? spec_.form->held_bytes() : 0);
  };
  bool has_room = event.scored.empty() || TakeScores(static_cast<size_t>(prompt), event);
  const size_t held_before = held_bytes();
  Take(prompt, choice, event);
  has_room &= held_.Change(held_bytes(), held_before);
  if (!has_room) {
    Fail(
        TryAgain("answers that are not sent yet hold more memory than the server has for them; ask "
                 "for smaller ones, or stream them"));
    return true;
  }
  if (choice.done && --num_open_ == 0) Complete();
  return num_open_ == 0;
}

bool SampledGeneration::TakeScores(size_t prompt, const TokenEvent& event) {
  if (scores_.empty()) return true;  // nobody asks
  PromptScores& scores = *scores_[prompt];
  const size_t held_before = scores.held_bytes();
  scores.Add(event.scored);
  const bool has_room = held_.Change(scores.held_bytes(), held_before);
  if (!spec_.options.stream || !scores.complete()) return has_room;
  for (Choice& choice : choices_) {
    if (choice.prompt == prompt) SendNews(choice);
  }
  return has_room;
}

void SampledGeneration::Take(int prompt, Choice& choice, const TokenEvent& event) {
  if (spec_.options.only_prompt) {
    if (event.index == 0) usage_.cached_tokens += event.num_cached;
    choice.done = event.finish.has_value();
    if (choice.done) choice.output.finish = FinishReason::kLength;
    return SendNews(choice);
  }
  if (event.token) TakeToken(choice, event);
  const bool over = choice.parser && choice.parser->over();
  if (over || choice.detokenizer.matched_stop()) {
    choice.done = true;
    choice.output.finish = FinishReason::kStop;
    if (choice.detokenizer.matched_stop())
      choice.output.stop_reason = *choice.detokenizer.matched_stop();
    EndText(choice);
    if (!event.finish) engine_.Stop(requests_[static_cast<size_t>(prompt)], event.index);
  } else if (event.finish) {
    FinishChoice(choice, event);
  }
  SendNews(choice);
}

void SampledGeneration::SendNews(Choice& choice) {
  const ChoiceOutput& output = choice.output;
  const bool has_news = !output.text.empty() || !output.reasoning.empty() || !output.calls.empty();
  if (!spec_.options.stream || LacksScores(choice)) return;
  if (choice.done || has_news) SendChunk(choice);
}

void SampledGeneration::AddText(Choice& choice, std::string text) {
  if (!choice.parser) {
    choice.output.text += text;
    return;
  }
  AnswerPieces pieces;
  choice.parser->Push(text, pieces);
  AddPieces(std::move(pieces), choice.output);
  choice.output.called = choice.parser->called();
}

void SampledGeneration::EndText(Choice& choice) {
  if (!choice.parser) return;
  AnswerPieces pieces;
  choice.parser->Finish(pieces);
  AddPieces(std::move(pieces), choice.output);
}

void SampledGeneration::TakeToken(Choice& choice, const TokenEvent& event) {
  ++usage_.completion_tokens;
  ++choice.num_tokens;
  choice.logprob += event.logprob;
  if (event.index == 0) usage_.cached_tokens += event.num_cached;
  const bool with_logprobs = spec_.options.sampling.num_logprobs >= 0;
  if (with_logprobs) choice.output.logprobs.Add(event);
  if (spec_.options.return_token_ids) choice.output.token_ids.push_back(*event.token);
  const bool ends_it = event.finish == FinishReason::kStop && event.stop_token.has_value();
  if (!ends_it || spec_.options.include_stop_in_output) {
    AddText(choice, choice.detokenizer.Push(*event.token));
  } else {
    choice.detokenizer.Skip();
  }
  if (with_logprobs)
    choice.output.logprobs.Place(choice.detokenizer.TakeOffsets(), choice.num_echoed);
}

void SampledGeneration::FinishChoice(Choice& choice, const TokenEvent& event) {
  choice.done = true;
  AddText(choice, choice.detokenizer.Finish());
  EndText(choice);
  choice.output.logprobs.Place(choice.detokenizer.TakeOffsets(), choice.num_echoed);
  choice.output.finish = event.finish;
  const auto& asked_for = spec_.options.stop_token_ids;
  // The held-back end became complete by the last, incomplete character.
  if (choice.detokenizer.matched_stop()) {
    choice.output.finish = FinishReason::kStop;
    choice.output.stop_reason = *choice.detokenizer.matched_stop();
  } else if (event.stop_token &&
             std::find(asked_for.begin(), asked_for.end(), *event.stop_token) != asked_for.end()) {
    choice.output.stop_reason = *event.stop_token;
  }
}

void SampledGeneration::SendChunk(Choice& choice) {
  const GenerationOptions& options = spec_.options;
  const Usage* usage = options.continuous_usage && options.include_usage ? &usage_ : nullptr;
  if (spec_.form) {
    spec_.form->SendPiece(choice.output, usage_, *exchange_);
  } else {
    exchange_->SendEvent(
        format_.Chunk(choice.output, !choice.sent_first, usage, options.include_usage));
  }
  choice.sent_first = true;
  choice.output.text.clear();
  choice.output.reasoning.clear();
  choice.output.calls.clear();
  choice.output.calls_bytes = 0;
  choice.output.logprobs.Clear();
  choice.output.token_ids.clear();
  choice.output.prompt.reset();
}

void SampledGeneration::Complete() {
  if (spec_.options.stream && spec_.form) {
    spec_.form->SendEnd(usage_, *exchange_);
    return exchange_->EndStream();
  }
  if (spec_.options.stream) {
    if (spec_.options.include_usage) exchange_->SendEvent(format_.UsageChunk(usage_));
    exchange_->SendEvent("[DONE]");
    return exchange_->EndStream();
  }
  std::vector<ChoiceOutput> outputs;
  for (Choice* choice : Answers()) {
    choice->output.index = static_cast<int>(outputs.size());
    outputs.push_back(std::move(choice->output));
  }
  Respond(std::move(outputs));
}

std::vector<SampledGeneration::Choice*> SampledGeneration::Answers() {
  std::vector<Choice*> answers;
  const auto best_of = static_cast<size_t>(spec_.options.best_of);
  for (size_t first = 0; first < choices_.size(); first += best_of) {
    std::vector<Choice*> best;
    for (size_t i = first; i < first + best_of; ++i) best.push_back(&choices_[i]);
    if (HasToChoose()) {
      std::stable_sort(best.begin(), best.end(), [](const Choice* a, const Choice* b) {
        return a->LogprobPerToken() > b->LogprobPerToken();
      });
    }
    answers.insert(answers.end(), best.begin(), best.begin() + spec_.options.n);
  }
  return answers;
}

void SampledGeneration::Abort() {
  for (const RequestId request : requests_) engine_.Abort(request);
  requests_.clear();
  num_open_ = 0;
}

void SampledGeneration::RespondError(const ApiError& error) {
  if (!exchange_->stream_begun()) return exchange_->Respond(ErrorResponse(error));
  if (spec_.form) {
    spec_.form->SendError(error, *exchange_);
  } else {
    exchange_->SendEvent(ErrorJson(error));
    exchange_->SendEvent("[DONE]");
  }
  exchange_->EndStream();
}

}  // namespace lamina
