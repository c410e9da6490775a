// One client request while text is generated for it: from tokens of the engine to the client's answer.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "frontend/engine.h"
#include "frontend/openai/exchange.h"
#include "frontend/openai/requests.h"
#include "frontend/openai/responses.h"
#include "frontend/text/detokenizer.h"

namespace lamina {

struct GenerationSpec {
  struct Prompt {
    std::vector<TokenId> tokens;
    std::string echo;  // stands in front of the answer
  };
  ApiKind kind = ApiKind::kCompletion;
  GenerationOptions options;  // has a seed
  std::string model;          // as answers name it
  std::vector<Prompt> prompts;
  int64_t default_max_tokens = 16;
};

// Thread: the server's. Choices are numbered prompt by prompt, `n` for each.
class Generation {
 public:
  // Makes the sink for a prompt; it hands events to the server's thread, where they come back by OnEvent.
  using MakeSink = std::function<Engine::Sink(int prompt)>;

  // Borrows the tokenizer and the engine.
  Generation(GenerationSpec spec, const Tokenizer& tokenizer, Engine& engine, std::shared_ptr<Exchange> exchange);

  // Hands all prompts to the engine, or none: on an error nothing is left running and nothing was answered. kInvalidArgument: a prompt is
  // too long.
  Status Start(const MakeSink& make_sink);

  // Returns true when the answer is complete: the generation can go.
  bool OnEvent(int prompt, const TokenEvent& event);

  // Ends everything in the engine; the client is gone.
  void Abort();

  // Ends everything and tells the client why: an error answer, or an error event if the stream has begun.
  void Fail(const Status& status);

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

  GenerationSpec spec_;
  const Tokenizer& tokenizer_;
  Engine& engine_;
  std::shared_ptr<Exchange> exchange_;
  ResponseFormat format_;
  std::vector<RequestId> requests_;  // one for each prompt
  std::vector<Choice> choices_;
  Usage usage_;
  size_t num_open_ = 0;
  bool stream_begun_ = false;
};

}  // namespace lamina
