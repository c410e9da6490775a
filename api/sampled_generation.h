// Text by sampling: tokens go to the client as they come, or of best_of answers the best n, with
// the highest log-probability per token.
#pragma once

#include <memory>
#include <vector>

#include "api/generation.h"
#include "text/answer_parser.h"
#include "text/detokenizer.h"

namespace lamina {

// Choices are numbered prompt by prompt, `best_of` for each; a part is a prompt.
class SampledGeneration final : public Generation {
 public:
  // Borrows what `server` has. REQUIRES: !spec.options.beam_search.
  SampledGeneration(GenerationSpec spec, const Server& server, std::shared_ptr<Exchange> exchange);

  Status Start(MakeSink make_sink) override;
  bool OnEvent(int prompt, const TokenEvent& event) override;
  void Abort() override;

 private:
  struct Choice {
    Detokenizer detokenizer;
    std::unique_ptr<AnswerParser> parser;  // null if the answer is text only
    ChoiceOutput output;     // whole answers: all of it; streams: what has not been sent
    size_t prompt = 0;       // its number
    int64_t num_echoed = 0;  // characters of the prompt, in front of the text
    bool sent_first = false;
    bool done = false;
    double logprob = 0;  // of all tokens together
    int64_t num_tokens = 0;

    size_t held_bytes() const {
      return output.text.capacity() + output.logprobs.held_bytes() +
             output.token_ids.capacity() * sizeof(TokenId) + output.reasoning.capacity() +
             output.calls_bytes + (parser ? parser->held_bytes() : 0);
    }
    double LogprobPerToken() const {
      return num_tokens == 0 ? 0 : logprob / static_cast<double>(num_tokens);
    }
  };

  Status SubmitPrompt(int prompt, const MakeSink& make_sink);
  // Of a prompt's tokens; returns whether there is memory for them.
  bool TakeScores(size_t prompt, const TokenEvent& event);
  // Whether the choice has to wait for what its prompt's scores say.
  bool LacksScores(const Choice& choice) const {
    return !scores_.empty() && !scores_[choice.prompt]->complete();
  }
  void Take(int prompt, Choice& choice, const TokenEvent& event);
  void TakeToken(Choice& choice, const TokenEvent& event);
  void FinishChoice(Choice& choice, const TokenEvent& event);
  void AddText(Choice& choice, std::string text);
  void EndText(Choice& choice);
  // Sends what is new of the choice, if anything is.
  void SendNews(Choice& choice);
  void SendChunk(Choice& choice);
  void Complete();
  void RespondError(const ApiError& error) override;
  std::vector<Choice*> Answers();  // of each prompt the best n, if there are more
  bool HasToChoose() const { return spec_.options.best_of > spec_.options.n; }

  std::vector<RequestId> requests_;  // one for each prompt
  std::vector<Choice> choices_;
  // By prompt, if the answer says how likely it is. Shared with the answer.
  std::vector<std::shared_ptr<PromptScores>> scores_;
  size_t num_open_ = 0;
};

}  // namespace lamina
