// The constraint of one sequence while its text is generated: which tokens may come next. It is a
// function of the constraint and the output alone, so a sequence that starts again, here or on
// another node, goes on with the same tokens.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>

#include "base/ids.h"
#include "base/status.h"
#include "base/token_mask.h"
#include "grammar/automaton.h"
#include "grammar/vocabulary.h"

namespace lamina {

// Thread: that of its automaton.
class ConstrainedText {
 public:
  explicit ConstrainedText(std::shared_ptr<Automaton> automaton)
      : automaton_(std::move(automaton)) {}

  // What may follow `output`, of which earlier calls have seen a beginning. Borrowed until the next
  // call for any text of the automaton. kInvalidArgument: the output is none that the constraint
  // allows, or what follows takes too long to find.
  Result<NextTokens> Next(std::span<const TokenId> output);

 private:
  std::shared_ptr<Automaton> automaton_;
  uint64_t generation_ = UINT64_MAX;  // of the automaton, that state_ is valid in
  Automaton::State state_ = Automaton::kDead;
  size_t num_seen_ = 0;
};

// The automata of one node. Texts with the same constraint share one, and with it what was found
// for one of them. Thread: one owner.
class Automata {
 public:
  // What automata keep to save time is dropped when it is more, of all together, or of one more
  // than Automaton::kMaxHeldBytes.
  static constexpr size_t kMaxTotalBytes = size_t{256} << 20;
  // Constraints that no text uses are kept, the last ones first.
  static constexpr size_t kMaxKept = 64;

  explicit Automata(std::shared_ptr<const Vocabulary> vocabulary)
      : vocabulary_(std::move(vocabulary)) {}

  // `grammar`: Grammar::ToBytes. kInvalidArgument if it is none.
  Result<ConstrainedText> Begin(const std::string& grammar);
  // Drops what is too much. To be called between steps, when nothing is borrowed.
  void Trim();

 private:
  struct Kept {
    std::string grammar;
    std::shared_ptr<Automaton> automaton;
  };

  const std::shared_ptr<const Vocabulary> vocabulary_;
  std::list<Kept> kept_;  // the last one that was begun first
  std::unordered_map<std::string, std::list<Kept>::iterator> by_grammar_;
};

}  // namespace lamina
