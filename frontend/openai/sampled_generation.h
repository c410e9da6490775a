// Text by sampling: tokens go to the client as they come.
#pragma once

#include <memory>
#include <vector>

#include "frontend/openai/generation.h"
#include "frontend/text/detokenizer.h"

namespace lamina {

// Choices are numbered prompt by prompt, `n` for each; a part is a prompt.
class SampledGeneration final : public Generation {
 public:
  // As Generation::Create.
  SampledGeneration(GenerationSpec spec, const Tokenizer& tokenizer, Engine& engine, std::shared_ptr<Exchange> exchange);

  Status Start(MakeSink make_sink) override;
  bool OnEvent(int prompt, const TokenEvent& event) override;
  void Abort() override;
  void Fail(const Status& status) override;

 private:
  struct Choice {
    Detokenizer detokenizer;
    LogprobCollector logprobs;
    ChoiceOutput output;  // whole answers: all text; streams: what has not been sent
    bool sent_first = false;
    bool done = false;
  };

  Status SubmitPrompt(int prompt, const MakeSink& make_sink);
  void TakeToken(Choice& choice, const TokenEvent& event);
  void FinishChoice(Choice& choice, const TokenEvent& event);
  void SendChunk(Choice& choice);
  void Complete();

  std::vector<RequestId> requests_;  // one for each prompt
  std::vector<Choice> choices_;
  size_t num_open_ = 0;
  bool stream_begun_ = false;
};

}  // namespace lamina
