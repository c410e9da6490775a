// Makes prompts of a wanted number of tokens.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/ids.h"
#include "plan/workload/request_trace.h"
#include "plan/workload/token_counter.h"
#include "text/tokenizer.h"

namespace lamina {

// Prompts are made of words that are one token each, chosen by a seed. With a tokenizer a text is
// encoded and corrected, a few times at most, until it has exactly the wanted number of tokens,
// those that the model puts around it included; without one the number is an estimate. Equal prefix
// blocks of a trace become equal text in all requests. Requests of a dataset that has texts keep
// theirs. Thread: any, once made.
class PromptMaker {
 public:
  // Borrows `tokenizer`, which may be null.
  PromptMaker(const Tokenizer* tokenizer, uint64_t seed);

  // `index` is the request's number in the run, which chooses what it does not share with others.
  std::string Text(const TraceRequest& request, size_t index, int64_t block_tokens) const;

  // Token ids, for /v1/completions: exactly as many as wanted, none of them special. With a
  // tokenizer a request that has a text is that text, encoded. `vocab_size` is used for a model
  // whose tokenizer is not at hand.
  std::vector<TokenId> Ids(const TraceRequest& request, size_t index, int64_t block_tokens,
                           int64_t vocab_size) const;

 private:
  // `count` random numbers, one for each word: first those of the prefix blocks, then the request's
  // own.
  std::vector<uint64_t> Draws(const TraceRequest& request, size_t index, int64_t block_tokens,
                              int64_t count) const;

  const Tokenizer* tokenizer_;
  uint64_t seed_;
  // Words with the space before them.
  std::vector<std::string> words_;
  // [words_] Empty without a tokenizer.
  std::vector<TokenId> word_ids_;
};

}  // namespace lamina
