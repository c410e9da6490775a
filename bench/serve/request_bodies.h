// Requests as an OpenAI-compatible server takes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "bench/serve/prompts.h"
#include "bench/serve/served_endpoint.h"

namespace lamina {

// The tokenizer that counts prompts, and the folder it came from; null and "" if none is at hand.
struct FoundTokenizer {
  std::unique_ptr<Tokenizer> tokenizer;
  std::string dir;
};

// Of `dir`, whose errors are LoadTokenizerOrBytes's; `dir` "": of the folder that the server names,
// if it is one here.
Result<FoundTokenizer> FindTokenizer(const std::string& dir, const ServedEndpoint& endpoint);

struct BodyOptions {
  bool chat = false;
  std::string prompt_format = "text";  // text | ids: lists of token ids
  int64_t vocab_size = 0;              // for ids of a model whose tokenizer is not at hand
  bool ignore_eos = false;
  double temperature = 0;
  uint64_t seed = 0;  // of the prompts
};

class BodyMaker {
 public:
  // `model`: its name on the server. Borrows `tokenizer`, which may be null.
  BodyMaker(BodyOptions options, std::string model, const Tokenizer* tokenizer,
            int64_t block_tokens);

  // kInvalidArgument: ids cannot be had.
  Status Check() const;

  // JSON. `index`: as PromptMaker's.
  std::string Make(const TraceRequest& request, size_t index) const;

 private:
  const BodyOptions options_;
  const std::string model_;
  const PromptMaker prompts_;
  const int64_t block_tokens_;
  int64_t vocab_size_ = 0;
};

}  // namespace lamina
