#include "api/beam_generation.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "api/api_error.h"
#include "text/answer_parser.h"
#include "text/detokenizer.h"

namespace lamina {

Status BeamGeneration::Start(MakeSink make_sink) {
  make_sink_ = std::move(make_sink);
  const GenerationOptions& options = spec_.options;
  BeamSearchOptions search{options.best_of, options.beam_search->length_penalty,
                           options.beam_search->early_stopping, 0, options.stop_token_ids};
  if (!options.ignore_eos)
    search.ends.insert(search.ends.end(), engine_.eos_tokens().begin(), engine_.eos_tokens().end());
  for (const GenerationSpec::Prompt& prompt : spec_.prompts) {
    LAMINA_ASSIGN_OR_RETURN(search.max_new_tokens,
                            MaxNewTokens(spec_, prompt, engine_.max_model_len()));
    searches_.push_back({BeamSearch(search), {}, {}});
  }
  for (int prompt = 0; prompt < static_cast<int>(searches_.size()); ++prompt) {
    if (Status status = Step(prompt); !status.ok()) {
      Abort();
      return status;
    }
  }
  return OkStatus();
}

// A step whose beams are not in the cache, as the first one, generates a second token, which is not
// used: only what a step has attended to can be shared.
Status BeamGeneration::Step(int prompt) {
  Search& search = searches_[static_cast<size_t>(prompt)];
  const std::vector<BeamSearch::Beam>& beams = search.beams.beams();
  search.next.assign(beams.size(), {});
  search.requests.clear();
  search.num_open = static_cast<int>(beams.size());
  for (size_t i = 0; i < beams.size(); ++i) {
    GenerateRequest request;
    request.prompt = spec_.prompts[static_cast<size_t>(prompt)].tokens;
    request.prompt.insert(request.prompt.end(), beams[i].tokens.begin(), beams[i].tokens.end());
    request.max_new_tokens =
        search.shares ? 1
                      : std::min<int64_t>(2, engine_.max_model_len() - std::ssize(request.prompt));
    request.ignore_eos = true;
    request.prefix_group = search.group;
    request.priority = spec_.options.priority;
    request.sampling.temperature = 0;
    request.sampling.num_logprobs = search.beams.num_offered();
    const int part = prompt * spec_.options.best_of + static_cast<int>(i);
    LAMINA_ASSIGN_OR_RETURN(const RequestId id,
                            engine_.Submit(std::move(request), make_sink_(part)));
    search.requests.push_back(id);
  }
  if (search.group == 0) search.group = search.requests.front().value;
  search.shares = true;
  return OkStatus();
}

bool BeamGeneration::OnEvent(int part, const TokenEvent& event) {
  const int prompt = part / spec_.options.best_of;
  Search& search = searches_[static_cast<size_t>(prompt)];
  if (event.finish == FinishReason::kError) {
    Fail(event.error.ok() ? InternalError("the request failed") : event.error);
    return true;
  }
  if (event.first) {
    search.next[static_cast<size_t>(part % spec_.options.best_of)] = event.top;
    if (search.beams.beams().front().tokens.empty()) {
      usage_.cached_tokens += event.num_cached;  // the second token's row proves what it attends to
    } else {
      search.shares &= event.num_cached > 0;
    }
  }
  if (!event.finish || --search.num_open > 0) return false;
  search.beams.Advance(search.next);
  if (!search.beams.done()) {
    const Status status = Step(prompt);
    if (!status.ok()) Fail(status);
    return !status.ok();
  }
  search.requests.clear();
  const bool all =
      std::ranges::all_of(searches_, [](const Search& one) { return one.beams.done(); });
  if (all) Complete();
  return all;
}

void BeamGeneration::Complete() {
  const GenerationOptions& options = spec_.options;
  std::vector<ChoiceOutput> outputs;
  for (size_t prompt = 0; prompt < searches_.size(); ++prompt) {
    const std::vector<BeamSearch::Answer>& answers = searches_[prompt].beams.answers();
    for (size_t i = 0; i < std::min(answers.size(), static_cast<size_t>(options.n)); ++i) {
      const BeamSearch::Answer& answer = answers[i];
      ChoiceOutput& output = outputs.emplace_back();
      output.index = static_cast<int>(outputs.size()) - 1;
      Detokenizer text(
          tokenizer_,
          DetokenizerOptions{{}, false, options.skip_special_tokens, 0, false, spec_.marker_tokens},
          spec_.prompts[prompt].tokens);
      const bool whole = !answer.ended || options.include_stop_in_output;
      output.text = spec_.prompts[prompt].echo;
      for (size_t at = 0; at < answer.tokens.size() - (whole ? 0 : 1); ++at)
        output.text += text.Push(answer.tokens[at]);
      output.text += text.Finish();
      if (spec_.format) TakeApart(output);
      output.finish = answer.ended ? FinishReason::kStop : FinishReason::kLength;
      if (answer.ended && std::ranges::count(options.stop_token_ids, answer.tokens.back()) > 0)
        output.stop_reason = answer.tokens.back();
      if (options.return_token_ids) output.token_ids = answer.tokens;
      usage_.completion_tokens += std::ssize(answer.tokens);
    }
  }
  Respond(std::move(outputs));
}

void BeamGeneration::TakeApart(ChoiceOutput& output) const {
  const std::unique_ptr<AnswerParser> parser = AnswerParser::Create(*spec_.format);
  AnswerPieces pieces;
  parser->Push(std::exchange(output.text, {}), pieces);
  parser->Finish(pieces);
  AddPieces(std::move(pieces), output);
  output.called = parser->called();
}

void BeamGeneration::Abort() {
  for (Search& search : searches_) {
    for (const RequestId request : std::exchange(search.requests, {})) engine_.Abort(request);
  }
}

void BeamGeneration::RespondError(const ApiError& error) {
  exchange_->Respond(ErrorResponse(error));
}

}  // namespace lamina
