// The JSON of answers to /v1/completions and /v1/chat/completions.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "api/logprobs.h"
#include "manager/engine.h"
#include "text/answer_format.h"

namespace lamina {

// A choice as a whole, or what is new in it.
struct ChoiceOutput {
  int index = 0;
  std::string text;
  std::string reasoning;
  // Where a call is new it has an id and a name; else the arguments go on.
  struct Call {
    size_t index = 0;
    std::string id, name, arguments;
  };
  std::vector<Call> calls;
  size_t calls_bytes = 0;  // that they take
  bool called = false;     // the choice has calls, here or sent before
  LogprobRecords logprobs;
  // How likely the prompt is, if the answer says so: echoed before `logprobs`, or by itself. Shared
  // by the choices of one prompt; null: it is not said here.
  std::shared_ptr<const PromptScores> prompt;
  std::vector<TokenId> token_ids;  // of the text, if they are asked for
  std::optional<FinishReason> finish;
  nlohmann::ordered_json stop_reason;  // the stop string or stop token id, else null
};

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t cached_tokens = 0;  // of the prompts: KV was there from earlier requests
};

// Draws the id of a call, in the form that the model's template wants to see.
std::string NewCallId(std::optional<ToolFormat> format);

// "stop", "length", "abort", "error".
const char* FinishReasonName(FinishReason reason);

// Valid UTF-8 on one line.
std::string DumpJson(const nlohmann::ordered_json& json);

// What of a request decides about the form of its answer.
struct ResponseOptions {
  ApiKind kind = ApiKind::kCompletion;
  std::string model;
  std::string request_id;      // "": one is drawn
  bool token_ids = false;      // tokens are told by number too
  bool tokens_as_ids = false;  // log-probabilities name tokens by number
  int choices_per_prompt = 1;
  // Of each prompt, if `token_ids`.
  std::vector<std::vector<TokenId>> prompt_token_ids = {};
  // Of the prompt's tokens, with so many of the most likely ones in the place of each: told before
  // those of the answer; told as `prompt_logprobs`. -1: not.
  int32_t echo_logprobs = -1;
  int32_t prompt_logprobs = -1;
};

class ResponseFormat {
 public:
  // Borrows the tokenizer.
  ResponseFormat(ResponseOptions options, const Tokenizer& tokenizer);

  // One event of a stream. `first`: the choice's first one, which tells the role in a chat. Usage,
  // if not null, is part of it; `null_usage` writes "usage": null instead, as clients expect that
  // asked for the usage chunk at the end.
  std::string Chunk(const ChoiceOutput& choice, bool first, const Usage* usage,
                    bool null_usage) const;

  // The event without choices that tells the usage.
  std::string UsageChunk(const Usage& usage) const;

  ApiKind kind() const { return options_.kind; }

 private:
  friend class AnswerWriter;
  std::string Begin(bool chunk, bool first) const;  // up to the first choice
  // Behind the log-probabilities of a choice.
  std::string EntryEnd(const ChoiceOutput& choice, bool first) const;
  LogprobWriter Logprobs(const ChoiceOutput& choice) const;
  bool tells_prompt(const ChoiceOutput& choice) const {
    return options_.prompt_logprobs >= 0 && choice.prompt != nullptr;
  }
  // REQUIRES: tells_prompt.
  PromptScoresWriter PromptLogprobs(const ChoiceOutput& choice) const {
    return {tokenizer_, *choice.prompt, static_cast<size_t>(options_.prompt_logprobs)};
  }

  ResponseOptions options_;
  const Tokenizer& tokenizer_;
  std::string id_;
  int64_t created_ = 0;  // Unix seconds
};

// The whole answer, written piece by piece: it may be much larger than what it is written from.
class AnswerWriter {
 public:
  AnswerWriter(const ResponseFormat& format, std::vector<ChoiceOutput> choices, const Usage& usage);
  AnswerWriter(const AnswerWriter&) = delete;
  AnswerWriter& operator=(const AnswerWriter&) = delete;

  // Appends the next piece to `json`, about 64 KiB or one choice's text; returns true if it was the
  // last.
  bool Write(std::string& json);

 private:
  // Writes `prompt_logprobs` of the choice if they are asked for; returns whether all is written.
  bool WritePrompt(const ChoiceOutput& choice, std::string& json);

  ResponseFormat format_;
  std::vector<ChoiceOutput> choices_;
  Usage usage_;
  bool begun_ = false;
  bool ended_choices_ = false;
  size_t choice_ = 0;                      // the current one
  std::optional<LogprobWriter> logprobs_;  // of the current one, once its text is written
  bool wrote_logprobs_ = false;            // of the current one
  std::optional<PromptScoresWriter> prompt_;
};

}  // namespace lamina
