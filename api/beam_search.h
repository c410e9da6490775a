// Which continuations beam search keeps: no model and no engine here.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "manager/engine.h"

namespace lamina {

struct BeamSearchOptions {
  int width = 1;  // beams
  // An answer's score is its log-probability over its length to this power: above 0 favours long
  // ones.
  double length_penalty = 1;
  // End with the first `width` answers; else when no beam can be better than the worst of the best.
  bool early_stopping = false;
  int64_t max_new_tokens = 1;
  std::vector<TokenId> ends;  // tokens that end an answer
};

// In each step every beam's most likely next tokens are offered. The best of all of them go on, or
// are answers if they end. The rules are those of Hugging Face transformers 4.51, so that the same
// model gives the same answers.
class BeamSearch {
 public:
  struct Beam {
    std::vector<TokenId> tokens;  // generated so far
    double logprob = 0;           // of all of them
  };
  struct Answer {
    std::vector<TokenId> tokens;  // with the one that ends it
    double score = 0;
    bool ended = false;  // else it has max_new_tokens
  };

  explicit BeamSearch(BeamSearchOptions options);

  // What to find the next tokens of, best first: one without tokens at first, then `width`, or
  // fewer if the model offers fewer tokens.
  const std::vector<Beam>& beams() const { return beams_; }

  // So many tokens of each beam have to be offered.
  int num_offered() const;

  // next[i]: the most likely tokens behind beams()[i] with their log-probabilities, num_offered()
  // or all there are. REQUIRES: !done().
  void Advance(std::span<const std::vector<TokenLogprob>> next);

  bool done() const { return done_; }

  // Best first, at most `width`.
  const std::vector<Answer>& answers() const { return answers_; }

 private:
  void Keep(Answer answer);
  double Score(double logprob, int64_t length) const;

  const BeamSearchOptions options_;
  std::vector<Beam> beams_{1};
  std::vector<Answer> answers_;
  bool done_ = false;
};

}  // namespace lamina
