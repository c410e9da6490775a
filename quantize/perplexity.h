// How well a model predicts a text: the exponential of the mean negative log-likelihood of its
// tokens.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/dtype.h"
#include "base/status.h"
#include "base/worker_team.h"

namespace lamina {

struct PerplexityOptions {
  std::string model_dir;
  std::optional<DType> kv_dtype;  // nullopt: the model's
  // The text is cut into pieces of so many tokens, the beginning-of-sequence token included; 0: of
  // as many as the model can have, but no more than 512.
  int64_t context = 0;
  bool by_lines = false;  // each line is a text of its own
  // Called after each piece; may be null.
  std::function<void(int64_t done_tokens, int64_t all_tokens, double perplexity)> on_progress;
};

struct Perplexity {
  double negative_log_likelihood = 0;  // the sum over all tokens, natural
  int64_t num_tokens = 0;              // that were predicted: all but the first of each piece

  double mean() const { return negative_log_likelihood / static_cast<double>(num_tokens); }
  double value() const { return std::exp(mean()); }
};

// Runs the model in this process, on the team. Weights are read as a compute node reads them.
// kInvalidArgument if the context is less than 2 or more than the model can have, or the text has
// less than two tokens; errors of reading the model. REQUIRES: `text` is valid UTF-8.
Result<Perplexity> MeasurePerplexity(const PerplexityOptions& options, std::string_view text,
                                     WorkerTeam& team);

}  // namespace lamina
