// A grammar held against a vocabulary: which tokens may follow a text. States of a pushdown
// automaton are made deterministic as they are met, and what was found for one is kept.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/token_mask.h"
#include "grammar/byte_set.h"
#include "grammar/grammar.h"
#include "grammar/number_index.h"
#include "grammar/vocabulary.h"

namespace lamina {

// Everything below is a function of the grammar, the vocabulary and the text: what is kept saves
// time and changes no result. Rules that call each other more than kMaxCalls deep are left out, and
// so is what would need more than kMaxThreads ways through the grammar at the same time.
//
// Thread: one owner.
class Automaton {
 public:
  // A state, after a text. It is valid until Forget.
  using State = int32_t;
  static constexpr State kDead = -1;  // no text of the grammar begins like this
  static constexpr int kMaxCalls = 1000;
  static constexpr size_t kMaxThreads = size_t{1} << 12;
  // Of one call, in edges and threads that are looked at: about 50 ms. Advance has so much for each
  // token too.
  static constexpr int64_t kMaxWork = 1 << 20, kWorkPerToken = 1 << 10;
  // Of what is kept; the owner calls Forget where it is more. At twice as much calls fail.
  static constexpr size_t kMaxHeldBytes = size_t{64} << 20;

  Automaton(Grammar grammar, std::shared_ptr<const Vocabulary> vocabulary);

  // kDead if the limits above leave no text.
  State start() const { return start_; }
  // The state behind further tokens: kDead if no text of the grammar begins so. kInvalidArgument:
  // it would take more than its work. REQUIRES: not kDead.
  Result<State> Advance(State state, std::span<const TokenId> tokens);
  // Likewise, for texts that are no tokens.
  Result<State> AdvanceBytes(State state, std::string_view bytes);
  // Whether the text may end here. REQUIRES: not kDead.
  bool accepts(State state) const { return states_[static_cast<size_t>(state)].accepts; }

  // The tokens that may follow, none of which ends the text. Borrowed until Forget.
  // kInvalidArgument: it would take more than kMaxWork. REQUIRES: not kDead.
  Result<const TokenMask*> MaskOf(State state);

  // Of what is kept.
  size_t held_bytes() const { return held_bytes_; }
  // Drops all of it. start() is the only state then.
  void Forget();
  // How often that was done: a State of another generation is none.
  uint64_t generation() const { return generation_; }

  const Vocabulary& vocabulary() const { return *vocabulary_; }

 private:
  // A stack of states to return to, innermost first, as a list whose ends are shared.
  struct Frame {
    int32_t back = 0;    // the state of the grammar behind the call
    int32_t parent = 0;  // the rest; 0: the root rule was called
    int32_t depth = 0;
  };
  // A way through the grammar: its state, and a frame.
  using Thread = uint64_t;
  static constexpr State kUnknown = -2;
  static constexpr State kNothingPlain = -3;  // of Known::plain: no plain character may follow
  static constexpr int kEndless = TokenTrie::kNotPlain - 1;  // PlainRun::length
  // Plain characters that may follow, whichever they are.
  struct PlainRun {
    int length = kUnknown;
    bool ends = false;  // no plain character may stand behind the run
  };
  struct Known {
    // Of `threads_`: sorted, and only those that can go on with a byte.
    size_t first_thread = 0, num_threads = 0;
    bool accepts = false;
    // All plain characters (TokenTrie::Node::plain) lead to this one, see PlainStep; kUnknown.
    State plain = kUnknown;
    PlainRun run;  // its length is kUnknown until it is asked for
    // The bytes that lead on, but where a limit is in the way. All others lead to kDead.
    ByteSet takes;
    std::unique_ptr<const TokenMask> mask;  // null: not asked for
  };
  struct Range {
    int32_t first, last;  // of TokenTrie::tokens, without the last
  };

  void FindByteClasses();
  void FindTailStates();
  size_t PlaceOf(State state, uint8_t byte) const {
    return static_cast<size_t>(state) * class_bytes_.size() + class_of_[byte];
  }
  State Step(State state, uint8_t byte) {
    const State known = steps_[PlaceOf(state, byte)];
    return known != kUnknown ? known : FindStep(state, byte);
  }
  std::span<const Thread> threads_of(State state) const {
    const Known& known = states_[static_cast<size_t>(state)];
    return std::span(threads_).subspan(known.first_thread, known.num_threads);
  }
  // kDead, and nothing is remembered of it, if is_exhausted().
  State FindStep(State state, uint8_t byte);
  bool FindAllSteps(State from);
  bool is_exhausted() const { return work_ <= 0 || held_bytes_ > 2 * kMaxHeldBytes; }
  State Close(std::span<const Thread> begun);
  State Intern(std::span<const Thread> threads, bool accepts);
  int32_t Push(int32_t back, int32_t parent);
  State PlainStep(State state);
  State FindPlainStep(State from);
  PlainRun PlainRunOf(State state);
  std::vector<Range> AllowedRanges(State state, const TokenTrie& trie);

  const Grammar grammar_;
  const std::shared_ptr<const Vocabulary> vocabulary_;
  std::array<uint8_t, 256> class_of_{};
  std::vector<uint8_t> class_bytes_;  // the first byte of each class, which is a range
  std::vector<bool> tail_;            // by state: nothing but the end of its rule is behind it

  std::vector<Frame> frames_;
  NumberIndex frames_by_content_;
  std::vector<Known> states_;
  std::vector<Thread> threads_;  // of all states
  NumberIndex states_by_threads_;
  std::vector<State> steps_;  // [states, classes]
  State start_ = kDead;
  // What FindStep closed last, and what came of it: most bytes of a string lead to the same.
  std::vector<Thread> last_begun_, begun_;
  State last_closed_ = kDead;
  std::vector<Thread> unvisited_, closed_;  // of Close
  size_t held_bytes_ = 0;
  int64_t work_ = 0;
  uint64_t generation_ = 0;
};

}  // namespace lamina
