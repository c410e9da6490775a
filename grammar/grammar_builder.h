// Puts a grammar together from parts: Thompson's construction, with rules and limits.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "grammar/grammar.h"

namespace lamina {

// Code points [first, second].
using CodePointRange = std::pair<uint32_t, uint32_t>;
inline constexpr uint32_t kMaxCodePoint = 0x10FFFF;

// Sorted, without overlaps, and without surrogates, which no text holds.
std::vector<CodePointRange> Normalized(std::vector<CodePointRange> ranges);
// All other code points. REQUIRES: Normalized.
std::vector<CodePointRange> Complement(std::span<const CodePointRange> ranges);

// How characters are written.
enum class TextForm {
  kPlain,       // UTF-8
  kJsonString,  // as JSON writes them between quotes: UTF-8, and escapes where JSON demands them
};

// A part of an automaton: texts are the ways from `begin` to `end`. No edge leaves `end` and none
// enters `begin`. A part is used once, in one other part or as a rule.
struct Fragment {
  int32_t begin = 0, end = 0;
};

// Once limits are exceeded, calls return parts without a meaning, and Finish says what was too
// large.
class GrammarBuilder {
 public:
  using Rule = int32_t;

  // `name` is for messages. Rules are defined at most once; one that is not defined has no text.
  Rule DeclareRule(std::string name = "");
  void DefineRule(Rule rule, Fragment body);

  Fragment Empty();    // the empty text
  Fragment Nothing();  // no text at all
  Fragment Literal(std::string_view bytes);
  Fragment Bytes(uint8_t low, uint8_t high);
  Fragment Call(Rule rule);
  // One character of these. REQUIRES: Normalized.
  Fragment CodePoints(std::span<const CodePointRange> ranges, TextForm form);
  Fragment Sequence(std::span<const Fragment> parts);
  Fragment Sequence(std::initializer_list<Fragment> parts) {
    return Sequence(std::span(parts.begin(), parts.size()));
  }
  Fragment AnyOf(std::span<const Fragment> parts);
  Fragment AnyOf(std::initializer_list<Fragment> parts) {
    return AnyOf(std::span(parts.begin(), parts.size()));
  }
  // `body` at least `min` times, and at most `max`, or without a bound.
  Fragment Repeat(Fragment body, int64_t min, std::optional<int64_t> max);
  Fragment Optional(Fragment body) { return Repeat(body, 0, 1); }

  // For automata that are given by their states.
  int32_t NewState();
  void AddEmpty(int32_t from, int32_t to);
  void AddBytes(int32_t from, uint8_t low, uint8_t high, int32_t to);

  // Whether a limit is exceeded: what is built has no meaning any more.
  bool is_full() const { return full_; }

  // The texts of `root`. What can never be completed is left out. kInvalidArgument: a limit was
  // exceeded, a rule is left-recursive, or there is no text at all.
  Result<Grammar> Finish(Rule root) &&;

 private:
  struct RuleStates {
    std::string name;
    int32_t begin = 0, end = 0;
  };

  void AddEdge(int32_t from, Grammar::Edge edge);
  void AddUtf8(int32_t from, CodePointRange range, int32_t to);
  // By state: whether the rule's end can be reached from it. Sets whole_, by rule, likewise.
  std::vector<bool> FindCompletable();

  std::vector<std::vector<Grammar::Edge>> edges_;  // by state
  std::vector<RuleStates> rules_;
  std::vector<bool> whole_;
  int64_t num_edges_ = 0;
  bool full_ = false;
};

}  // namespace lamina
