// Makes requests as an OpenAI-compatible server takes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "bench/serve/prompts.h"
#include "bench/serve/served_endpoint.h"

namespace lamina {

// The tokenizer that counts prompts, and the folder it came from. Null and "" if none is at hand.
struct FoundTokenizer {
  std::unique_ptr<Tokenizer> tokenizer;
  std::string dir;
};

// Loads the tokenizer of `dir`, and returns the error if it cannot be loaded. If `dir` is "", tries
// the folder that the server names, if it is one here, and finds none if that fails.
Result<FoundTokenizer> FindTokenizer(const std::string& dir, const ServedEndpoint& endpoint);

// What all requests have in common.
struct BodyOptions {
  bool chat = false;  // /v1/chat/completions
  // "text", or "ids" for lists of token ids.
  std::string prompt_format = "text";
  // For ids of a model whose tokenizer is not at hand.
  int64_t vocab_size = 0;
  bool ignore_eos = false;
  double temperature = 0;
  uint64_t seed = 0;  // of the prompts
  // A JSON object whose fields every request has too, such as {"slo": {"ttft_ms": 500}}; "": none.
  std::string extra_body;
};

// Thread: any, once made.
class BodyMaker {
 public:
  // `model` is the model's name on the server. Borrows `tokenizer`, which may be null.
  BodyMaker(BodyOptions options, std::string model, const Tokenizer* tokenizer,
            int64_t block_tokens);

  // kInvalidArgument if there can be no ids: for chats, or without a tokenizer and a vocab_size;
  // and if the extra body is no object.
  Status Check() const;

  // The JSON text of a request. REQUIRES: Check is ok. `index` is the request's number in the run.
  std::string Make(const TraceRequest& request, size_t index) const;

 private:
  const BodyOptions options_;
  const std::string model_;
  const PromptMaker prompts_;
  const int64_t block_tokens_;
  int64_t vocab_size_ = 0;
};

}  // namespace lamina
