#include "grammar/constrained_text.h"

#include <iterator>
#include <utility>

namespace lamina {

Result<NextTokens> ConstrainedText::Next(std::span<const TokenId> output) {
  if (generation_ != automaton_->generation() || num_seen_ > output.size()) {
    generation_ = automaton_->generation();
    state_ = automaton_->start();
    num_seen_ = 0;
  }
  if (state_ == Automaton::kDead)
    return InvalidArgument("the constraint is too ambiguous for its first token");
  LAMINA_ASSIGN_OR_RETURN(const Automaton::State reached,
                          automaton_->Advance(state_, output.subspan(num_seen_)));
  if (reached == Automaton::kDead)
    return InvalidArgument("the output so far does not satisfy the constraint");
  state_ = reached;
  num_seen_ = output.size();
  LAMINA_ASSIGN_OR_RETURN(const TokenMask* const tokens, automaton_->MaskOf(state_));
  return NextTokens{tokens, automaton_->accepts(state_)};
}

Result<ConstrainedText> Automata::Begin(const std::string& grammar) {
  const auto found = by_grammar_.find(grammar);
  if (found != by_grammar_.end()) {
    kept_.splice(kept_.begin(), kept_, found->second);
    return ConstrainedText(found->second->automaton);
  }
  LAMINA_ASSIGN_OR_RETURN(Grammar compiled, Grammar::FromBytes(grammar));
  kept_.push_front({grammar, std::make_shared<Automaton>(std::move(compiled), vocabulary_)});
  by_grammar_.emplace(grammar, kept_.begin());
  return ConstrainedText(kept_.front().automaton);
}

void Automata::Trim() {
  size_t total = 0;
  for (auto kept = kept_.begin(); kept != kept_.end();) {
    Automaton& automaton = *kept->automaton;
    if (automaton.held_bytes() > Automaton::kMaxHeldBytes ||
        total + automaton.held_bytes() > kMaxTotalBytes)
      automaton.Forget();
    total += automaton.held_bytes();
    const auto next = std::next(kept);
    if (kept_.size() > kMaxKept && kept->automaton.use_count() == 1) {
      by_grammar_.erase(kept->grammar);
      kept_.erase(kept);
    }
    kept = next;
  }
}

}  // namespace lamina
