// One client request while text is generated for it: from tokens of the engine to the client's
// answer.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "api/answer_memory.h"
#include "api/exchange.h"
#include "api/requests.h"
#include "api/responses.h"
#include "manager/engine.h"
#include "text/tokenizer.h"

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

// Thread: the server's.
class Generation {
 public:
  // Makes the sink for a part of the request; it hands events to the server's thread, where they
  // come back by OnEvent. May be called until the generation is over.
  using MakeSink = std::function<Engine::Sink(int part)>;

  // What all generations of a server use; borrowed.
  struct Server {
    const Tokenizer& tokenizer;
    Engine& engine;
    // For what is generated; an answer that finds it full fails with kTryAgain.
    AnswerMemory& memory;
  };

  // By sampling, or by beam search if the options say so.
  static std::unique_ptr<Generation> Create(GenerationSpec spec, const Server& server,
                                            std::shared_ptr<Exchange> exchange);
  virtual ~Generation() = default;

  // Hands all prompts to the engine, or none: on an error nothing is left running and nothing was
  // answered. kInvalidArgument: a prompt is too long.
  virtual Status Start(MakeSink make_sink) = 0;

  // Returns true when the answer is complete: the generation can go.
  virtual bool OnEvent(int part, const TokenEvent& event) = 0;

  // Ends everything in the engine; the client is gone.
  virtual void Abort() = 0;

  // Ends everything and tells the client why: an error answer, or an error event if the stream has
  // begun.
  virtual void Fail(const Status& status) = 0;

 protected:
  Generation(GenerationSpec spec, const Server& server, std::shared_ptr<Exchange> exchange);

  // The whole answer. Its memory is given back when it is sent.
  void Respond(std::vector<ChoiceOutput> outputs);

  GenerationSpec spec_;
  const Tokenizer& tokenizer_;
  Engine& engine_;
  AnswerMemory::Share held_;
  std::shared_ptr<Exchange> exchange_;
  ResponseFormat format_;
  Usage usage_;
};

// How many tokens the answer to a prompt may have. kInvalidArgument: the prompt leaves no room for
// so many.
Result<int64_t> MaxNewTokens(const GenerationSpec& spec, const GenerationSpec::Prompt& prompt,
                             int64_t max_model_len);

// How large the answer may become, in values: for each token itself and the log-probabilities that
// were asked for of others in its place. kInvalidArgument: more than `max_values`, or as
// MaxNewTokens.
Status CheckAnswerSize(const GenerationSpec& spec, int64_t max_model_len, int64_t max_values);

}  // namespace lamina
