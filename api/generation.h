// One client request while text is generated for it: from tokens of the engine to the client's
// answer.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "api/answer_form.h"
#include "api/answer_memory.h"
#include "api/api_error.h"
#include "api/exchange.h"
#include "api/requests.h"
#include "api/responses.h"
#include "api/vector_form.h"
#include "base/clock.h"
#include "manager/engine.h"
#include "text/answer_parser.h"
#include "text/tokenizer.h"

namespace lamina {

struct GenerationSpec {
  struct Prompt {
    std::vector<TokenId> tokens;
    std::string echo = {};  // stands in front of the answer
    // With GenerationOptions::echo_logprobs: where the text of each token begins, in characters.
    std::vector<int64_t> text_offsets = {};
  };
  ApiKind kind = ApiKind::kCompletion;
  GenerationOptions options;  // has a seed
  std::string model;          // as answers name it
  std::vector<Prompt> prompts;
  int64_t default_max_tokens = 16;
  // Absent: the answer is text and nothing else.
  std::optional<AnswerFormat> format;
  std::vector<TokenId> marker_tokens;  // of the format: special or not, they are not skipped
  bool include_reasoning = true;       // false: it is dropped
  // Null: the answer is told as OpenAI's API tells it. REQUIRES: one choice otherwise.
  std::unique_ptr<AnswerForm> form;
  // Set: no text is generated, and the answer is made of the prompts' vectors. Of the options only
  // those that ParseVectors reads count then.
  std::optional<VectorForm> vectors;
};

// Thread: the server's.
class Generation {
 public:
  // Makes the sink for a part of the request. The sink hands events to the server's thread, where
  // OnEvent gets them. A generation may call it until it is over.
  using MakeSink = std::function<Engine::Sink(int part)>;

  // What all generations of a server use. All three are borrowed.
  struct Server {
    const Tokenizer& tokenizer;
    Engine& engine;
    // Counts the text and log-probabilities of answers. An answer that exceeds it fails with
    // kTryAgain.
    AnswerMemory& memory;
  };

  // Makes a generation that samples, or one that searches with beams or embeds if the specification
  // says so.
  static std::unique_ptr<Generation> Create(GenerationSpec spec, const Server& server,
                                            std::shared_ptr<Exchange> exchange);
  virtual ~Generation() = default;

  // Hands all prompts to the engine, or none: on an error nothing is left running and nothing was
  // answered. kInvalidArgument: a prompt is too long.
  virtual Status Start(MakeSink make_sink) = 0;

  // Returns true when the answer is complete: the generation can go.
  virtual bool OnEvent(int part, const TokenEvent& event) = 0;

  // Ends all of its requests in the engine and answers nothing, because the client is gone.
  virtual void Abort() = 0;

  // Ends all of its requests in the engine and tells the client why: by an error answer, or by an
  // error event if the stream has begun.
  void Fail(const Status& status);

  // Whether the client was told an error, by Fail or from OnEvent.
  bool failed() const { return failed_; }

  const Usage& usage() const { return usage_; }  // so far
  const std::string& request_id() const { return spec_.options.request_id; }
  TimePoint begun() const { return begun_; }

 protected:
  Generation(GenerationSpec spec, const Server& server, std::shared_ptr<Exchange> exchange);

  // Tells the client, at last, what is wrong. Nothing follows.
  virtual void RespondError(const ApiError& error) = 0;

  // Sends the whole answer. Its share of the memory for answers is given back when it is sent, or
  // when the client is gone.
  void Respond(std::vector<ChoiceOutput> outputs);

  GenerationSpec spec_;
  const Tokenizer& tokenizer_;
  Engine& engine_;
  AnswerMemory::Share held_;
  std::shared_ptr<Exchange> exchange_;
  ResponseFormat format_;
  Usage usage_;

  // Adds what is new of an answer to a choice.
  void AddPieces(AnswerPieces pieces, ChoiceOutput& output) const;

 private:
  void RespondInForm(const ChoiceOutput& output);

  bool failed_ = false;
  const TimePoint begun_ = Clock::now();
};

// They are sent as they stand, and a client has to take them: about 700 KB.
inline constexpr int64_t kMaxStreamedPromptValues = int64_t{1} << 14;

// How many tokens the answer to a prompt may have: those that were asked for, else the spec's
// default or what fits, if that is less. kInvalidArgument: the prompt is empty, or it leaves no
// room in the model's context for any token or for as many as were asked for.
Result<int64_t> MaxNewTokens(const GenerationSpec& spec, const GenerationSpec::Prompt& prompt,
                             int64_t max_model_len);

// How large the answer may become, in values: for each token itself and the log-probabilities that
// were asked for of others in its place; the same for tokens of prompts, in each choice that tells
// of them. kInvalidArgument if that is more than `max_values`, or for prompts in a stream more than
// kMaxStreamedPromptValues; if a prompt is empty, or if one leaves no room for the tokens that were
// asked for.
// For vectors see CheckVectors.
Status CheckAnswerSize(const GenerationSpec& spec, int64_t max_model_len, int64_t max_values);

}  // namespace lamina
