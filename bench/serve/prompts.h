// Prompts of a wanted number of tokens.
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

// Prompts are made of words that are a token each, chosen by seed: with a tokenizer the text is
// encoded and corrected until it has exactly the wanted number of tokens, those that the model puts
// around it included; without one the count is an estimate. Equal prefix blocks of a trace are
// equal text, whatever the request. Requests of a dataset with text keep theirs.
class PromptMaker {
 public:
  // Borrows `tokenizer`, which may be null.
  PromptMaker(const Tokenizer* tokenizer, uint64_t seed);

  // `index`: of the request in the run, for what is not shared.
  std::string Text(const TraceRequest& request, size_t index, int64_t block_tokens) const;

  // Token ids, always exactly as many as wanted and none of them special; for /v1/completions.
  // `vocab_size`: of a model whose tokenizer is not at hand.
  std::vector<TokenId> Ids(const TraceRequest& request, size_t index, int64_t block_tokens,
                           int64_t vocab_size) const;

 private:
  std::vector<uint64_t> Draws(const TraceRequest& request, size_t index, int64_t block_tokens,
                              int64_t count) const;

  const Tokenizer* tokenizer_;
  uint64_t seed_;
  std::vector<std::string> words_;  // with the space before
  std::vector<TokenId> word_ids_;   // the same words'; empty without a tokenizer
};

}  // namespace lamina
