#include "api/beam_search.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

namespace lamina {

BeamSearch::BeamSearch(BeamSearchOptions options) : options_(std::move(options)) {}

int BeamSearch::num_offered() const {
  return std::max<int>(2, 1 + static_cast<int>(options_.ends.size())) * options_.width;
}

double BeamSearch::Score(double logprob, int64_t length) const {
  return logprob / std::pow(static_cast<double>(length), options_.length_penalty);
}

void BeamSearch::Keep(Answer answer) {
  const auto behind = std::ranges::find_if(
      answers_, [&](const Answer& other) { return other.score < answer.score; });
  answers_.insert(behind, std::move(answer));
  if (std::ssize(answers_) > options_.width) answers_.pop_back();
}

void BeamSearch::Advance(std::span<const std::vector<TokenLogprob>> next) {
  struct Candidate {
    size_t beam;
    TokenId token;
    double logprob;
  };
  std::vector<Candidate> candidates;
  for (size_t beam = 0; beam < next.size(); ++beam) {
    for (const TokenLogprob& one : next[beam])
      candidates.push_back({beam, one.token, beams_[beam].logprob + double{one.logprob}});
  }
  std::ranges::stable_sort(candidates, std::greater<>(), &Candidate::logprob);
  if (std::ssize(candidates) > num_offered()) candidates.resize(static_cast<size_t>(num_offered()));
  const int64_t length = std::ssize(beams_.front().tokens) + 1;
  std::vector<Beam> kept;
  for (size_t rank = 0; rank < candidates.size(); ++rank) {
    const Candidate& candidate = candidates[rank];
    const bool ends = std::ranges::count(options_.ends, candidate.token) > 0;
    const bool is_answer = ends || length == options_.max_new_tokens;
    const auto width = static_cast<size_t>(options_.width);
    // Of what ends only the first `width` count: the others are there so that enough beams can go
    // on.
    if (is_answer ? rank >= width : kept.size() == width) continue;
    std::vector<TokenId> tokens = beams_[candidate.beam].tokens;
    tokens.push_back(candidate.token);
    if (is_answer) {
      Keep({std::move(tokens), Score(candidate.logprob, length), ends});
    } else {
      kept.push_back({std::move(tokens), candidate.logprob});
    }
  }
  beams_ = std::move(kept);
  const bool full = std::ssize(answers_) == options_.width;
  done_ =
      beams_.empty() || (full && (options_.early_stopping ||
                                  Score(beams_.front().logprob, length) <= answers_.back().score));
}

}  // namespace lamina
